"""Conditions that are known before the program runs: the side that is taken stands in the place of the branch."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

from torch import nn

from graphwright.ir import Graph, Node
from graphwright.ops import cond, drop_operands, for_loop, loop_parts, while_loop
from graphwright.passes.support.bodies import (
    ends_by_raising,
    inline,
    items_of,
    own_bodies,
    put_in_place,
    regions_in,
    substitute,
)
from graphwright.runtime import graph_of

_NUMBERS = (bool, int, float)
_CONSTANTS = (*_NUMBERS, type(None))
_FOLDED = frozenset({
    bool, int, float, operator.not_, operator.neg, operator.add, operator.sub, operator.mul, operator.and_,
    operator.or_, operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne, operator.is_,
    operator.is_not,
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class FoldConditions:
    """Put the side that is taken in the place of each branch whose condition is a constant, and drop idle loops.

    Constants go into bodies, arithmetic on numbers and None is computed where all of it is constant, and an item of a
    branch that is the same constant on both sides is that constant; so one condition makes others known. A loop that
    never runs gives what it starts with. A side that ends by raising stays inside its branch. Returns the number of
    changes.

    >>> from graphwright import Graph, GraphModule
    >>> graph, then, other = Graph(), Graph(), Graph()
    >>> _ = then.output(then.call_method("relu", (then.placeholder("x"),)))
    >>> _ = other.output(other.call_method("neg", (other.placeholder("x"),)))
    >>> x = graph.placeholder("x")
    >>> _ = graph.output(graph.call_function(cond, (graph.call_function(operator.gt, (3, 2)), then, other, (x,))))
    >>> gm = GraphModule(nn.Module(), graph)
    >>> FoldConditions().run(gm)
    2
    >>> [node.target for node in gm.graph.nodes]
    ['x', 'relu', 'output']
    """

    def run(self, gm: nn.Module) -> int:
        """Edit a captured module in place; return the number of changes."""
        count = 0
        while changes := self._once(gm):
            count += changes
        return count

    def _once(self, gm: nn.Module) -> int:
        count = sum(_fold_constants(graph) for graph in list(graph_of(gm).all_graphs()))
        for node in regions_in(gm):
            if node._erased:
                continue
            count += _constants_inside(node)
            if node.target is cond:
                count += _fold_branch(node) or _constant_items(node)
            elif _never_runs(node):
                put_in_place(node, tuple(loop_parts(node).carried))
                count += 1
        return count


def _fold_constants(graph: Graph) -> int:
    count = 0
    for node in graph.nodes:
        if node.op != "call_function" or node.kwargs or not node.users:
            continue
        if not any(node.target is known for known in _FOLDED) or any(type(arg) not in _CONSTANTS for arg in node.args):
            continue
        try:
            value = node.target(*node.args)
        except (TypeError, ValueError, OverflowError):
            continue
        put_in_place(node, value)
        count += 1
    return count


def _constants_inside(node: Node) -> int:
    """Put operands that are constants into the bodies."""
    operands = node.args[3]
    constant = [i for i, operand in enumerate(operands) if type(operand) in (*_CONSTANTS, str)]
    for i in constant:
        for body in own_bodies(node):
            substitute(body.placeholders()[i - len(operands)], operands[i])
    return drop_operands(node, constant)


def _fold_branch(node: Node) -> int:
    pred, operands = node.args[0], node.args[3]
    if isinstance(pred, Node):
        return 0
    side = node.args[1 if pred else 2]
    if ends_by_raising(side):
        return 0
    put_in_place(node, inline(side, operands, node))
    return 1


def _constant_items(node: Node) -> int:
    """Put constants in the place of the items that are the same on both sides."""
    items = items_of(node)
    sides = [body for body in own_bodies(node) if not ends_by_raising(body)]
    if not items or len(sides) != 2:
        return 0
    values = [body.output_node().args[0] for body in sides]
    if not all(isinstance(value, tuple | list) for value in values):
        return 0
    count = 0
    for i, takers in items.items():
        then, other = (value[i] for value in values)
        if type(then) in _CONSTANTS and type(then) is type(other) and then == other:
            for taker in takers:
                put_in_place(taker, then)
                count += 1
    return count


def _never_runs(node: Node) -> bool:
    parts = loop_parts(node)
    if node.target is while_loop:
        test: Any = parts.subject.output_node().args[0]
        return (
            type(test) in _CONSTANTS
            and not test
            and len(parts.subject.nodes) == len([*parts.subject.placeholders(), test])
        )
    if node.target is for_loop and isinstance(parts.subject, tuple | list | range):
        return len(parts.subject) == 0
    return False
