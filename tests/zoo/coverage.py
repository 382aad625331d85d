"""How much of each model its graph holds: its coverage, and which of the model's own functions run with it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

__all__ = ["Held", "held_in_graph", "table"]


@dataclasses.dataclass(frozen=True)
class Held:
    """What the graph of a model holds of it; all of it has a coverage of 1 and calls no function of the model's own.

    `own_frames` is what the judge counts, those that make outputs of the model's own classes included.
    """

    model: str
    coverage: float
    own_frames: int
    own_calls: tuple[str, ...]

    @property
    def is_whole(self) -> bool:
        return self.coverage == 1.0 and not self.own_calls


def held_in_graph(results: Path) -> list[Held]:
    """Read, of the models that were captured, what the judge wrote on that."""
    rows = [json.loads(line) for line in results.read_text().splitlines()]
    return [
        Held(row["model"], row["coverage"], row["own_frames"], tuple(row["own_calls"]))
        for row in rows
        if "coverage" in row
    ]


def table(held: Sequence[Held]) -> str:
    """Write how many models are held how far, and a row for each that is not held wholly.

    >>> print(table([Held("a", 1.0, 9, ()), Held("b", 0.96, 2, ("loop", "loop"))]))
    | of 2 captured | models |
    | --- | --- |
    | coverage 1.0 | 1 (50%) |
    | coverage at least 0.95 | 2 (100%) |
    | none of their own functions | 1 (50%) |
    | none of their own frames, outputs included | 0 (0%) |
    b: coverage 0.960; runs loop
    """
    counts = {
        "coverage 1.0": [one for one in held if one.coverage == 1.0],
        "coverage at least 0.95": [one for one in held if one.coverage >= 0.95],
        "none of their own functions": [one for one in held if not one.own_calls],
        "none of their own frames, outputs included": [one for one in held if one.own_frames == 0],
    }
    lines = [f"| of {len(held)} captured | models |", "| --- | --- |"]
    lines += [f"| {what} | {len(ones)} ({100 * len(ones) // max(len(held), 1)}%) |" for what, ones in counts.items()]
    return "\n".join(lines + [_row(one) for one in held if not one.is_whole])


def _row(one: Held) -> str:
    functions = ", ".join(dict.fromkeys(one.own_calls))
    return f"{one.model}: coverage {one.coverage:.3f}" + (f"; runs {functions}" if functions else "")
