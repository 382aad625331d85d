"""What a program changes and no graph can: iterators that it advances, objects and default values that it fills."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from types import CodeType, FunctionType, GeneratorType
from typing import Any

from graphwright.capture.effects.contents_before import ContentsBefore
from graphwright.errors import CaptureError
from graphwright.source import place_of_name

__all__ = ["HeldApart"]

_COUNTED = (itertools.count, itertools.cycle, itertools.repeat)
_LIVE = (list, dict, set)  # which Keeping knows
_FIX = "keep it in a list, dict or number: in a global variable, or in an attribute of a module"


class HeldApart:
    """Such values that a program reaches, and how they were when the pass began."""

    def __init__(self) -> None:
        self._iterators: list[tuple[Any, str, str, CodeType | None]] = []
        self._objects: list[tuple[Any, str, str, CodeType]] = []
        self._positions: list[Any] = []
        self._states: list[ContentsBefore] = []

    def note(self, value: Any, subject: str, name: str, code: CodeType | None = None) -> None:
        """Note an iterator, or an object that may change; containers that are live are none of ours."""
        if isinstance(value, Iterator) and type(value).__module__ in ("builtins", "itertools"):
            if not any(known is value for known, *_ in self._iterators):
                self._iterators.append((value, subject, name, code))
                self._positions.append(_position(value))
        elif code is not None and type(value) not in _LIVE and ContentsBefore(value):
            self._note_object(value, subject, name, code)

    def note_default(self, value: Any, function: FunctionType) -> None:
        """Note a container that is the default value of a parameter."""
        code = function.__code__
        self._note_object(value, f"a default value of {function.__qualname__}", code.co_name, code)

    def _note_object(self, value: Any, subject: str, name: str, code: CodeType) -> None:
        if not any(known is value for known, *_ in self._objects):
            self._objects.append((value, subject, name, code))
            self._states.append(ContentsBefore(value))

    def start(self) -> None:
        """A pass begins."""
        self._positions = [_position(value) for value, *_ in self._iterators]

    def finish(self, kept: set[int]) -> None:
        """Raise CaptureError where the program has changed something; what is kept elsewhere, by id, may change."""
        for (value, subject, name, code), before in zip(self._iterators, self._positions, strict=True):
            if _position(value) != before:
                raise CaptureError(
                    f"the program advances {subject}, an iterator: the captured program could not",
                    at=None if code is None else place_of_name(code, name),
                    fix="count in a number: in a global variable, or in an attribute of a module",
                )
        for (value, subject, name, code), before in zip(self._objects, self._states, strict=True):
            if before.is_changed(kept):
                raise CaptureError(
                    f"the program changes {subject}, a {type(value).__qualname__}: the captured program could not",
                    at=place_of_name(code, name) or f"{code.co_filename}:{code.co_firstlineno}",
                    fix=_FIX,
                )

    def put_back(self) -> None:
        """Put back what the objects held; a second time does no harm."""
        for before in self._states:
            before.put_back()


def _position(value: Any) -> Any:
    """How far an iterator is."""
    if isinstance(value, GeneratorType):
        return None if value.gi_frame is None else (value.gi_frame.f_lasti, value.gi_frame.f_lineno)
    if type(value) is itertools.count or type(value) is itertools.repeat:
        return repr(value)
    try:
        return repr(value.__reduce__()) if type(value) not in _COUNTED else str(value.__reduce__()[1:])
    except (TypeError, AttributeError):
        return None
