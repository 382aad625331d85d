"""What does `replace_pattern` cost, by size of the graph and number of matches?"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from agreement import check_same_source
from implementations import BASELINE, Implementation, having
from results import record
from timing import Case, interleave

MATCHES = {1_000: (0, 10, 250), 10_000: (0, 10, 1_000)}


def run(implementations: Sequence[Implementation], node_counts: Sequence[int]) -> None:
    """Time it on chains in which the pattern occurs now and then; torch.fx is quadratic in the matches."""
    sides = having(implementations, "replace_pattern")
    for nodes in node_counts:
        for matches in MATCHES.get(nodes, ()):
            replaced = [_replace(side, _module(side, nodes, matches)) for side in sides]
            for module in replaced[1:]:
                check_same_source(replaced[0].code, module.code)
            cases = [
                Case(side.name, partial(_replace, side), lambda s=side, n=nodes, m=matches: (_module(s, n, m),))
                for side in sides
            ]
            measured = interleave(cases, BASELINE, rounds=5 if nodes <= 1_000 else 3)
            record(f"replace_pattern/{nodes} nodes/{matches} matches", measured, nodes)


def _replace(side: Implementation, module: Any) -> Any:
    side.replace_pattern(module, lambda x: torch.tanh(torch.relu(x)), lambda x: torch.sigmoid(x))
    return module


def _module(side: Implementation, nodes: int, matches: int) -> Any:
    """Return a chain in which relu and tanh follow each other that many times, evenly spread."""
    graph = side.Graph()
    value = graph.placeholder("x")
    starts = set(range(0, nodes, nodes // matches)) if matches else set()
    for index in range(nodes):
        if index in starts:
            function = torch.relu
        elif index - 1 in starts:
            function = torch.tanh
        else:
            function = torch.neg if index % 2 else torch.abs
        value = graph.call_function(function, (value,))
    graph.output(value)
    return side.GraphModule(torch.nn.Module(), graph)
