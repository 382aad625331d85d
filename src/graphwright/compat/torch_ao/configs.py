"""torch.ao's configurations: those that have names, and rules by module, class and name."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from graphwright.compat.torch_ao.observer_choices import ObserverChoice
from graphwright.errors import QuantizationError
from graphwright.quantization import (
    PerAxis,
    PerTensor,
    QConfig,
    QConfigMapping,
    Rule,
    Scheme,
    dynamic_int8,
    static_int8,
    weight_only_int4,
    weight_only_int8,
)

__all__ = [
    "DYNAMIC",
    "DYNAMIC_PER_CHANNEL",
    "EMBEDDING",
    "EMBEDDING_4BIT",
    "STATIC",
    "STATIC_PER_CHANNEL",
    "WEIGHT_ONLY",
    "PatternsInOrder",
    "default_config",
    "default_mapping",
    "default_training_config",
    "default_training_mapping",
    "make_config",
]

_ENGINES = ("x86", "fbgemm", "onednn", "qnnpack")
_WEIGHT = Scheme(torch.int8, PerTensor(), True, "minmax")
_WEIGHT_PER_CHANNEL = Scheme(torch.int8, PerAxis(0), True, "minmax")

STATIC = QConfig(Scheme(observer="minmax"), _WEIGHT)
STATIC_PER_CHANNEL = QConfig(Scheme(observer="minmax"), _WEIGHT_PER_CHANNEL)
DYNAMIC = dataclasses.replace(dynamic_int8("tensor"), weight=_WEIGHT)
DYNAMIC_PER_CHANNEL = dynamic_int8("tensor")
WEIGHT_ONLY = dataclasses.replace(weight_only_int8(), weight=_WEIGHT)
EMBEDDING = weight_only_int8()
EMBEDDING_4BIT = weight_only_int4(32)


def make_config(activation: Any, weight: Any) -> QConfig:
    """torch.ao's `QConfig(activation, weight)`: observers with settings, or nn.Identity for what stays as it is.

    Values that ask for a reduced range, 7 bits, have 8. Raises QuantizationError for fewer, and for other things than
    observers.

    >>> from graphwright.compat.torch_ao.observer_choices import HISTOGRAM, PER_CHANNEL
    >>> symmetric = PER_CHANNEL.with_args(dtype=torch.qint8, qscheme=torch.per_channel_symmetric)
    >>> make_config(HISTOGRAM, symmetric).summary
    'static uint8, weight int8 per channel'
    """
    values = _scheme(activation)
    if values is not None and values.bits == 7:  # a range reduced for kernels that are none of those here
        values = dataclasses.replace(values, bits=8)
    return QConfig(values, _scheme(weight))


def _scheme(choice: Any) -> Scheme | None:
    if choice is None or choice is nn.Identity or isinstance(choice, nn.Identity):
        return None
    if isinstance(choice, Scheme):
        return choice
    if not isinstance(choice, ObserverChoice):
        raise QuantizationError(
            f"{choice!r} says not how values are written",
            fix="give an observer of graphwright.ao.quantization, or a Scheme",
        )
    return None if choice.is_float else choice.scheme()


def default_config(backend: str = "x86", version: int = 0) -> QConfig:
    """torch.ao's `get_default_qconfig`: ranges of the least squared error, weights per channel; per tensor on qnnpack.

    Integers have all their 8 bits: what computes them here needs no smaller range.
    """
    if backend not in _ENGINES:
        raise QuantizationError(f"there is no engine {backend!r}", fix=f"engines are {', '.join(_ENGINES)}")
    made = static_int8(smooth=False, correct_bias=False)
    return dataclasses.replace(made, weight=_WEIGHT if backend == "qnnpack" else _WEIGHT_PER_CHANNEL)


def default_training_config(backend: str = "x86", version: int | None = 1) -> QConfig:
    """torch.ao's `get_default_qat_qconfig`: what training rounds to is what `get_default_qconfig` gives."""
    return default_config(backend)


def default_mapping(backend: str = "x86", version: int = 0) -> PatternsInOrder:
    """torch.ao's `get_default_qconfig_mapping`."""
    made = PatternsInOrder()
    made.set_global(default_config(backend))
    return made


def default_training_mapping(backend: str = "x86", version: int | None = 1) -> PatternsInOrder:
    """torch.ao's `get_default_qat_qconfig_mapping`."""
    return default_mapping(backend)


class PatternsInOrder(QConfigMapping):
    """torch.ao's `QConfigMapping`: of patterns that hold for one layer, the first counts.

    >>> mapping = PatternsInOrder.from_dict({"": STATIC, "object_type": [(nn.Linear, None)]})
    >>> mapping.resolve("fc", nn.Linear)[0], mapping.resolve("conv", nn.Conv2d)[0] is STATIC
    (None, True)
    """

    def set_module_name_regex(self, pattern: str, config: QConfig | None) -> QConfigMapping:
        """Set what holds for layers whose path matches a regular expression."""
        super().set_module_name_regex(pattern, config)
        self.rules.insert(0, self.rules.pop())
        return self

    @classmethod
    def from_dict(cls, qconfig_dict: Mapping[str, Any]) -> PatternsInOrder:
        """Read rules in the form of torch.ao's dicts. Raises QuantizationError for keys that say something else."""
        made = cls()
        setters: dict[str, Callable[[Any, QConfig | None], QConfigMapping]] = {
            "object_type": made.set_object_type,
            "module_name_regex": made.set_module_name_regex,
            "module_name": made.set_module_name,
        }
        for key, value in qconfig_dict.items():
            if key in ("", "global"):
                made.set_global(value)
            elif key in setters:
                for name, config in value:
                    setters[key](name, config)
            elif value:
                raise QuantizationError(f"rules by {key!r}", fix="give rules by class, pattern or name")
        return made

    def to_dict(self) -> dict[str, Any]:
        """Write rules in the form of torch.ao's dicts."""
        made: dict[str, Any] = {"": None, "object_type": [], "module_name_regex": [], "module_name": []}
        for rule in self.rules:
            _write(rule, made)
        made["module_name_regex"].reverse()
        return made


def _write(rule: Rule, made: dict[str, Any]) -> None:
    if rule.kind == "global":
        made[""] = rule.config
    else:
        made[rule.kind.replace(" ", "_")].append((rule.key, rule.config))
