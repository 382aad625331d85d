"""Loops with few rounds, written out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from graphwright.ir import Node
from graphwright.ops import for_loop, loop_parts
from graphwright.passes.support.bodies import ends_by_raising, inline, put_in_place, regions_in


@dataclass(frozen=True, slots=True)
class UnrollLoops:
    """Write out each `for` over at most `limit` items that are known: a range of constants, a tuple or a list.

    Loops that may end early stay. Returns the number of loops that went.

    >>> from graphwright import Graph, GraphModule
    >>> graph, body = Graph(), Graph()
    >>> i, x = body.placeholder("i"), body.placeholder("x")
    >>> _ = body.output((body.call_method("mul", (x, i)),))
    >>> loop = graph.call_function(for_loop, (range(2, 4), body, (graph.placeholder("x"),), ()))
    >>> _ = graph.output(loop)
    >>> gm = GraphModule(nn.Module(), graph)
    >>> UnrollLoops(limit=4).run(gm)
    1
    >>> print(gm.code.strip())
    def forward(self, x):
        mul = x.mul(2)
        mul_1 = mul.mul(3);  del mul
        return (mul_1,)
    """

    limit: int = 8

    def run(self, gm: nn.Module) -> int:
        """Edit a captured module in place; return the number of changes."""
        return sum(_unroll(node, self.limit) for node in regions_in(gm) if node.target is for_loop)


def _unroll(node: Node, limit: int) -> bool:
    parts = loop_parts(node)
    items = _items(parts.subject, node)
    if items is None or len(items) > limit or parts.stop is not False or ends_by_raising(parts.body):
        return False
    values: Sequence[Any] = parts.carried
    for item in items:
        values = inline(parts.body, (item, *values, *parts.operands), node)[parts.breaks :]
    iterator = parts.subject
    put_in_place(node, tuple(values))
    if isinstance(iterator, Node) and not iterator.users:
        iterator.graph.erase_node(iterator)
    return True


def _items(iterable: Any, node: Node) -> Sequence[Any] | None:
    """What a loop goes through, where that is known."""
    if isinstance(iterable, range | tuple | list):
        return iterable
    is_range = isinstance(iterable, Node) and iterable.target is range and not iterable.kwargs
    return range(*iterable.args) if is_range and all(type(arg) is int for arg in iterable.args) else None
