"""Know: what is known of a question where the capture is, and what tells it from others."""

from __future__ import annotations

import re
from collections.abc import Hashable
from types import FrameType
from typing import TYPE_CHECKING, Any

from graphwright.capture.ladder.conditions import Conditions
from graphwright.capture.state.symbols import Symbol
from graphwright.source import place_of

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import Capture
    from graphwright.capture.state.rungs import QuestionSubject, Subjects

__all__ = ["Knowledge", "place_at"]

_NUMBERS = re.compile(r"\d+")


class Knowledge:
    """The truths that hold where the capture is, by the keys of what they are about."""

    def __init__(self, capture: Capture, subjects: Subjects) -> None:
        self._capture = capture
        self._subjects = subjects
        self.conditions = Conditions(subjects.key_of)

    def told(self, subject: QuestionSubject, key: Hashable) -> Any:
        """The truth of a condition, whose key is given, as far as that is known; a number of modules is."""
        if self._capture.typed is not None and isinstance(subject, Symbol) and subject.firmness:
            return self._capture.typed.numbers.firm(subject)
        known = self._capture.region.known
        if not known:
            return None
        truth = known.get(key)
        if truth is not None:
            return truth
        truth = known.get(self._subjects.opposite(subject))
        return None if truth is None else not truth

    def learn(self, subject: QuestionSubject, truth: bool) -> None:
        """Note that a condition has this truth from here on, in this region: a loop around it may never come here."""
        region = self._capture.region
        region.known = region.known | self.conditions.facts(subject, truth)


def place_at(capture: Capture, frame: FrameType | None) -> tuple[Any, ...] | None:
    """What tells a question from others: where in the user's function, and in which call of which module.

    Modules whose paths differ only in numbers count as one: the layers of a stack ask alike, and one answer for all of
    them takes one pass, not one for each.
    """
    if frame is None:
        return None
    position, scope = place_of(frame.f_code, frame.f_lasti), capture.scope
    return frame.f_code.co_filename, position.line, position.column, _NUMBERS.sub("*", scope.path), scope.call
