"""How values are written as integers: the dtype, which values share a scale, and how the range is found."""

from __future__ import annotations

import dataclasses
from typing import Literal

import torch

from graphwright.errors import QuantizationError

OBSERVERS = ("minmax", "moving_average", "histogram", "percentile", "entropy")
ALGORITHMS = ("round", "gptq", "adaround", "awq")


@dataclasses.dataclass(frozen=True, slots=True)
class PerTensor:
    """One scale for all values."""


@dataclasses.dataclass(frozen=True, slots=True)
class PerAxis:
    """A scale for each index of an axis: the channels of a weight."""

    axis: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class PerGroup:
    """A scale for each `size` values in a row along the inputs of a weight."""

    size: int = 32

    def __post_init__(self) -> None:
        if type(self.size) is not int or self.size < 1:
            raise QuantizationError(f"a group of {self.size!r} values", fix="give a whole number above 0, as 32 or 128")


@dataclasses.dataclass(frozen=True, slots=True)
class PerToken:
    """A scale for each vector along the last dimension, found in each call."""


Granularity = PerTensor | PerAxis | PerGroup | PerToken


@dataclasses.dataclass(frozen=True, slots=True)
class Scheme:
    """How one value is quantized.

    dtype: torch.uint8 or torch.int8, which holds it. bits: how many of them are used. is_symmetric: the zero point is
    that of the middle, 0 of int8 and 128 of uint8. observer: what finds the range of activations in calibration, and
    the clipping of weights. is_dynamic: the range is found in each call.

    >>> Scheme(torch.uint8).bounds, Scheme(torch.int8, is_symmetric=True, bits=4).bounds
    ((0, 255), (-8, 7))
    """

    dtype: torch.dtype = torch.uint8
    granularity: Granularity = PerTensor()
    is_symmetric: bool = False
    observer: str = "histogram"
    bits: int = 8
    is_dynamic: bool = False

    def __post_init__(self) -> None:
        if self.dtype not in (torch.uint8, torch.int8):
            raise QuantizationError(
                f"there is no scheme of {self.dtype}", fix="schemes are of torch.uint8 or torch.int8"
            )
        if self.observer not in OBSERVERS:
            raise QuantizationError(
                f"there is no observer {self.observer!r}", fix=f"observers are {', '.join(OBSERVERS)}"
            )
        if type(self.bits) is not int or not 2 <= self.bits <= 8:
            raise QuantizationError(f"{self.bits!r} bits", fix="give a whole number from 2 to 8")

    @property
    def quant_min(self) -> int:
        """The least integer."""
        return 0 if self.dtype is torch.uint8 else -(1 << (self.bits - 1))

    @property
    def quant_max(self) -> int:
        """The largest integer."""
        return (1 << self.bits) - 1 if self.dtype is torch.uint8 else (1 << (self.bits - 1)) - 1

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the largest integer."""
        return self.quant_min, self.quant_max


_WEIGHT = Scheme(torch.int8, PerAxis(0), True, "histogram")


@dataclasses.dataclass(frozen=True, slots=True)
class QConfig:
    """What is done to a layer: how its inputs and its weight are quantized, and by which algorithms.

    activation: None leaves the inputs in float, which is weight-only quantization. algorithm: how the weight is
    rounded, "round", "gptq", "adaround" or "awq". smooth: move the range of inputs behind norms into weights, where
    it lowers the error. correct_bias: take the mean error of the outputs from the bias. equalize: give layers in a row
    channels of like ranges.
    """

    activation: Scheme | None = Scheme()
    weight: Scheme | None = _WEIGHT
    algorithm: str = "round"
    smooth: bool = False
    correct_bias: bool = False
    equalize: bool = False

    def __post_init__(self) -> None:
        if self.algorithm not in ALGORITHMS:
            raise QuantizationError(
                f"there is no algorithm {self.algorithm!r}", fix=f"algorithms are {', '.join(ALGORITHMS)}"
            )
        if self.activation is not None and self.activation.bits != 8:
            raise QuantizationError(
                f"activations of {self.activation.bits} bits",
                fix="give a Scheme of 8 bits: weights alone may have fewer",
            )
        if self.weight is not None and not self.weight.is_symmetric:
            raise QuantizationError(
                "a weight whose zero is not 0", fix="give Scheme(torch.int8, is_symmetric=True, ...)"
            )

    @property
    def is_static(self) -> bool:
        """Whether ranges of activations are found in calibration."""
        return self.activation is not None and not self.activation.is_dynamic

    @property
    def needs_data(self) -> bool:
        """Whether anything of it is found in calibration."""
        return self.is_static or self.algorithm in ("gptq", "adaround", "awq") or self.smooth or self.correct_bias

    @property
    def summary(self) -> str:
        """A few words for a table.

        >>> static_int8().summary, weight_only_int4(64).summary
        ('static uint8, weight int8 per channel', 'weight int4 per group of 64')
        """
        parts = []
        if self.activation is not None:
            how = "dynamic" if self.activation.is_dynamic else "static"
            per = " per token" if isinstance(self.activation.granularity, PerToken) else ""
            parts.append(f"{how} {_dtype(self.activation)}{per}")
        if self.weight is not None:
            parts.append(f"weight {_dtype(self.weight)}{_per(self.weight.granularity)}")
        return ", ".join(parts) or "float"


def _dtype(scheme: Scheme) -> str:
    return f"{'uint' if scheme.dtype is torch.uint8 else 'int'}{scheme.bits}"


def _per(granularity: Granularity) -> str:
    if isinstance(granularity, PerGroup):
        return f" per group of {granularity.size}"
    return " per channel" if isinstance(granularity, PerAxis) else ""


# ---- what is asked for most


def static_int8(
    observer: str = "histogram",
    *,
    smooth: bool = True,
    correct_bias: bool = True,
    equalize: bool = False,
    algorithm: str = "round",
) -> QConfig:
    """Integers of 8 bits for weights and for activations, whose ranges are found in calibration.

    By default ranges are those of the least squared error, inputs behind norms are smoothed where it helps, and the
    mean error of each layer is taken from its bias.
    """
    return QConfig(Scheme(observer=observer), _WEIGHT, algorithm, smooth, correct_bias, equalize)


def dynamic_int8(granularity: Literal["tensor", "token"] = "token", *, algorithm: str = "round") -> QConfig:
    """Integers of 8 bits for weights and for the inputs of linear layers, whose ranges are found in each call.

    granularity: one range for each call, or one for each vector of the input.
    """
    if granularity not in ("tensor", "token"):
        raise QuantizationError(f"there is no granularity {granularity!r}", fix='give "tensor" or "token"')
    per = PerToken() if granularity == "token" else PerTensor()
    return QConfig(Scheme(granularity=per, is_dynamic=True), _WEIGHT, algorithm)


def weight_only_int8(*, algorithm: str = "round") -> QConfig:
    """Integers of 8 bits for weights, a scale for each channel; activations stay in float."""
    return QConfig(None, _WEIGHT, algorithm)


def weight_only_int4(group_size: int = 32, algorithm: str = "round") -> QConfig:
    """Integers of 4 bits for weights, a scale for each group of inputs; activations stay in float."""
    return QConfig(None, Scheme(torch.int8, PerGroup(group_size), True, "histogram", bits=4), algorithm)
