"""What a capture has learned so far, for its next start.

A capture that meets a question which it cannot answer as it is going notes here what to do about it, and starts again:
the functions that asked are converted, a branch that could not be joined forks, one that cannot be captured is
guarded.
"""

from __future__ import annotations

import dataclasses
from types import CodeType
from typing import Any, Literal

__all__ = ["Plan", "Restart"]

Way = Literal["fork", "guard"]

_asked: set[CodeType] = set()  # functions that asked in any capture of this process: converted from the start


class Restart(BaseException):
    """Start again: the plan has changed. A BaseException, so that a model's own `except` does not swallow it."""


@dataclasses.dataclass
class Plan:
    """The functions to convert, what to do at single questions, and the answers to give at forks."""

    control_flow: str = "stage"
    max_paths: int = 8
    static: frozenset[str] = frozenset()  # inputs whose numbers and sizes are the example's
    dynamic: frozenset[str] = frozenset()  # bools among the inputs that a call may change
    leaves: tuple[Any, ...] = ()  # functions that are recorded as one node
    converted: set[CodeType] = dataclasses.field(default_factory=lambda: set(_asked))
    ways: dict[Any, Way] = dataclasses.field(default_factory=dict)
    answers: tuple[bool, ...] = ()
    paths: int = 0
    passes: int = 0
    notes: list[str] = dataclasses.field(default_factory=list)

    def convert(self, codes: set[CodeType]) -> Restart:
        """Have functions converted."""
        self.converted |= codes
        _asked.update(codes)
        return Restart(f"converted {', '.join(sorted(code.co_name for code in codes))}")

    def change(self, place: Any, way: Way, why: str) -> Restart:
        """Have one question answered another way."""
        self.ways[place] = way
        return Restart(why)
