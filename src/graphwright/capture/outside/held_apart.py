"""What a program changes and no graph can: iterators that it advances, objects and default values that it fills."""

from __future__ import annotations

import collections
import functools
import itertools
import threading
from collections.abc import Collection, Iterator
from enum import Enum
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import nn

from graphwright.capture.effects.contents_before import AttributesBefore, ContentsBefore
from graphwright.capture.effects.reach import how_far
from graphwright.capture.outside.named import is_record
from graphwright.errors import CaptureError
from graphwright.runtime import state_of
from graphwright.source import is_foreign_class, mentions, place_of_name

_LIVE = (list, dict, set)  # which Keeping knows
_HOLDERS = frozenset({list, dict, tuple, collections.deque})
_MOST = 1_000  # items of a container that are looked at
_FIX = "keep it in a list, dict or number: in a global variable, or in an attribute of a module"
_FIX_MODULE = "register it as a submodule, or bring it into that state before the capture"


class HeldApart:
    """Such values that a program reaches, and how they were when the pass began."""

    def __init__(self) -> None:
        self._iterators: list[tuple[Any, str, str, CodeType | None]] = []
        self._objects: list[tuple[Any, str, str, CodeType | None]] = []
        self._positions: list[Any] = []
        self._states: list[ContentsBefore | AttributesBefore] = []

    def note(self, value: Any, subject: str, name: str, code: CodeType | None = None) -> None:
        """Note an iterator, or an object that may change; of containers that are live, the iterators in them."""
        for iterator in _iterators_in(value):
            if not any(known is iterator for known, *_ in self._iterators):
                where = subject if iterator is value else f"what {subject} has"
                self._iterators.append((iterator, where, name, code))
                self._positions.append(how_far(iterator))
        if isinstance(value, Iterator):
            return
        for given in (*value.args, *value.keywords.values()) if isinstance(value, functools.partial) else ():
            if type(given) in _LIVE:
                self._note_object(given, f"what {subject} calls {value.func!r} with", name, code, given)
        if isinstance(value, nn.Module):  # which has no shell
            tables = [vars(each) for each in value.modules()]
            self._note_object(value, subject, name, code, tables)
        elif isinstance(value, torch.Tensor):
            self._note_object(value, subject, name, code, [state_of(value)])
        elif code is not None and type(value) not in _LIVE:
            before = ContentsBefore(value) or (AttributesBefore(value) if _is_foreign_object(value, code) else ())
            if before:
                self._note_object(value, subject, name, code, before)

    def note_default(self, value: Any, function: FunctionType) -> None:
        """Note the default value of a parameter, if it is an iterator or container."""
        code, subject = function.__code__, f"a default value of {function.__qualname__}"
        self.note(value, subject, code.co_name, code)
        if type(value) in _LIVE:
            self._note_object(value, subject, code.co_name, code, value)

    def note_modules(self, value: Any, subject: str, name: str, own: Collection[int]) -> None:
        """Note the modules that a container in an attribute hides, which are none of the program's own."""
        for module in modules_in(value, own):
            self.note(module, f"a module that {subject} has in {name!r}", name)

    def _note_object(self, value: Any, subject: str, name: str, code: CodeType | None, tables: Any) -> None:
        if not any(known is value for known, *_ in self._objects):
            self._objects.append((value, subject, name, code))
            is_made = isinstance(tables, ContentsBefore | AttributesBefore)
            self._states.append(tables if is_made else ContentsBefore(tables))

    def start(self) -> None:
        """A pass begins."""
        self._positions = [how_far(value) for value, *_ in self._iterators]

    def finish(self, kept: set[int]) -> None:
        """Raise CaptureError where the program has changed something; what is kept elsewhere, by id, may change."""
        for (value, subject, name, code), before in zip(self._iterators, self._positions, strict=True):
            if how_far(value) != before:
                raise CaptureError(
                    f"the program advances {subject}, an iterator: the captured program could not",
                    at=None if code is None else place_of_name(code, name),
                    fix="count in a number: in a global variable, or in an attribute of a module",
                )
        for (value, subject, name, code), before in zip(self._objects, self._states, strict=True):
            if before.is_changed(kept):
                at = None if code is None else place_of_name(code, name) or f"{code.co_filename}:{code.co_firstlineno}"
                raise CaptureError(
                    f"the program changes {subject}, a {type(value).__qualname__}: the captured program could not",
                    at=at,
                    fix=_FIX_MODULE if isinstance(value, nn.Module) else _FIX,
                )

    def put_back(self) -> None:
        """Put back what the objects held; a second time does no harm."""
        for before in self._states:
            before.put_back()


def _is_foreign_object(value: Any, code: CodeType) -> bool:
    """Tell whether a value is an object with attributes, of a class that is no part of the user's program.

    What a thread has of its own is one where this code writes it: a leaf may do so, too.
    """
    kind = type(value)
    if isinstance(value, threading.local):
        return not mentions(code).written.isdisjoint(state_of(value))
    is_value = isinstance(value, type | ModuleType | FunctionType | MethodType | Enum | functools.partial)
    is_kept = is_record(kind) or kind.__module__.startswith(("torch._ops", "graphwright."))
    return not is_value and not is_kept and is_foreign_class(kind)


def _iterators_in(value: Any, depth: int = 3) -> Iterator[Any]:
    """A value itself, or what is in it where it is a container, as far as it is an iterator of Python's."""
    kind = type(value)
    if kind in _HOLDERS:
        if depth:
            items = value.values() if kind is dict else value
            for item in itertools.islice(items, _MOST):
                yield from _iterators_in(item, depth - 1)
    elif isinstance(value, Iterator) and kind.__module__ in ("builtins", "itertools"):
        yield value


def modules_in(value: Any, own: Collection[int], depth: int = 2) -> Iterator[nn.Module]:
    """The modules in a list, tuple or dict, short of those whose id is among a program's own."""
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ():
        if isinstance(item, nn.Module):
            if id(item) not in own:
                yield item
        elif depth:
            yield from modules_in(item, own, depth - 1)
