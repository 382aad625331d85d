"""Which layer is quantized how: rules by name, by pattern, by class and for all."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Callable, Iterable
from typing import Any

from torch import nn

from graphwright.analysis import format_columns
from graphwright.errors import QuantizationError
from graphwright.quantization.schemes import QConfig

_LEVELS = ("global", "object type", "module name regex", "module name")  # what comes later counts more


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """One rule of a mapping. kind: "global", "object type", "module name regex" or "module name".

    above: where the module is whose layers it is asked of, as names and patterns say it.
    """

    kind: str
    key: Any
    config: QConfig | None
    above: str = ""

    def holds(self, path: str, kind: Any) -> bool:
        """Tell whether it is a rule for a layer of a class, or a call of a function."""
        if self.kind == "object type":
            return kind is self.key or (
                issubclass(type(kind), type) and isinstance(self.key, type) and issubclass(kind, self.key)
            )
        return self.kind == "global" or self.names(path)

    def names(self, path: str) -> bool:
        """Tell whether it is by name or pattern, and that of a layer."""
        path = ".".join(filter(None, (self.above, path)))
        if self.kind == "module name":
            return path == self.key or path.startswith(f"{self.key}.") or self.key == ""
        return self.kind == "module name regex" and re.fullmatch(self.key, path) is not None

    def __str__(self) -> str:
        if self.kind == "global":
            return self.kind
        key = self.key if isinstance(self.key, str) else getattr(self.key, "__name__", repr(self.key))
        return f"{self.kind} {key}"


class QConfigMapping:
    """Rules in the order of their making; None leaves layers in float.

    A rule by name counts more than one by pattern, that more than one by class or function, and that more than the one
    for all. Of several of a kind that hold for a layer the last counts.

    >>> from graphwright.quantization import dynamic_int8, static_int8
    >>> mapping = QConfigMapping().set_global(static_int8()).set_object_type(nn.Linear, dynamic_int8())
    >>> config, rule = mapping.set_module_name("head", None).resolve("head", nn.Linear)
    >>> config, str(rule)
    (None, 'module name head')
    >>> print(mapping)
    rule                scheme
    global              static uint8, weight int8 per channel
    object type Linear  dynamic uint8 per token, weight int8 per channel
    module name head    float
    """

    def __init__(self) -> None:
        self.rules: list[Rule] = []

    def set_global(self, config: QConfig | None) -> QConfigMapping:
        """Set what holds for every layer."""
        return self._add("global", "", config)

    def set_object_type(self, kind: type[nn.Module] | Callable[..., Any], config: QConfig | None) -> QConfigMapping:
        """Set what holds for layers of a class, such as nn.Linear, or calls of a function, such as torch.matmul."""
        return self._add("object type", kind, config)

    def set_module_name_regex(self, pattern: str, config: QConfig | None) -> QConfigMapping:
        """Set what holds for layers whose whole path matches a regular expression.

        Raises QuantizationError where it is none.
        """
        try:
            re.compile(pattern)
        except re.error as error:
            raise QuantizationError(
                f"{pattern!r} is no regular expression: {error}", fix="give one of Python's, as 'layer[0-9]+\\.fc'"
            ) from error
        return self._add("module name regex", pattern, config)

    def set_module_name(self, path: str, config: QConfig | None) -> QConfigMapping:
        """Set what holds for a layer, and for all layers inside of a module."""
        return self._add("module name", path, config)

    def _add(self, kind: str, key: Any, config: QConfig | None) -> QConfigMapping:
        if config is not None and not isinstance(config, QConfig):
            raise QuantizationError(
                f"a {type(config).__name__} is no way to quantize",
                fix="give a QConfig, such as static_int8(), or None; inputs to calibrate with are `calibration`",
            )
        self.rules.append(Rule(kind, key, config))
        return self

    def __str__(self) -> str:
        rows = [(str(rule), "float" if rule.config is None else rule.config.summary) for rule in self.rules]
        return "\n".join(format_columns(("rule", "scheme"), rows))

    def copy(self) -> QConfigMapping:
        """Copy the rules."""
        made = QConfigMapping()
        made.rules = list(self.rules)
        return made

    def within(self, above: str) -> QConfigMapping:
        """The same rules, for the layers of a module inside that is quantized by itself."""
        made = QConfigMapping()
        made.rules = [dataclasses.replace(rule, above=f"{rule.above}.{above}".lstrip(".")) for rule in self.rules]
        return made

    def resolve(self, path: str, kind: Any) -> tuple[QConfig | None, Rule | None]:
        """What holds for a layer of a class, or a call of a function, and the rule that says so; None without one."""
        for level in reversed(_LEVELS):
            for rule in reversed(self.rules):
                if rule.kind == level and rule.holds(path, kind):
                    return rule.config, rule
        return None, None

    def overruled(self, path: str, kind: Any) -> int:
        """How many rules of the same kind as the one that counts say something else of a layer."""
        config, counting = self.resolve(path, kind)
        alike = [rule for rule in self.rules if counting is not None and rule.kind == counting.kind]
        return sum(rule.holds(path, kind) and rule.config != config for rule in alike)

    def check(self, layers: Iterable[str], others: Iterable[str] = ()) -> None:
        """Raise QuantizationError for a name or a pattern that no layer has, with the names next to it.

        layers, others: their paths; `others` are quantized by themselves. Rules for such are checked with the whole.
        """
        paths = [*layers, *others]
        for rule in self.rules:
            is_by_name = rule.kind in ("module name", "module name regex") and not rule.above
            if is_by_name and not any(map(rule.names, paths)):
                raise QuantizationError(f"no layer has the {rule.kind} {rule.key!r}", fix=_nearest(rule.key, paths))


def _nearest(key: str, paths: list[str]) -> str:
    names = difflib.get_close_matches(key, paths, 4, 0.3) or paths[:4]
    return f"layers are {', '.join(map(repr, names))}" + (", ..." if len(names) < len(paths) else "")
