"""For each pass on regions one that is wrong in the way that it could be: the random programs find every one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.passes.test_regions import holds_at_random

from graphwright.ir import Graph, Node
from graphwright.ops import add_operand, cond, for_loop, is_loop, loop_parts
from graphwright.passes.support.bodies import own_bodies, regions_in, substitute
from graphwright.runtime import graph_of


def takes_the_other_side(gm: Any) -> None:
    """FoldConditions that mistakes True for False."""
    for node in regions_in(gm):
        if node.target is cond:
            pred, true, false, operands = node.args
            node.args = (pred, false, true, operands)


def carried(loop: Node) -> list[Node]:
    parts = loop_parts(loop)
    return parts.body.placeholders()[1 if loop.target is for_loop else 0 :][: len(parts.carried)]


def moves_out_what_changes(gm: Any) -> None:
    """HoistInvariants that takes a value which the loop carries for one from outside."""
    for loop in filter(is_loop, regions_in(gm)):
        for initial, value in zip(loop_parts(loop).carried, carried(loop), strict=True):
            if isinstance(initial, Node) and value.users:
                substitute(value, add_operand(loop, initial)[loop_parts(loop).body])
                break


def merges_what_is_unlike(gm: Any) -> None:
    """MergeSubexpressions that does not look at arguments."""
    for graph in list(graph_of(gm).all_graphs()):
        known: dict[Any, Node] = {}
        for node in graph.find_nodes(op="call_function"):
            if not own_bodies(node) and "_operator" in str(getattr(node.target, "__module__", "")) and node.users:
                first = known.setdefault((node.target, type(node.args[-1])), node)
                if first is not node and node.target.__name__ != "getitem":
                    substitute(node, first)


def removes_what_is_alive(gm: Any) -> None:
    """RemoveDeadValues that takes a carried value for one that nothing reads."""
    for loop in filter(is_loop, regions_in(gm)):
        parts = loop_parts(loop)
        if parts.carried:
            stop = (parts.stop,) if parts.breaks else ()
            parts.body.output_node().args = ((*stop, carried(loop)[0], *parts.given[1:]),)


def merges_unlike_conditions(gm: Any) -> None:
    """MergeConditions that takes every condition inside a side for the one outside."""
    for node in regions_in(gm):
        inner = [n for body in own_bodies(node) for n in body.nodes if n.target is cond]
        for branch in inner if node.target is cond else ():
            branch.args = (branch.graph is node.args[1], *branch.args[1:])


def unrolls_one_too_few(gm: Any) -> None:
    """UnrollLoops that forgets an iteration."""
    for loop in regions_in(gm):
        if loop.target is for_loop:
            iterable = loop.args[0]
            rest: Graph = loop.graph
            with rest.inserting_before(loop):
                items = rest.call_function(list, (iterable,))
                fewer = rest.call_method("__getitem__", (items, slice(None, -1)))
            loop.args = (fewer, *loop.args[1:])


BROKEN: list[Callable[[Any], None]] = [
    takes_the_other_side, moves_out_what_changes, merges_what_is_unlike, removes_what_is_alive,
    merges_unlike_conditions, unrolls_one_too_few,
]  # fmt: skip


@pytest.mark.sampled(3)
@pytest.mark.parametrize("edit", BROKEN, ids=lambda edit: edit.__name__)
def test_random_programs_find_a_broken_pass(edit: Callable[[Any], None]) -> None:
    class Broken:
        def run(self, gm: Any) -> int:
            edit(gm)
            return 1

    def caught(seed: int) -> bool:
        try:
            holds_at_random([Broken()], seed)
        except Exception:
            return True
        return False

    assert sum(map(caught, range(100, 108))) >= 2
