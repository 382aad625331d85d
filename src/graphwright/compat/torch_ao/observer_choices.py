"""torch.ao's observers by name, with settings: what `QConfig(activation=MinMaxObserver.with_args(...))` names."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from graphwright.errors import QuantizationError
from graphwright.quantization import PerAxis, PerTensor, Scheme

__all__ = [
    "FAKE_QUANTIZE",
    "HISTOGRAM",
    "MIN_MAX",
    "MOVING_AVERAGE",
    "MOVING_AVERAGE_PER_CHANNEL",
    "PER_CHANNEL",
    "PLACEHOLDER",
    "ObserverChoice",
]

_BITS = {"quint8": 8, "uint8": 8, "qint8": 8, "int8": 8, "quint4x2": 4}
_SIGNED = ("qint8", "int8")
_SILENT = ("ch_axis", "averaging_constant", "bins", "eps", "upsample_rate", "custom_op_name", "factory_kwargs")


@dataclasses.dataclass(frozen=True, slots=True)
class ObserverChoice:
    """An observer, and how values that it sees will be written.

    dtype: "float32" leaves values as they are.
    """

    observer: str = "minmax"
    is_per_channel: bool = False
    is_symmetric: bool = False
    dtype: str = "quint8"
    bits: int = 8
    is_dynamic: bool = False

    def with_args(self, **settings: Any) -> ObserverChoice:
        """The same observer with other settings.

        Integers are of `bits` that quant_min and quant_max need; `reduce_range` asks for 7. Settings that say how fast
        or finely an observer learns are taken, and say nothing here. Raises QuantizationError for others.

        >>> scheme = MIN_MAX.with_args(dtype=torch.qint8, qscheme=torch.per_tensor_symmetric).scheme()
        >>> scheme.dtype, scheme.is_symmetric, scheme.observer, scheme.bounds
        (torch.int8, True, 'minmax', (-128, 127))
        """
        choice = settings.pop("observer", self)
        if not isinstance(choice, ObserverChoice):
            raise QuantizationError(f"{choice!r} is no observer that is known", fix="name one of torch.ao's observers")
        made = dataclasses.replace(choice)
        if "dtype" in settings:
            name = _name(settings.pop("dtype"))
            if name not in (*_BITS, "float32", "float"):
                raise QuantizationError(f"observers of torch.{name}", fix="quantize to 8 or 4 bits")
            made = dataclasses.replace(made, dtype=name, bits=_BITS.get(name, 8))
        if "qscheme" in settings:
            name = _name(settings.pop("qscheme"))
            made = dataclasses.replace(
                made, is_symmetric=name.endswith("symmetric"), is_per_channel=name.startswith("per_channel")
            )
        least, most = settings.pop("quant_min", None), settings.pop("quant_max", None)
        if least is not None and most is not None:
            made = dataclasses.replace(made, bits=(int(most) - int(least)).bit_length())
        if settings.pop("reduce_range", False):
            made = dataclasses.replace(made, bits=min(made.bits, 7))
        made = dataclasses.replace(made, is_dynamic=bool(settings.pop("is_dynamic", made.is_dynamic)))
        unknown = [name for name in settings if name not in _SILENT]
        if unknown:
            raise QuantizationError(f"observers have no setting {unknown[0]!r} here", fix="leave it out")
        return made

    @property
    def is_float(self) -> bool:
        """Whether values stay as they are."""
        return self.dtype in ("float32", "float")

    def scheme(self) -> Scheme:
        """How values are written."""
        dtype = torch.int8 if self.dtype in _SIGNED or self.bits == 4 else torch.uint8
        granularity = PerAxis(0) if self.is_per_channel else PerTensor()
        return Scheme(dtype, granularity, self.is_symmetric, self.observer, self.bits, self.is_dynamic)


def _name(value: Any) -> str:
    return str(value).removeprefix("torch.")


MIN_MAX = ObserverChoice()
MOVING_AVERAGE = ObserverChoice("moving_average")
HISTOGRAM = ObserverChoice("histogram")
PER_CHANNEL = ObserverChoice(is_per_channel=True)
MOVING_AVERAGE_PER_CHANNEL = ObserverChoice("moving_average", is_per_channel=True)
PLACEHOLDER = ObserverChoice(dtype="float32")
FAKE_QUANTIZE = MOVING_AVERAGE
