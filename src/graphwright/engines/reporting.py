"""What an optimized module says of itself: what each part of it runs on and why, with what was measured."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from graphwright.engines.numerics import Numerics
from graphwright.runtime import CaptureReport, GraphModule

META = "optimized_for_inference"  # the key in the meta of a module


@dataclasses.dataclass(frozen=True, slots=True)
class RunsOn:
    """What one part of a program runs on.

    part: "program", or the key of a layer and how often it is there. runs_on: the name of the kernel or engine.
    times_us: what each that was measured took, in microseconds, first what is kept unless another one is faster. why:
    reasons, such as what was dropped. weights: where the weights are that it computes with. numerics: how far it is off
    of what the program itself gives on the example; None where the example does not come there.
    """

    part: str
    runs_on: str
    times_us: tuple[tuple[str, float], ...] = ()
    why: tuple[str, ...] = ()
    weights: tuple[str, ...] = ()
    numerics: Numerics | None = None

    @property
    def ratio(self) -> float | None:
        """The time of what it runs on to that of the first that was measured; None where they were not."""
        times = dict(self.times_us)
        return times[self.runs_on] / self.times_us[0][1] if self.runs_on in times else None

    def __str__(self) -> str:
        return _table([self])


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
        lines = [CaptureReport.__str__(self), "runs on:", _table([self.program, *self.parts])]
        return "\n".join([*lines, f"off by {self.error:.1e} of the largest value"])


_HEADS = ("part", "runs on", "us", "ratio", "off by", "others, us")


def _table(parts: Sequence[RunsOn]) -> str:
    """Rows in columns, each with the reasons of the part below it."""
    rows = [_HEADS, *map(_cells, parts)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    noted = [[line, *(f"    {reason}" for reason in part.why)] for line, part in zip(lines[1:], parts, strict=True)]
    return "\n".join([lines[0], *(line for each in noted for line in each)])


def _cells(part: RunsOn) -> tuple[str, ...]:
    times = dict(part.times_us)
    own = f"{times[part.runs_on]:.4g}" if part.runs_on in times else ""
    ratio = "" if part.ratio is None else f"{part.ratio:.2f}"
    others = ", ".join(f"{name} {time:.4g}" for name, time in part.times_us if name != part.runs_on)
    return part.part, part.runs_on, own, ratio, "" if part.numerics is None else str(part.numerics), others


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
