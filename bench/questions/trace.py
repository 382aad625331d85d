"""What does it cost to capture a program: the graph alone, and everything up to a compiled forward?"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import models
from agreement import check_same_nodes
from implementations import BASELINE, Implementation
from programs import captured, chain
from results import record
from timing import Case, interleave, rounds_for

MODELS = ("mlp8x64", "resnet18", "resnet50", "vit_b_16", "vit_tiny", "gpt12", "gpt96")


def run(implementations: Sequence[Implementation], node_counts: Sequence[int]) -> None:
    """Time `Tracer.trace` and `symbolic_trace`, the latter as it is and with its code compiled."""
    for nodes in node_counts:
        _compare(implementations, f"chain of {nodes}", chain(nodes), rounds_for(nodes))
    for name in MODELS:
        _compare(implementations, name, models.build(name), 5 if name == "gpt96" else 11)


def _compare(implementations: Sequence[Implementation], name: str, program: Any, rounds: int) -> None:
    graphs = [side.Tracer().trace(program) for side in implementations]
    for graph in graphs[1:]:
        check_same_nodes(graphs[0], graph)
    nodes = len(graphs[0].nodes)
    del graphs
    works = {
        "Tracer.trace": lambda side: side.Tracer().trace(program),
        "symbolic_trace": lambda side: side.symbolic_trace(program),
        "symbolic_trace with code": lambda side: captured(side, program),
    }
    for work_name, work in works.items():
        cases = [Case(side.name, partial(work, side)) for side in implementations]
        record(f"{work_name}/{name}", interleave(cases, BASELINE, rounds), nodes)
