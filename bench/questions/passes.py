"""What does it cost to check, clean and split a graph?"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import models
from implementations import BASELINE, Implementation, having
from programs import captured, chain
from results import record
from timing import Case, interleave, runnable


def run(implementations: Sequence[Implementation], node_counts: Sequence[int]) -> None:
    """Time `lint`, `eliminate_dead_code` with nothing dead, and `split_module`."""
    programs: dict[str, Any] = {f"chain of {nodes}": chain(nodes) for nodes in node_counts if nodes <= 10_000}
    programs["gpt12"] = models.build("gpt12")
    for name, program in programs.items():
        modules = {side: captured(side, program) for side in implementations}
        nodes = len(modules[implementations[0]].graph.nodes)
        works = {
            "lint": lambda side, module: module.graph.lint,
            "eliminate_dead_code, nothing dead": lambda side, module: module.graph.eliminate_dead_code,
            "split_module, 10 parts": lambda side, module: partial(_split, side, module, 10),
            "split_module, 100 parts": lambda side, module: partial(_split, side, module, 100),
        }
        for pass_name, work_on in works.items():
            sides = having(implementations, "split_module") if "split_module" in pass_name else implementations
            cases = runnable([Case(side.name, work_on(side, modules[side])) for side in sides])
            record(f"{pass_name}/{name}", interleave(cases, BASELINE, 9 if nodes <= 1_100 else 3), nodes)


def _split(side: Implementation, module: Any, parts: int) -> Any:
    """Cut the module into runs of equally many nodes."""
    positions = {node: position for position, node in enumerate(module.graph.nodes)}
    return side.split_module(module, None, lambda node: positions[node] * parts // len(positions))
