"""What does it cost to run a graph node by node, or to learn the shapes in it?

The generated code is timed along: it does the same tensor work without a library in between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch._subclasses import FakeTensorMode

import models
from implementations import BASELINE, Implementation, having
from programs import captured, chain
from results import record
from timing import Case, interleave, runnable

GENERATED = "generated code of torch.fx"


def run(implementations: Sequence[Implementation], node_counts: Sequence[int]) -> None:
    """Time Interpreter, Transformer, ShapeProp and FakeTensorProp on tensors of four elements, and on a network."""
    x = torch.ones(4)
    programs: dict[str, tuple[Any, tuple[Any, ...]]] = {
        f"chain of {nodes}": (chain(nodes), (x, x)) for nodes in node_counts if nodes <= 10_000
    }
    programs["gpt12"] = (models.build("gpt12"), models.inputs("gpt12"))
    with torch.no_grad():
        for name, (program, arguments) in programs.items():
            modules = {side: captured(side, program) for side in implementations}
            baseline = modules[implementations[0]]
            nodes = len(baseline.graph.nodes)
            generated = Case(GENERATED, partial(baseline, *arguments))
            for part, run_part in PARTS.items():
                cases = [
                    Case(side.name, partial(run_part, side, modules[side], arguments))
                    for side in having(implementations, part.split()[0])
                ]
                rounds = 7 if nodes <= 1_100 else 3
                record(f"{part}/{name}", interleave(runnable([*cases, generated]), BASELINE, rounds), nodes)


def _interpret(side: Implementation, module: Any, arguments: tuple[Any, ...]) -> Any:
    return side.Interpreter(module).run(*arguments)


def _interpret_overridden(side: Implementation, module: Any, arguments: tuple[Any, ...]) -> Any:
    class Overridden(side.Interpreter):  # type: ignore[misc, name-defined]
        def run_node(self, n: Any) -> Any:
            return super().run_node(n)

    return Overridden(module).run(*arguments)


def _transform(side: Implementation, module: Any, arguments: tuple[Any, ...]) -> Any:
    return side.Transformer(module).transform()


def _infer_shapes(side: Implementation, module: Any, arguments: tuple[Any, ...]) -> Any:
    return side.ShapeProp(module).propagate(*arguments)


def _infer_fake(side: Implementation, module: Any, arguments: tuple[Any, ...]) -> Any:
    return side.FakeTensorProp(module, FakeTensorMode(allow_non_fake_inputs=True)).propagate(*arguments)


# The first word is the part that an implementation must have.
PARTS: dict[str, Callable[[Implementation, Any, tuple[Any, ...]], Any]] = {
    "Interpreter": _interpret,
    "Interpreter with run_node overridden": _interpret_overridden,
    "Transformer": _transform,
    "ShapeProp": _infer_shapes,
    "FakeTensorProp": _infer_fake,
}
