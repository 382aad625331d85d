"""Graphs written node by node as torch.fx's; branches and loops as torch's operators, their bodies as GraphModules."""

from __future__ import annotations

import itertools
import keyword
from collections.abc import Iterator
from typing import Any

import torch
import torch.fx
import torch.fx.node
from torch import nn

from graphwright.errors import ExportError
from graphwright.interop.fx_graphs import ORIGIN, REGIONS, stack_trace
from graphwright.interop.fx_guards import recorded
from graphwright.interop.fx_values import Constants
from graphwright.interop.operands import kept
from graphwright.ir import Graph, Node, bodies_of
from graphwright.ops import cond, is_impure, is_inplace, is_region, while_loop, write_attribute
from graphwright.runtime import read_attribute

_OPERATORS = {ours: theirs for theirs, ours in REGIONS.items()}
_NAMES = {  # of bodies, as torch has them
    cond: ("true_graph", "false_graph"),
    while_loop: ("while_loop_cond_graph", "while_loop_body_graph"),
}


class GraphWriter:
    """Writes a graph of a module as torch.fx's: `graph`, and `modules`, the bodies that it names.

    taken: the names that the result has already. operators: whether branches and loops become operators. in_body:
    whether the graph is a body, which has what it reads as constants. Raises ExportError, with the user's line, for
    what torch.fx cannot say.
    """

    def __init__(
        self, source: Graph, module: nn.Module, taken: set[str], operators: bool = False, in_body: bool = False
    ) -> None:
        self.graph = torch.fx.Graph()
        self.modules: dict[str, torch.fx.GraphModule] = {}
        self.settings: list[Node] = []  # what bodies have as constants, in place of these
        self._nodes: dict[Node, Any] = {}
        self._module, self._taken, self._operators = module, taken, operators
        self._constants = Constants(self.graph, self._nodes, taken)
        for node in source.nodes:
            is_setting = in_body and node.op == "get_attr"
            self._nodes[node] = self._setting(node) if is_setting else self._written(node)

    def hand_over(self, module: nn.Module) -> None:
        """Give a module the constants and the bodies that the graph names."""
        for name, value in self._constants.values.items():
            object.__setattr__(module, name, value)  # whatever it is, it is no part of the state
        for name, body in self.modules.items():
            module.add_module(name, body)

    def _setting(self, node: Node) -> Any:
        self.settings.append(node)
        return self._constants.argument(read_attribute(self._module, str(node.target)))

    def _written(self, node: Node) -> torch.fx.Node:
        if node.target is write_attribute:
            raise ExportError(
                f"torch.fx's graphs write no attributes: {node.args[0]!r}",
                at=node.origin or f"{type(self._module).__name__}.forward",
                fix="keep it in a buffer and write that in place: buffer.copy_(value)",
            )
        for name in _names_in(node):
            raise ExportError(
                f"torch.fx writes names into its code as they are, and {name!r} is none: node {node.name}",
                at=node.origin,
                fix="give it a name of letters, digits and underscores",
            )
        is_nested = is_region(node) or bool(bodies_of(node))
        target = self._operator(node) if is_nested else recorded(node.target)
        args = tuple([self._argument(arg, i, node) for i, arg in enumerate(node.args)])
        kwargs = {key: self._constants.argument(arg) for key, arg in node.kwargs.items()}
        copied = self.graph.create_node(node.op, target, args, kwargs, node.name, node.type)
        copied.meta.update(node.meta)
        if node.origin is not None:
            copied.meta[ORIGIN] = node.origin
            copied.meta.setdefault("stack_trace", stack_trace(node.origin))
        if is_nested and _has_effects(node):
            self.graph.call_function(recorded(kept), (copied,))
        elif node.op == "call_function" and _is_ours(node.target) and is_impure(node):
            torch.fx.node.has_side_effect(node.target)
        return copied

    def _operator(self, node: Node) -> Any:
        """The operator of torch's that a branch or loop becomes."""
        if not self._operators:
            raise ExportError(
                f"torch.fx's graphs have no {getattr(node.target, '__name__', node.target)}: node {node.name}",
                at=node.origin,
                fix="write it with torch's operator, to_fx(gm, control_flow='hop'), keep it in a leaf module or "
                "function, or capture the way of the example: trace(model, args, control_flow='follow', static=[...])",
            )
        return _OPERATORS[node.target]

    def _argument(self, value: Any, place: int, node: Node) -> Any:
        """An argument as torch.fx has it; a body is read of the module."""
        if not isinstance(value, Graph):
            return self._constants.argument(value)
        name = _NAMES[node.target][place - (node.target is cond)]
        number = next(i for i in itertools.count() if f"{name}_{i}" not in self._taken)
        path = f"{name}_{number}"
        self._taken.add(path)
        inner = GraphWriter(value, self._module, set(), True, in_body=True)
        self.settings += inner.settings
        body = self.modules[path] = torch.fx.GraphModule(nn.Module(), torch.fx.Graph(), path)
        body.training = self._module.training
        inner.hand_over(body)
        body.graph = inner.graph
        return self.graph.create_node("get_attr", path)


def _names_in(node: Node) -> Iterator[str]:
    """The names of a node that are more than names in the code that torch.fx writes: parts of paths stand in quotes."""
    yield from (name for name in node.kwargs if not name.isidentifier() or keyword.iskeyword(name))
    if node.op in ("get_attr", "call_module"):
        yield from (name for name in str(node.target).split(".") if not name.isprintable() or set(name) & {'"', "\\"})
    elif node.op in ("placeholder", "call_method") and not str(node.target).lstrip("*").isidentifier():
        yield str(node.target)


def _has_effects(node: Node) -> bool:
    inside = [inner for body in bodies_of(node) for inner in body.all_nodes()]
    return any(inner.op.startswith("call") and (is_impure(inner) or is_inplace(inner)) for inner in inside)


def _is_ours(target: Any) -> bool:
    return str(getattr(target, "__module__", "")).partition(".")[0] == "graphwright"
