"""Know: what is known of a question where the capture is, and what tells it from others."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Hashable
from types import FrameType
from typing import TYPE_CHECKING, Any

from graphwright.capture.state.symbols import Symbol, symbol_of
from graphwright.capture.state.tensor_proxy import TensorProxy
from graphwright.source import place_of

if TYPE_CHECKING:
    from graphwright.capture.state.places import Place
    from graphwright.capture.state.protocol import Capture
    from graphwright.capture.state.rungs import QuestionSubject, Subjects

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
        region = self._capture.region
        known = region.known
        if not known:
            return None
        truth = known.get(key)
        if truth is not None:
            return truth
        if isinstance(subject, Symbol) and subject.function == "branch":
            given = region.settled(subject.args[0])
            return given if type(given) is bool else None
        truth = known.get(self._subjects.opposite(subject))
        return None if truth is None else not truth

    def learn(self, subject: QuestionSubject, truth: bool) -> None:
        """Note that a condition has this truth from here on, in this region: a loop around it may never come here."""
        region = self._capture.region
        region.known = region.known | self.conditions.facts(subject, truth)
        self._capture.keep.append(subject)  # known by its id


def place_at(capture: Capture, frame: FrameType | None) -> tuple[Any, ...] | None:
    """What tells a question from others: where in the user's function, and in which call of which module.

    Modules whose paths differ only in numbers count as one: the layers of a stack ask alike, and one answer for all of
    them takes one pass, not one for each.
    """
    if frame is None:
        return None
    position, scope = place_of(frame.f_code, frame.f_lasti), capture.scope
    return frame.f_code.co_filename, position.line, position.column, _NUMBERS.sub("*", scope.path), scope.call


class Conditions:
    """What the conditions of one capture are made of, by what tells values from others: their keys."""

    def __init__(self, key_of: Callable[[Any], Any]) -> None:
        self._key_of = key_of
        self._parts: dict[Any, tuple[bool, list[Symbol]]] = {}
        self._deciders: dict[Any, Any] = {}

    def note_parts(self, result: Any, parts: list[Any], is_and: bool) -> None:
        """Note what a condition is made of, with `and` or with `or`."""
        symbol, symbols = symbol_of(result), [known for part in parts if (known := symbol_of(part)) is not None]
        is_new = symbol is not None and all(symbol.key != part.key for part in symbols)
        if is_new and symbol.function == "branch":  # type: ignore[union-attr]
            self._parts[symbol.key] = is_and, symbols  # type: ignore[union-attr]

    def facts(self, subject: QuestionSubject, value: bool) -> dict[Any, bool]:
        """What is known where a condition has this truth, by the keys of what it says something about."""
        found = {self._key_of(subject): value}
        symbol = None if type(subject) is TensorProxy else _symbol(subject)
        if symbol is None:
            return found
        if symbol.function is bool:  # of a tensor: as that was when it was asked
            of = symbol.args[0]
            return found | (self.facts(of, value) if isinstance(of, Symbol) else {symbol.key[1:]: value})
        if symbol.function is operator.not_:
            return found | self.facts(symbol.args[0], not value)
        is_and, parts = self._parts.get(symbol.key, (not value, []))
        for part in parts if is_and is value else ():
            found |= self.facts(part, value)
        return found

    def note_decider(self, value: Any, place: Place | None) -> None:
        """Note that a branch on a size or flag, at a place, has given a value."""
        self._deciders[self._key_of(value)] = place

    def decider(self, subject: QuestionSubject) -> Any:
        """The place of a branch on a size or flag that has given a value, or the opposite of it; None without one."""
        symbol = _symbol(subject)
        while symbol is not None and symbol.function in (operator.not_, bool, "truth"):
            subject = symbol.args[0]
            symbol = _symbol(subject)
        return self._deciders.get(self._key_of(subject))


def _symbol(subject: QuestionSubject) -> Symbol | None:
    return subject if isinstance(subject, Symbol) else symbol_of(subject)
