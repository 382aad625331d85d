"""What torch.fx's generated code can write as an argument; what it cannot becomes a constant of the module."""

from __future__ import annotations

import enum
from typing import Any

import torch
import torch.fx
from torch.fx.immutable_collections import immutable_dict as fx_dict
from torch.fx.immutable_collections import immutable_list as fx_list

from graphwright.ir import Node

CONSTANT = "graphwright_constant"  # in the meta of a get_attr node of torch.fx's: it stands for an argument
# By exact class: what a class of one's own writes of itself, as NumPy's floats do, need not be code.
_WRITTEN = frozenset({
    str, int, float, bool, complex, bytes, type(None), type(...), range, torch.dtype, torch.device, torch.layout,
    torch.memory_format, torch.Size,
})  # fmt: skip
_NAMED = (enum.Enum, torch._ops.OpOverload, torch._ops.HigherOrderOperator)


def is_constant(node: torch.fx.Node) -> bool:
    """Tell whether a node of torch.fx's reads what was an argument."""
    return node.op == "get_attr" and CONSTANT in node.meta


class Constants:
    """Arguments of a graph as torch.fx has them: its own nodes and containers, constants of a module for the rest."""

    def __init__(self, graph: torch.fx.Graph, nodes: dict[Node, torch.fx.Node], taken: set[str]) -> None:
        self._graph, self._nodes, self._taken = graph, nodes, taken
        self._names: dict[int, str] = {}  # by id of the value
        self.values: dict[str, Any] = {}

    def argument(self, value: Any) -> Any:
        """What a value is among the arguments of a node of torch.fx's."""
        if isinstance(value, Node):
            return self._nodes[value]
        kind = type(value)
        if kind in _WRITTEN or isinstance(value, _NAMED):
            return value
        if isinstance(value, tuple) and (kind is tuple or hasattr(kind, "_fields")):
            items = [self.argument(item) for item in value]
            return tuple(items) if kind is tuple else kind(*items)
        if isinstance(value, list):
            return fx_list([self.argument(item) for item in value])
        if isinstance(value, dict) and all(type(key) in _WRITTEN for key in value):
            return fx_dict({key: self.argument(item) for key, item in value.items()})
        if kind is slice:
            return slice(*[self.argument(part) for part in (value.start, value.stop, value.step)])
        return self._constant(value)

    def _constant(self, value: Any) -> torch.fx.Node:
        """A node that reads a value of the module."""
        name = self._names.get(id(value))
        if name is None:
            number = len(self.values)
            while f"_constant{number}" in self._taken:
                number += 1
            name = self._names[id(value)] = f"_constant{number}"
            self._taken.add(name)
            self.values[name] = value
        node = self._graph.create_node("get_attr", name)
        node.meta[CONSTANT] = True
        return node
