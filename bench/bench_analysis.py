"""Measure the analyses: shapes after one edit against shapes from scratch, in graphs of 1 000 and 10 000 nodes.

    python bench/bench_analysis.py [--check] [--margin 1.25]

Takes a minute. The shapes after the edits are compared with those from scratch.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from graphwright import Graph, GraphModule
from graphwright.analysis import Shapes
from results import duration, versions

SHAPES = 100.0  # times as fast after one edit as from scratch, in a graph of 10 000 nodes
ROUNDS = 3


def main() -> int:
    """Print the table; return 1 if `--check` is given and a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--check", action="store_true", help="exit with 1 if a goal is missed")
    parser.add_argument("--margin", type=float, default=1.0, help="let a result be this many times its goal (noise)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{versions()}; CPU time on one thread\n")
    print("| what | from scratch | after the edit | times as fast | goal | |")
    print(f"|{'---|' * 6}")
    good = True
    for nodes in (1_000, 10_000):
        for what, edit in EDITS.items():
            whole, one = _measure(nodes, edit)
            ratio, goal = whole / one, SHAPES if nodes == 10_000 else None
            passed = goal is None or ratio >= goal / options.margin
            good &= passed
            row = f"| shapes, {nodes} nodes, {what} | {duration(whole)} | {duration(one)} | {ratio:.0f} |"
            print(row, "| |" if goal is None else f">= {goal:.0f} | {'pass' if passed else 'FAIL'} |", flush=True)
    return int(options.check and not good)


def _measure(nodes: int, edit: Callable[[GraphModule, int], None]) -> tuple[float, float]:
    """The seconds of all shapes from scratch, and of those after one edit."""
    x = torch.ones(4, 16)
    whole, one = [], []
    gm = _tower(nodes)
    output = gm.graph.output_node()
    Shapes(gm, x)[output]
    for turn in range(ROUNDS):
        start = time.process_time()
        shapes = Shapes(gm, x)
        shapes[output]
        whole.append(time.process_time() - start)
        edit(gm, turn)
        start = time.process_time()
        found = shapes[output]
        one.append(time.process_time() - start)
    if found != Shapes(gm, x)[output]:
        raise AssertionError("the shapes are others from scratch")
    return statistics.median(whole), statistics.median(one)


def _tower(nodes: int) -> GraphModule:
    """Layers with functions around them, and a sum at the end."""
    root, graph = nn.Module(), Graph()
    value = graph.placeholder("x")
    for i in range(nodes // 4):
        root.add_module(f"layer{i}", nn.Linear(16, 16))
        layer = graph.call_module(f"layer{i}", (value,))
        value = graph.call_function(
            torch.add, (graph.call_method("tanh", (graph.call_function(torch.relu, (layer,)),)), value)
        )
    graph.output(graph.call_method("sum", (value, 0)))
    return GraphModule(root, graph)


def _other_function(gm: GraphModule, turn: int) -> None:
    nodes = gm.graph.find_nodes(op="call_function", target=torch.relu)
    nodes[len(nodes) // 2].target = torch.sigmoid


def _one_more(gm: GraphModule, turn: int) -> None:
    nodes = gm.graph.find_nodes(op="call_function", target=torch.relu)
    node = nodes[len(nodes) // 2]
    with gm.graph.inserting_after(node):
        made: Any = gm.graph.call_function(torch.abs, (node,))
    node.replace_all_uses_with(made, lambda user: user is not made)


def _other_result(gm: GraphModule, turn: int) -> None:
    total = gm.graph.output_node().args[0]
    total.args = (total.args[0], 1 - total.args[1])


EDITS = {
    "another function": _other_function,
    "a node more": _one_more,
    "the last sum over another dimension": _other_result,
}

if __name__ == "__main__":
    sys.exit(main())
