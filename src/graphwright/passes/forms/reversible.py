"""Transformations that can be undone: the base classes, putting several together, and the simplest of them."""

from __future__ import annotations

import copy
import operator
from abc import ABC, abstractmethod
from typing import Any

from graphwright.errors import PassError
from graphwright.ir import Node
from graphwright.ops import call_of
from graphwright.passes.support.bodies import plain_graphs
from graphwright.passes.support.tensor_facts import is_number
from graphwright.runtime import GraphModule, graph_of

_MARK = "transformed_by"


class Transformation(ABC):
    """A change of a captured module; subclasses say in `transform` what it is. Calling it edits the module in place.

    `preserves_computation` says whether the module computes the same afterwards.

    >>> from graphwright import symbolic_trace
    >>> class Square(Transformation):
    ...     def transform(self, graph_module):
    ...         for node in graph_module.graph.find_nodes(op="call_method", target="exp"):
    ...             node.target = "square"
    ...             self.mark_as_transformed(node)
    ...         return graph_module
    >>> gm = Square()(symbolic_trace(lambda x: x.exp()))
    >>> print(gm.code.strip())
    def forward(self, x):
        exp = x.square();  x = None
        return exp
    """

    preserves_computation: bool = False

    @abstractmethod
    def transform(self, graph_module: GraphModule) -> GraphModule:
        """Change the module; return it."""

    def __call__(self, graph_module: GraphModule, lint_and_recompile: bool = True) -> GraphModule:
        """Change the module, in place, and return it; check its graph and make its code unless told not to."""
        return _finished(self.transform(graph_module), lint_and_recompile)

    @property
    def signature(self) -> str:
        """What tells transformations apart: the class and its attributes."""
        options = ", ".join(f"{name}={value!r}" for name, value in sorted(vars(self).items()))
        return f"{type(self).__name__}({options})"

    def mark_as_transformed(self, node: Node) -> None:
        """Note on a node that it comes from this transformation."""
        node.meta[_MARK] = (*node.meta.get(_MARK, ()), self.signature)

    def transformed(self, node: Node) -> bool:
        """Tell whether a node comes from this transformation."""
        return self.signature in node.meta.get(_MARK, ())

    def get_transformed_nodes(self, graph_module: GraphModule) -> list[Node]:
        """The nodes that come from this transformation."""
        return [
            node for graph in plain_graphs(graph_of(graph_module)) for node in graph.nodes if self.transformed(node)
        ]


class ReversibleTransformation(Transformation):
    """A transformation that `reverse` undoes: code, state dict and values are then what they were.

    >>> from graphwright import symbolic_trace
    >>> gm = symbolic_trace(lambda x: x / 4)
    >>> code = gm.code
    >>> gm = ChangeTrueDivToMulByInverse()(gm)
    >>> ChangeTrueDivToMulByInverse()(gm, reverse=True).code == code
    True
    """

    @abstractmethod
    def reverse(self, graph_module: GraphModule) -> GraphModule:
        """Undo the transformation; return the module."""

    def __call__(
        self, graph_module: GraphModule, lint_and_recompile: bool = True, reverse: bool = False
    ) -> GraphModule:
        """Change the module in place, or undo that, and return it."""
        change = self.reverse if reverse else self.transform
        return _finished(change(graph_module), lint_and_recompile)

    def mark_as_restored(self, node: Node) -> None:
        """Take away the note that a node comes from this transformation."""
        marks = tuple(mark for mark in node.meta.get(_MARK, ()) if mark != self.signature)
        node.meta.pop(_MARK, None)
        if marks:
            node.meta[_MARK] = marks


def _finished(graph_module: GraphModule, lint_and_recompile: bool) -> GraphModule:
    if lint_and_recompile:
        graph_of(graph_module).lint()
        graph_module.recompile()
    return graph_module


def compose(*args: Transformation, inplace: bool = True) -> Transformation:
    """Put transformations together: they are done one after the other, on a copy unless `inplace`.

    If each of them can be undone, so can all, the last one first. Raises PassError for what is no transformation.

    >>> from graphwright import symbolic_trace
    >>> both = compose(ChangeTrueDivToMulByInverse(), ChangeTrueDivToMulByInverse())
    >>> both(symbolic_trace(lambda x: x / 2)).code.count("*")
    1
    """
    for each in args:
        if not isinstance(each, Transformation):
            raise PassError(f"{each!r} is no transformation", fix="derive its class from Transformation")
    if all(isinstance(each, ReversibleTransformation) for each in args):
        return _ReversibleComposition(args, inplace)
    return _Composition(args, inplace)


class _Composition(Transformation):
    def __init__(self, parts: tuple[Transformation, ...], inplace: bool) -> None:
        self.parts, self.inplace = parts, inplace
        self.preserves_computation = all(each.preserves_computation for each in parts)

    def transform(self, graph_module: GraphModule) -> GraphModule:
        return _one_after_the_other(graph_module, [each.transform for each in self.parts], self.inplace)


class _ReversibleComposition(ReversibleTransformation):
    def __init__(self, parts: tuple[Any, ...], inplace: bool) -> None:
        self.parts, self.inplace = parts, inplace
        self.preserves_computation = all(each.preserves_computation for each in parts)

    def transform(self, graph_module: GraphModule) -> GraphModule:
        return _one_after_the_other(graph_module, [each.transform for each in self.parts], self.inplace)

    def reverse(self, graph_module: GraphModule) -> GraphModule:
        return _one_after_the_other(graph_module, [each.reverse for each in reversed(self.parts)], self.inplace)


def _one_after_the_other(graph_module: GraphModule, changes: list[Any], inplace: bool) -> GraphModule:
    gm = graph_module if inplace else copy.deepcopy(graph_module)
    for change in changes:
        gm = change(gm)
    return gm


# ---- division


class ChangeTrueDivToMulByInverse(ReversibleTransformation):
    """Write divisions by a literal as products with its inverse: `x / 8` as `x * 0.125`. They agree up to rounding.

    Divisions of sizes stay, and those by zero, by infinity and by what is computed.

    >>> from graphwright import symbolic_trace
    >>> gm = ChangeTrueDivToMulByInverse()(symbolic_trace(lambda x: x.div(8)))
    >>> print(gm.code.strip())
    def forward(self, x):
        div = x * 0.125;  x = None
        return div
    """

    preserves_computation = True

    def transform(self, graph_module: GraphModule) -> GraphModule:
        """Change the divisions."""
        for graph in plain_graphs(graph_of(graph_module)):
            for node in graph.nodes:
                operands = _quotient(node)
                if operands is None:
                    continue
                value, number = operands
                node.meta[type(self).__name__] = node.op, node.target, number, bool(node.kwargs)
                node.op, node.target = "call_function", operator.mul
                node.args, node.kwargs = (value, 1 / number), {}
                self.mark_as_transformed(node)
        return graph_module

    def reverse(self, graph_module: GraphModule) -> GraphModule:
        """Make them divisions again."""
        for node in self.get_transformed_nodes(graph_module):
            op, target, number, is_by_name = node.meta.pop(type(self).__name__)
            value = node.args[0]
            node.op, node.target = op, target
            node.args, node.kwargs = ((value,), {"other": number}) if is_by_name else ((value, number), {})
            self.mark_as_restored(node)
        return graph_module


def _quotient(node: Node) -> tuple[Node, Any] | None:
    """The value and the literal that a node divides."""
    call = call_of(node) if node.op in ("call_function", "call_method") else None
    if call is None or call.key != "div" or call.writes or call.arguments.get("rounding_mode") is not None:
        return None
    value, number = call.arguments["input"], call.arguments["other"]
    if not isinstance(value, Node) or is_number(value) or type(number) not in (int, float):
        return None
    if not 1e-30 < abs(number) < 1e30 or set(node.kwargs) - {"other"}:
        return None
    return value, number
