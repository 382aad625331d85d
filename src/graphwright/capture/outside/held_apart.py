"""What a program changes and no graph can: iterators that it advances, objects and default values that it fills."""

from __future__ import annotations

import collections
import functools
import itertools
import os
import sys
import threading
from collections.abc import Collection, Iterable, Iterator
from enum import Enum
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import nn

from graphwright.capture.effects.contents_before import (
    AttributesBefore,
    ContentsBefore,
    ModulesBefore,
    ShownBefore,
    may_show,
    shown,
)
from graphwright.capture.effects.held_tables import FIX_OPTIMIZER
from graphwright.capture.effects.reach import how_far
from graphwright.capture.outside.named import Reached, is_record
from graphwright.capture.proxies.contents import HOLDERS
from graphwright.capture.proxies.objects import is_plain_object
from graphwright.errors import CaptureError
from graphwright.runtime import FOREIGN, state_of
from graphwright.source import is_foreign_class, mentions, place_of_name

if TYPE_CHECKING:
    from graphwright.runtime import Shells, Tree

_HOLDERS = frozenset({list, dict, tuple, collections.deque})
_Before: TypeAlias = ContentsBefore | AttributesBefore | ShownBefore | ModulesBefore
_MOST = 1_000  # items of a container that are looked at
_FIX = "keep it in a list, dict or number: in a global variable, or in an attribute of a module"
_FIX_MODULE = "register it as a submodule, or bring it into that state before the capture"


class HeldApart:
    """Such values that a program reaches, and how they were when the pass began."""

    def __init__(self) -> None:
        self._iterators: list[tuple[Any, str, str, CodeType | None]] = []
        self._objects: dict[int, tuple[Any, str, str, CodeType | None]] = {}  # by their ids
        self._positions: list[Any] = []
        self._states: dict[int, _Before] = {}  # by the ids of the objects

    def note(self, value: Any, subject: str, name: str, code: CodeType | None = None, is_kept: bool = False) -> None:
        """Note an iterator, or an object that may change; of containers that are live, the iterators in them.

        `is_kept`: it is an attribute of a module, and seen to change there where it is a container or object.
        """
        for held in _apart_in(value):
            where = subject if held is value else f"what {subject} has"
            if may_show(held):
                self._note_object(held, where, name, code, ShownBefore(held))
            elif not any(known is held for known, *_ in self._iterators):
                self._iterators.append((held, where, name, code))
                self._positions.append(how_far(held))
        if isinstance(value, Enum) and not is_foreign_class(type(value)):
            self.note_members(type(value))
        if isinstance(value, Iterator) or may_show(value):
            return
        if not is_kept:
            self.note_modules(value, f"a module that {subject} has", name, (), code)
        for given in (*value.args, *value.keywords.values()) if isinstance(value, functools.partial) else ():
            if type(given) in HOLDERS:
                self._note_object(given, f"what {subject} calls {value.func!r} with", name, code, given)
        if isinstance(value, nn.Module):  # which has no shell
            tables = [vars(each) for each in value.modules()]
            self._note_object(value, subject, name, code, tables)
        elif isinstance(value, torch.Tensor):
            self._note_object(value, subject, name, code, [state_of(value)])
        elif is_kept and isinstance(value, (*FOREIGN, threading.local)):
            self._note_object(value, subject, name, code, AttributesBefore(value))
        elif isinstance(value, threading.local):  # a leaf may write to it, too
            written = mentions(code).written if code is not None else ()
            self._note_object(value, subject, name, code, AttributesBefore(value, written))
        elif not is_kept and code is not None and type(value) not in HOLDERS:
            before = ContentsBefore(value) or (AttributesBefore(value) if _is_foreign_object(value) else ())
            if before:
                self._note_object(value, subject, name, code, before)

    def note_default(self, value: Any, function: FunctionType) -> None:
        """Note the default value of a parameter, if it is an iterator or container."""
        code, subject = function.__code__, f"a default value of {function.__qualname__}"
        self.note(value, subject, code.co_name, code)
        if type(value) in HOLDERS:
            self._note_object(value, subject, code.co_name, code, value)

    def note_table(self, module: ModuleType, name: str, code: CodeType) -> None:
        """Note what a module of Python's or an installed package has under a name, if it is a container."""
        value = vars(module).get(name)
        if type(value) in HOLDERS:
            before = ModulesBefore() if value is sys.modules else ContentsBefore(value)
            self._note_object(value, f"{module.__name__}.{name}", name, code, before)

    def note_members(self, kind: type[Enum]) -> None:
        """Note the members of an enum, which may be given attributes."""
        for member in kind:
            self._note_object(member, repr(str(member)), member.name, None, AttributesBefore(member))

    def note_modules(
        self, value: Any, subject: str, name: str, own: Collection[int], code: CodeType | None = None
    ) -> None:
        """Note the modules that a container or object hides, which are none of the program's own."""
        for module in modules_in(value, own):
            self.note(module, subject, name, code)

    def _note_object(self, value: Any, subject: str, name: str, code: CodeType | None, tables: Any) -> None:
        if id(value) not in self._objects:
            self._objects[id(value)] = value, subject, name, code
            self._states[id(value)] = tables if isinstance(tables, _Before) else ContentsBefore(tables)

    def has_changed(self, value: Any) -> bool:
        """Tell whether an object is one that was noted, and holds something else now."""
        return id(value) in self._states and self._states[id(value)].is_changed()

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
        for key, (value, subject, name, code) in self._objects.items():
            if self._states[key].is_changed(kept):
                at = None if code is None else _place(code, name)
                raise CaptureError(
                    f"the program changes {subject}, a {type(value).__qualname__}: the captured program could not",
                    at=at,
                    fix=_fix(value),
                )

    def put_back(self) -> None:
        """Put back what the objects held; a second time does no harm."""
        for before in self._states.values():
            before.put_back()


def _fix(value: Any) -> str:
    if isinstance(value, torch.optim.Optimizer):
        return FIX_OPTIMIZER
    return _FIX_MODULE if isinstance(value, nn.Module) else _FIX


def _place(code: CodeType, name: str) -> str:
    """The line of a function that mentions a name, else where the function begins."""
    return place_of_name(code, name) or f"{os.path.basename(code.co_filename)}:{code.co_firstlineno}"


def _is_foreign_object(value: Any) -> bool:
    """Tell whether a value is an object with attributes, of a class that is no part of the user's program."""
    kind = type(value)
    is_value = isinstance(value, type | ModuleType | FunctionType | MethodType | Enum | functools.partial)
    is_kept = is_record(kind) or kind.__module__.startswith(("torch._ops", "graphwright."))
    return not is_value and not is_kept and is_foreign_class(kind)


def _apart_in(value: Any, depth: int = 3) -> Iterator[Any]:
    """A value itself, or what is in it where it is a container, as far as it is an iterator or object of Python's."""
    kind = type(value)
    if kind in _HOLDERS:
        if depth:
            items = value.values() if kind is dict else value
            for item in itertools.islice(items, _MOST):
                yield from _apart_in(item, depth - 1)
    elif _is_iterator(value) or (may_show(value) and shown(value) is not None):
        yield value


def _is_iterator(value: Any) -> bool:
    """Tell whether a value is an iterator of Python's."""
    return isinstance(value, Iterator) and type(value).__module__ in ("builtins", "itertools")


def refuse_copied(reached: Iterable[Reached], shells: Shells, attributes: Collection[str]) -> None:
    """Raise CaptureError for an object that is outside of all modules, and of which the captured module has a copy.

    So it is no matter where the program mentions no attribute of its modules that may lead to a copy.
    """
    for each in reached:
        key, name = each.root
        is_copied = name and shells.has_copy_of(id(each.value)) and not shells.has_copy_of(key)
        if is_copied and any(shells.has_copy_of(id(item)) for item in _under(attributes, shells.tree)):
            raise CaptureError(
                f"{each.subject} is an object that a module of the program has, and that leads back to the program's "
                "modules: the captured module has one of its own",
                fix="reach it in one way: by the modules that have it, or from outside",
            )


def _under(names: Collection[str], tree: Tree) -> Iterator[Any]:
    for module, _ in tree.modules:
        yield from (item for name, item in vars(module).items() if name in names)


def modules_in(value: Any, own: Collection[int], depth: int = 2) -> Iterator[nn.Module]:
    """The modules in a list, tuple, dict or object, short of those whose id is among a program's own."""
    items: Iterable[Any] = value if isinstance(value, list | tuple) else ()
    if isinstance(value, dict):
        items = [*value.values()]
    elif hasattr(value, "__dict__") and not isinstance(value, nn.Module) and is_plain_object(value):
        items = [*vars(value).values()]
    for item in items:
        if isinstance(item, nn.Module):
            if id(item) not in own:
                yield item
        elif depth:
            yield from modules_in(item, own, depth - 1)
