"""Constraints on the order of passes: functions that say of two passes whether the first may come before the second."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

__all__ = [
    "OrderedPasses",
    "Constraint",
    "Pass",
    "these_before_those_pass_constraint",
    "this_before_that_pass_constraint",
    "topological_sort_passes",
    "validate_pass_schedule_constraint",
]

Pass = Callable[..., Any]
Constraint = Callable[[Pass, Pass], bool]


def this_before_that_pass_constraint(this: Pass, that: Pass) -> Constraint:
    """Say that pass `this` comes before pass `that`.

    >>> before = this_before_that_pass_constraint(min, max)
    >>> before(min, max), before(max, min)
    (True, False)
    """

    def may_come_before(a: Pass, b: Pass) -> bool:
        return not (a == that and b == this)

    return may_come_before


def these_before_those_pass_constraint(these: Pass, those: Pass) -> Constraint:
    """Say that passes made by wrapping the function `these`, as `loop_pass` does, come before those that wrap `those`.

    >>> from graphwright.passes.pass_manager import loop_pass
    >>> before = these_before_those_pass_constraint(min, max)
    >>> before(loop_pass(max, 3), loop_pass(min, 5))
    False
    """

    def may_come_before(a: Pass, b: Pass) -> bool:
        return not (inspect.unwrap(a) == those and inspect.unwrap(b) == these)

    return may_come_before


def validate_pass_schedule_constraint(constraint: Constraint, passes: list[Pass]) -> None:
    """Raise RuntimeError where two passes stand in an order that the constraint forbids."""
    for i, a in enumerate(passes):
        for j, b in enumerate(passes[i + 1 :], start=i + 1):
            if not constraint(a, b):
                raise RuntimeError(
                    f"pass schedule constraint violated. Expected {b} before {a} "
                    f"but found {a} at index {i} and {b} at index {j} in pass list."
                )


def topological_sort_passes(passes: list[Pass], constraints: list[Constraint]) -> list[Pass]:
    """Order passes so that every constraint holds; without constraints they stay as they are.

    Raises RuntimeError where the constraints contradict each other.
    """
    if not constraints:
        return passes
    unique = list(dict.fromkeys(passes))
    later: dict[Pass, list[Pass]] = {p: [] for p in unique}
    waiting = dict.fromkeys(unique, 0)
    for a in unique:
        for b in unique:
            if a is not b and not all(constraint(b, a) for constraint in constraints):  # b may not come before a
                later[a].append(b)
                waiting[b] += 1
    ready = [p for p in unique if not waiting[p]]
    done: dict[Pass, None] = {}
    while ready:
        current = ready.pop(0)
        done[current] = None
        for p in later[current]:
            waiting[p] -= 1
            if not waiting[p]:
                ready.append(p)
    left = [p for p in unique if p not in done]
    if left:
        raise RuntimeError(f"Circular dependency detected within the following passes: {left}")
    return list(done)


class OrderedPasses:
    """Passes in a list, and constraints on their order, which are looked at once after each change."""

    passes: list[Pass]
    constraints: list[Constraint]
    _validated: bool = False

    def add_pass(self, _pass: Pass) -> None:
        """Add a pass at the end."""
        self.passes.append(_pass)
        self._validated = False

    def add_constraint(self, constraint: Constraint) -> None:
        """Add a constraint on the order of passes."""
        self.constraints.append(constraint)
        self._validated = False

    def _validate(self) -> None:
        """Raise RuntimeError where the passes stand in an order that a constraint forbids."""
        if self._validated:
            return
        for constraint in self.constraints:
            validate_pass_schedule_constraint(constraint, self.passes)
        self._validated = True
