"""Branches inside a branch on the same condition: there the condition is known."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from graphwright.ir import Graph, Node
from graphwright.ops import cond, is_region
from graphwright.passes.support.bodies import (
    ends_by_raising,
    inline,
    inputs_of,
    may_write,
    own_bodies,
    put_in_place,
    regions_in,
)
from graphwright.runtime import graph_of

__all__ = ["MergeConditions"]


@dataclass(frozen=True, slots=True)
class MergeConditions:
    """Where a side of a branch branches on the same condition again, put the side that is taken in its place.

    In programs that write in place nothing is merged, since a condition may be a tensor. Returns the number of
    branches that went.

    >>> from graphwright import Graph, GraphModule
    >>> def side(*values):
    ...     body = Graph()
    ...     x = body.placeholder("x")
    ...     body.output(body.call_method(values[0], (x,)))
    ...     return body
    >>> then, graph = Graph(), Graph()
    >>> p, x = then.placeholder("p"), then.placeholder("x")
    >>> _ = then.output(then.call_function(cond, (p, side("relu"), side("neg"), (x,))))
    >>> other = Graph()
    >>> _, x = other.placeholder("p"), other.placeholder("x")
    >>> _ = other.output(x)
    >>> p, x = graph.placeholder("p"), graph.placeholder("x")
    >>> _ = graph.output(graph.call_function(cond, (p, then, other, (p, x))))
    >>> gm = GraphModule(nn.Module(), graph)
    >>> MergeConditions().run(gm)
    1
    >>> [node.target for node in then.nodes]
    ['p', 'x', 'relu', 'output']
    """

    def run(self, gm: nn.Module) -> int:
        """Edit a captured module in place; return the number of changes."""
        if may_write(graph_of(gm).nodes, gm):
            return 0
        count = 0
        for node in regions_in(gm):
            if node.target is not cond or not isinstance(node.args[0], Node):
                continue
            for is_true, body in zip((True, False), own_bodies(node), strict=True):
                for placeholder, operand in zip(inputs_of(body), node.args[3], strict=True):
                    if operand is node.args[0]:
                        count += _settle(body, placeholder, is_true)
        return count


def _settle(body: Graph, pred: Node, is_true: bool) -> int:
    """Take away the branches on a condition, in a body and those inside it, where it is known."""
    count = 0
    for node in list(body.nodes):
        if node._erased or not is_region(node) or not own_bodies(node):
            continue
        if node.target is cond and node.args[0] is pred:
            side = node.args[1 if is_true else 2]
            if not ends_by_raising(side):
                put_in_place(node, inline(side, node.args[3], node))
                count += 1
                continue
        operands = node.args[3]
        for inner in own_bodies(node):
            inputs = inputs_of(inner)
            for i, operand in enumerate(operands):
                if operand is pred:
                    count += _settle(inner, inputs[i - len(operands)], is_true)
    return count
