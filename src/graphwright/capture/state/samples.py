"""What a value of the run is like, and the marks that stand in the place of one."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

__all__ = ["MISSING", "UNSET", "Grows", "Sample", "Unlike", "Verdict"]

# Two values become a value of the branch; or the first does for both; or it depends on what they hold.
Verdict = Literal["join", "same", "look inside"]


class _Mark:
    """A value that stands for none."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


UNSET: Any = _Mark("UNSET")  # what a loop returns, as long as it has not
MISSING: Any = _Mark("MISSING")  # in the graph None, which nothing reads


class Unlike(Exception):
    """Two values cannot be joined."""


class Grows(BaseException):
    """A list is longer after an iteration of a loop, at least on some ways through it."""

    def __init__(self, content: Any, name: str = "") -> None:
        super().__init__(name)
        self.content, self.name = content, name


@dataclasses.dataclass(frozen=True)
class Sample:
    """What a value that a loop carries is like: a tensor, or a number of a kind, which may be None at times.

    `loose` are the sizes of a tensor that differ from one iteration to the next, by dimension.
    """

    example: Any = None
    kind: Any = None
    hint: Any = None
    may_be_none: bool = False
    loose: frozenset[int] = frozenset()
    whole: Any = None  # a list that grows
    may_be_number: bool = False  # what is a tensor here: where a loop starts at zero
