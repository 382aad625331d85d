"""What follows from the truth of a condition: that of the conditions it is made of."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from graphwright.capture.state.symbols import Symbol, symbol_of
from graphwright.capture.state.tensor_proxy import TensorProxy

if TYPE_CHECKING:
    from graphwright.capture.state.places import Place
    from graphwright.capture.state.rungs import QuestionSubject

__all__ = ["Conditions"]


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
        if type(subject) is TensorProxy:
            return found
        symbol = subject if isinstance(subject, Symbol) else symbol_of(subject)
        if symbol is None:
            return found
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
