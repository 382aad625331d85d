"""Whether the modules that a program calls are what they were: for code that goes on without calling them."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor, nn

from graphwright.runtime import FoundModules, Plainness

_IS = operator.is_


class Unchanged:
    """What some modules of a tree, and those inside of them, were like when this was made.

    >>> root = nn.ModuleDict({"norm": nn.LayerNorm(2)}).eval()
    >>> unchanged = Unchanged(root, ["norm"])
    >>> unchanged.holds(root), unchanged.are_plain()
    (True, True)
    >>> root["norm"].eps = 0.1
    >>> unchanged.holds(root)
    False
    """

    __slots__ = ("_addresses", "_found", "_modules", "_plainness", "_values")

    def __init__(self, root: nn.Module, paths: Sequence[str]) -> None:
        self._found = FoundModules(root, paths)
        above = [module for module in self._found.modules if module is not None]
        self._modules = list(dict.fromkeys(each for module in above for each in module.modules()))
        self._plainness = Plainness(self._modules)
        self._values = [*_values(self._modules)]
        self._addresses = _addresses(self._values)

    def holds(self, root: nn.Module) -> bool:
        """Tell whether they are the same, with the same attributes, and tensors in the same places."""
        if not self._found.is_current(root):
            return False
        values = [*_values(self._modules)]
        are_same = len(values) == len(self._values) and all(map(_IS, values, self._values))
        return are_same and _addresses(values) == self._addresses

    def are_plain(self) -> bool:
        """Tell whether calling them is calling the `forward` of their classes, in evaluation."""
        return self._plainness.holds() and not any(module.training for module in self._modules)


def _values(modules: Sequence[nn.Module]) -> Iterator[Any]:
    """All attributes of modules, and what is in those that are tables."""
    for module in modules:
        for value in module.__dict__.values():
            yield value
            if isinstance(value, dict):
                yield from value.values()


def _addresses(values: Sequence[Any]) -> list[int]:
    return [value.data_ptr() for value in values if isinstance(value, Tensor)]
