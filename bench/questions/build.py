"""What does it cost to make a node?

Growth shows what the garbage collector adds: nodes are cycles, which it walks again and again while a graph grows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from agreement import check_same_nodes
from implementations import BASELINE, Implementation
from programs import created_graph, with_names
from results import record
from timing import Case, interleave, rounds_for

DROPPED = 10


def run(implementations: Sequence[Implementation], node_counts: Sequence[int]) -> None:
    """Time `create_node`: as it is, with the names asked for, with the collector paused, and with graphs dropped."""
    expected = created_graph(implementations[0], 100)
    for side in implementations:
        check_same_nodes(expected, created_graph(side, 100))
    for nodes in node_counts:
        cases = []
        for side in implementations:
            create = partial(created_graph, side, nodes)
            cases += [
                Case(side.name, create),
                Case(f"{side.name}, names made", lambda create=create: with_names(create())),
                Case(f"{side.name}, collector paused", create, collector=False),
            ]
        record(f"create_node/{nodes}", interleave(cases, BASELINE, rounds_for(nodes)), nodes)
        if nodes <= 10_000:
            cases = [Case(side.name, partial(_make_and_drop, side, nodes)) for side in implementations]
            measured = interleave(cases, BASELINE, rounds_for(nodes))
            record(f"create_node, graphs dropped/{nodes}", measured, nodes * DROPPED)


def _make_and_drop(side: Implementation, nodes: int) -> None:
    """Leave graph after graph to the collector, whose walks over everything else then count too."""
    for _ in range(DROPPED):
        created_graph(side, nodes)
