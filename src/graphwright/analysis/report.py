"""What `verify` found, as facts and as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["equal", "raises", "differs", "refused"]


@dataclass(frozen=True, slots=True)
class Difference:
    """One place where two runs part: where it is, and how they differ there."""

    path: str
    what: str

    def __str__(self) -> str:
        return f"{self.path}: {self.what}"


@dataclass(frozen=True, slots=True)
class CaseReport:
    """One comparison: the same inputs given to both sides in the same mode.

    The verdict is `equal`, `raises` (both raise: equal too), `differs`, or `refused` (the captured module raised
    GuardError where the original returned a value). `error` is the largest absolute difference between the two
    sides' numbers, infinite where they cannot be compared at all. `note` says what `raises` and `refused` raised;
    `where`, for a captured module that differs, at which of its nodes the two sides part.
    """

    index: int
    mode: str
    inputs: str
    verdict: Verdict
    error: float
    differences: tuple[Difference, ...] = ()
    note: str = ""
    where: str = ""

    @property
    def ok(self) -> bool:
        """Tell whether both sides did the same."""
        return self.verdict in ("equal", "raises")


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """All comparisons of one `verify`. True in a condition exactly when all of them agree; `str` gives a table.

    >>> print(VerifyReport((CaseReport(0, "eval", "float32(2, 4)", "equal", 0.0),)))
    1 of 1 cases agree, worst absolute error 0
      case  mode  inputs         verdict  error
      0     eval  float32(2, 4)  equal    0
    """

    cases: tuple[CaseReport, ...]

    @property
    def ok(self) -> bool:
        """Tell whether every case agrees."""
        return all(case.ok for case in self.cases)

    @property
    def worst(self) -> float:
        """The largest absolute difference between numbers of the two sides, over all cases."""
        return max((case.error for case in self.cases), default=0.0)

    @property
    def first_difference(self) -> Difference | None:
        """The first place where the two sides part, or None."""
        return next((difference for case in self.cases for difference in case.differences), None)

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        agree = sum(case.ok for case in self.cases)
        rows = [
            (str(case.index), case.mode, case.inputs, case.verdict, f"{case.error:.3g}", case.note)
            for case in self.cases
        ]
        lines = [f"{agree} of {len(self.cases)} cases agree, worst absolute error {self.worst:.3g}"]
        lines += ["  " + line for line in format_columns(("case", "mode", "inputs", "verdict", "error", ""), rows)]
        for case in self.cases:
            said = [*map(str, case.differences), *([f"they part {case.where}"] if case.where else [])]
            lines += [f"  case {case.index}, {case.mode}: {line}" for line in said]
        return "\n".join(lines)


def format_columns(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Align rows of text under their titles, two spaces between columns.

    >>> format_columns(("name", "n"), [("a", "1"), ("long name", "20")])
    ['name       n', 'a          1', 'long name  20']
    """
    table = [titles, *rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
