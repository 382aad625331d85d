"""Measure splitting: a chain of ten thousand nodes into a hundred stages, by count and by name, and growth.

    python bench/bench_splitting.py [--check] [--margin 1.25] [--impl graphwright]

Both results are first compared with the original. Takes half a minute.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from graphwright import Graph, GraphModule, split
from results import duration, versions

GOAL_S = 2.0  # 100 stages of 10 000 nodes
GROWTH = 2.0  # seconds per node of the largest graph, of those of the one before
STAGES = 100


def chain(nodes: int) -> GraphModule:
    """Additions with a long skip, and every hundredth node a module."""
    graph, root = Graph(), nn.Module()
    x = value = graph.placeholder("x")
    for i in range(nodes):
        if i % 100 == 0:
            root.add_module(f"layer_{i}", nn.Linear(4, 4))
            value = graph.create_node("call_module", f"layer_{i}", (value,))
        else:
            value = graph.call_function(torch.add, (value, x if i % 1000 == 1 else value))
    graph.output(value)
    return GraphModule(root, graph)


def measure(what: Callable[[], Any], repeats: int = 5) -> tuple[float, float]:
    """The median and the spread of the time that something takes, in seconds of this process."""
    times = []
    for _ in range(repeats):
        gc.collect()
        started = time.process_time()
        what()
        times.append(time.process_time() - started)
    return statistics.median(times), max(times) - min(times)


def check(gm: GraphModule, module: nn.Module) -> None:
    """Raise AssertionError where a chain of stages gives something else."""
    x = torch.randn(2, 4)
    with torch.no_grad():
        torch.testing.assert_close(module(x), gm(x), equal_nan=True)


def main() -> int:
    """Print the table; return 1 if `--check` is given and a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--check", action="store_true", help="exit with 1 if a goal is missed")
    parser.add_argument("--margin", type=float, default=1.0, help="let a result be this many times its goal (noise)")
    parser.add_argument("--impl", default="graphwright", choices=["graphwright"], help="what to measure")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{versions()}; CPU time on one thread, median and spread of 5\n")
    print("| what | nodes | time | spread | us per node | goal | |")
    print(f"|{'---|' * 7}")
    good = True
    per_node: dict[int, float] = {}
    for nodes in (1_000, 10_000, 100_000):
        gm = chain(nodes)
        names = [f"layer_{i}" for i in range(0, nodes, nodes // STAGES)][1:] if nodes >= 10_000 else None
        for what, run in (
            ("parts=100", lambda gm=gm: split(gm, parts=STAGES)),
            ("at=99 names", None if names is None else lambda gm=gm, names=names: split(gm, at=names)),
        ):
            if run is None:
                continue
            if nodes <= 10_000:
                check(gm, run().module)
            median, spread = measure(run, 5 if nodes <= 10_000 else 2)
            if what == "parts=100":
                per_node[nodes] = median / nodes
            goal = GOAL_S if nodes == 10_000 else None
            passed = goal is None or median <= goal * options.margin
            good &= passed
            said = "" if goal is None else "pass" if passed else "FAIL"
            print(
                f"| {what} | {nodes:,} | {duration(median)} | {duration(spread)} | {median / nodes * 1e6:.1f} |"
                f" {'' if goal is None else f'<= {goal} s'} | {said} |",
                flush=True,
            )
    growth = per_node[100_000] / per_node[10_000]
    passed = growth <= GROWTH * options.margin
    good &= passed
    print(f"| growth, 100,000 over 10,000 | | {growth:.2f} x | | | <= {GROWTH} x | {'pass' if passed else 'FAIL'} |")
    return 0 if good or not options.check else 1


if __name__ == "__main__":
    sys.exit(main())
