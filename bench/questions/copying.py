"""What does it cost to copy a graph or a module, and to send one elsewhere?"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Sequence
from functools import partial

from implementations import BASELINE, Implementation
from programs import captured, chain
from results import record
from timing import Case, interleave, runnable


def run(implementations: Sequence[Implementation], node_counts: Sequence[int]) -> None:
    """Time deepcopy and pickle; torch.fx loads a pickle by tracing the generated code again."""
    for nodes in node_counts:
        if nodes > 10_000:
            continue
        modules = {side.name: captured(side, chain(nodes)) for side in implementations}
        works = {
            "deepcopy of the graph": lambda module: partial(copy.deepcopy, module.graph),
            "deepcopy of the module": lambda module: partial(copy.deepcopy, module),
            "pickle.dumps": lambda module: partial(pickle.dumps, module),
            "pickle.loads": lambda module: partial(pickle.loads, pickle.dumps(module)),
        }
        for name, work_on in works.items():
            cases = runnable([Case(side, work_on(module)) for side, module in modules.items()])
            record(f"{name}/{nodes}", interleave(cases, BASELINE, rounds=9 if nodes <= 1_000 else 3), nodes)
