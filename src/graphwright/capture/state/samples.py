"""What becomes of two values, and the marks that stand in the place of one."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any, Literal, TypeAlias

from graphwright.values import Kind, Unlike

__all__ = ["MISSING", "UNSET", "Growable", "Grows", "Unlike", "Verdict", "WholeKind"]

# What a loop may make longer: the containers of which one of the run can stand in the place.
Growable: TypeAlias = list[Any] | dict[Any, Any] | set[Any] | collections.deque[Any]
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


class Grows(BaseException):
    """A list is longer after an iteration of a loop, at least on some ways through it."""

    def __init__(self, content: Growable, name: str = "") -> None:
        super().__init__(name)
        self.content, self.name = content, name


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class WholeKind(Kind):
    """Lists, tuples, dicts and sets like this one, of which only a run knows how much is in them."""

    whole: Any
