"""How many bytes does a node take?"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Sequence

from implementations import Implementation
from programs import chain_graph, with_names
from results import keep


def run(implementations: Sequence[Implementation], node_counts: Sequence[int]) -> None:
    """Report bytes per node, names made; 100 000 nodes would tell nothing new."""
    print("## bytes per node")
    answer = {
        f"{side.name}, {nodes} nodes": round(bytes_per_node(side, nodes), 1)
        for nodes in node_counts
        if nodes <= 10_000
        for side in implementations
    }
    for case, count in answer.items():
        print(f"   {case:42s} {count:8.1f} B/node")
    keep("memory", answer)


def bytes_per_node(implementation: Implementation, nodes: int) -> float:
    """Return what a chain of call_function nodes takes, per node, all their names made."""
    with_names(chain_graph(implementation, nodes)[0])  # what is made once and kept is not a node's
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    graph = with_names(chain_graph(implementation, nodes)[0])
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del graph
    return (after - before) / nodes
