"""What a program changes and no graph can: iterators that it advances, default values that it fills."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from types import CodeType, FunctionType, GeneratorType
from typing import Any

from graphwright.capture.proxies.contents import content, refill
from graphwright.capture.source.attribute_writes import place_of_name
from graphwright.errors import CaptureError
from graphwright.runtime import differs

__all__ = ["HeldApart"]

_COUNTED = (itertools.count, itertools.cycle, itertools.repeat)


class HeldApart:
    """Iterators and default values that a program reaches, and how far they were when the pass began."""

    def __init__(self) -> None:
        self._iterators: list[tuple[Any, str, str, CodeType | None]] = []
        self._tables: list[tuple[Any, FunctionType]] = []
        self._before: list[Any] = []

    def note(self, value: Any, subject: str, name: str, code: CodeType | None = None, owner: Any = None) -> None:
        """Note an iterator; other values are none of ours."""
        if isinstance(value, Iterator) and type(value).__module__ in ("builtins", "itertools"):
            if not any(known is value for known, *_ in self._iterators):
                self._iterators.append((value, subject, name, code))
                self._before.append(_position(value))

    def note_default(self, value: Any, function: FunctionType) -> None:
        """Note a container that is the default value of a parameter."""
        if not any(known is value for known, _ in self._tables):
            self._tables.append((value, function))

    def start(self) -> None:
        """A pass begins."""
        self._before = [_position(value) for value, *_ in self._iterators]
        self._held = [content(table) for table, _ in self._tables]

    def finish(self) -> None:
        """Raise CaptureError where the program has changed something."""
        for (value, subject, name, code), before in zip(self._iterators, self._before, strict=True):
            if _position(value) != before:
                raise CaptureError(
                    f"the program advances {subject}, an iterator: the captured program could not",
                    at=None if code is None else place_of_name(code, name),
                    fix="count in a number: in a global variable, or in an attribute of a module",
                )
        for (table, function), held in zip(self._tables, self._held, strict=False):
            if differs(content(table), held):
                raise CaptureError(
                    f"the program changes a default value of {function.__qualname__}: the captured program could not",
                    at=f"{function.__code__.co_filename}:{function.__code__.co_firstlineno}",
                    fix="keep it in a global variable, or in an attribute of a module",
                )

    def put_back(self) -> None:
        """Put back what the containers held."""
        for (table, _), held in zip(self._tables, getattr(self, "_held", ()), strict=False):
            refill(table, held)


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
