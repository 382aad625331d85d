"""What an optimized module says of itself: what each part of it runs on and why, with what was measured."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from graphwright.runtime import CaptureReport, GraphModule

__all__ = ["OptimizedReport", "ReportOfOptimized", "RunsOn", "add_notes"]

META = "optimized_for_inference"  # the key in the meta of a module


@dataclasses.dataclass(frozen=True, slots=True)
class RunsOn:
    """What one part of a program runs on.

    part: "program", or the key of a layer and how often it is there. runs_on: the name of the kernel or engine.
    times_us: what each that was measured took, in microseconds. why: reasons, such as what was dropped. weights: where
    the weights are that it computes with.
    """

    part: str
    runs_on: str
    times_us: tuple[tuple[str, float], ...] = ()
    why: tuple[str, ...] = ()
    weights: tuple[str, ...] = ()

    def __str__(self) -> str:
        times = ", ".join(f"{name} {time:.4g} us" for name, time in self.times_us)
        lines = [f"{self.part}: {self.runs_on}" + (f" ({times})" if times else "")]
        return "\n".join([*lines, *(f"    {reason}" for reason in self.why)])


@dataclasses.dataclass(frozen=True, slots=True)
class OptimizedReport(CaptureReport):
    """What a capture did, and what the optimized module runs on.

    program: the whole; parts: its layers and regions. error: the largest difference to the program as it was, relative
    to its largest value, on the example.
    """

    program: RunsOn = RunsOn("program", "torch")
    parts: tuple[RunsOn, ...] = ()
    error: float = 0.0

    def __str__(self) -> str:
        lines = [CaptureReport.__str__(self), "runs on:", str(self.program), *map(str, self.parts)]
        return "\n".join([*lines, f"off by {self.error:.1e} of the largest value"])


def add_notes(module: GraphModule, notes: Sequence[str]) -> None:
    """Have an optimized module say more reasons for what its program runs on."""
    found = module.meta[META]
    program = dataclasses.replace(found["program"], why=(*found["program"].why, *notes))
    module.meta[META] = {**found, "program": program}


class ReportOfOptimized:
    """In the class of an optimized module, what `report` gives."""

    def __get__(self, module: Any, owner: type) -> Any:
        if module is None:
            return self
        report = GraphModule.report.__get__(module, owner)
        if META not in module.meta:
            return report
        fields = {field.name: getattr(report, field.name) for field in dataclasses.fields(report)}
        return OptimizedReport(**fields, **module.meta[META])
