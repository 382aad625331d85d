"""Positions: numbers that grow along a graph, so that `a < b` answers without a walk.

A node made at the end takes the next whole number; one made between two others takes the middle. Where no
number is left between two, the neighbourhood is numbered anew, the window doubling until it is sparse enough: the
order-maintenance idea of Dietz and Sleator (STOC 1987) in the windowed form of Bender et al. (ESA 2002),
amortized O(log n) per insertion.
"""

from __future__ import annotations

from math import inf, ulp
from typing import Protocol


class Placed(Protocol):
    """What stands in an order: it knows its neighbours, and gets a position."""

    _position: float | None

    @property
    def _prev(self) -> Placed: ...

    @property
    def _next(self) -> Placed: ...


def place(node: Placed, root: Placed) -> None:
    """Give a node, already linked, a position between its neighbours'."""
    before = -inf if node._prev is root else node._prev._position
    after = inf if node._next is root else node._next._position
    assert before is not None and after is not None
    if after == inf:
        node._position = 0.0 if before == -inf else before + 1.0
    elif before == -inf:
        node._position = after - 1.0
    else:
        middle = (before + after) / 2
        if before < middle < after:
            node._position = middle
        else:
            _renumber_around(node, root)


def _renumber_around(node: Placed, root: Placed) -> None:
    first = last = node
    count, sparse = 1, 2.0**10  # sparse: how many representable numbers per node make a window worth taking
    while True:
        for _ in range(count):  # double the window, to both sides where the graph has room
            if first._prev is not root:
                first, count = first._prev, count + 1
            if last._next is not root:
                last, count = last._next, count + 1
        low = -inf if first._prev is root else first._prev._position
        high = inf if last._next is root else last._next._position
        assert low is not None and high is not None
        if low == -inf or high == inf:  # a window at the end of the graph has all the room there is
            start = (high - count - 1 if high < inf else 0.0) if low == -inf else low
            step = 1.0
        else:
            start, step = low, (high - low) / (count + 1)
            if step < sparse * ulp(max(abs(low), abs(high))):
                sparse *= 1.5
                continue
        member = first
        for i in range(1, count + 1):
            member._position = start + step * i
            member = member._next
        return
