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


def run(implementations: Sequence[Implementation], node_counts: Sequence[int]) -> None:
    """Time `create_node`: as it is, with the names asked for, and with the collector paused."""
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
