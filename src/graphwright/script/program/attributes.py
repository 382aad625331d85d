"""Attributes of modules that are plain values: constants of the program, or variables, which it writes.

Which attributes a program writes is known once it is compiled: by its own methods, by a parent, in a loop over modules,
through a property or a hook. So it is compiled again where an attribute that was read as a constant turned out to be
written, or to be of another type. What stays a constant is checked at each call.
"""

from __future__ import annotations

import dis
import types
from collections.abc import Iterable
from typing import Any

from torch import nn

from graphwright.script.program.attribute_writes import Written
from graphwright.script.types import ANY, NONE, TENSOR, Type, join, optional
from graphwright.source import codes_of

_Key = tuple[int, str]  # the id of a module, and the name of an attribute
_MOST_ROUNDS = 6


class Attributes:
    """What is known of the attributes of a program's modules, over all rounds of its compilation."""

    def __init__(self, root: nn.Module | None, entries: Iterable[str]) -> None:
        modules = [] if root is None else list(root.modules())
        self._by_methods = Written([type(module) for module in modules], [*entries, "forward"])
        self._stored_by_name: set[str] = set()  # by code that is run and not compiled
        self._types: dict[_Key, Type] = {}  # of what is written
        self._folded: dict[_Key, nn.Module] = {}
        self._read: dict[_Key, tuple[nn.Module, Type, Type]] = {}  # the type at first, and the one that was assumed
        self._objects: set[tuple[str, str]] = set()  # that modules hold and the program changes: paths and names
        self._rounds = 0
        self._was_opaque, self._known_objects = False, 0
        self.has_opaque = False  # whether code runs that is not compiled

    def start(self) -> None:
        """Begin a round."""
        self._rounds += 1
        self._was_opaque, self._known_objects = self.has_opaque, len(self._objects)
        self._folded.clear()
        self._read.clear()

    def needs_another_round(self) -> bool:
        """Tell whether this round has shown something that an earlier part of it did not know."""
        return (
            self._was_opaque is not self.has_opaque
            or self._known_objects != len(self._objects)
            or any(self.is_written(module, name) for (_, name), module in self._folded.items())
            or any(str(self._type(key, initial)) != str(kind) for key, (_, initial, kind) in self._read.items())
        )

    def is_written(self, module: nn.Module, name: str) -> bool:
        """Tell whether the program writes an attribute, as far as is known."""
        is_known = name in self._by_methods.by(type(module)) or name in self._stored_by_name
        return is_known or (id(module), name) in self._types

    def fold(self, module: nn.Module, name: str) -> None:
        """Note that an attribute is read as a constant."""
        self._folded[id(module), name] = module

    def read(self, module: nn.Module, name: str, initial: Type) -> Type:
        """The type of an attribute that is of a type at first and may be written, which the program reads."""
        key = id(module), name
        kind = self._type(key, initial)
        self._read[key] = module, initial, kind
        return kind

    def write(self, module: nn.Module, name: str, kind: Type) -> None:
        """Note that the program writes a value of a type to an attribute."""
        key = id(module), name
        known = self._types.get(key)
        joined = kind if known is None else join(known, kind)
        self._types[key] = ANY if joined is None or self._rounds >= _MOST_ROUNDS else joined

    def store(self, name: str) -> None:
        """Note that the program writes an attribute of this name of an object that may be a module."""
        self._stored_by_name.add(name)

    def change(self, path: str, name: str) -> None:
        """Note that the program changes an object that a module holds."""
        self._objects.add((path, name))

    def is_changed(self, path: str, name: str) -> bool:
        """Tell whether the program changes the object that a module holds in an attribute, as far as is known."""
        return (path, name) in self._objects

    def run(self, functions: Iterable[Any]) -> None:
        """Note that functions run that are not compiled, which may write attributes of any module."""
        self.has_opaque = True
        for function in functions:
            code = getattr(getattr(function, "__func__", function), "__code__", None)
            if code is not None:
                self._stored_by_name |= _stored(code)

    def _type(self, key: _Key, initial: Type) -> Type:
        written = self._types.get(key)
        if initial == NONE:
            return optional(TENSOR if written is None else written)
        joined = initial if written is None or written == initial else join(initial, written)
        return ANY if joined is None else joined


def _stored(code: types.CodeType) -> set[str]:
    """The names of attributes that a function, and those inside it, assign or delete."""
    steps = (step for part in codes_of(code) for step in dis.get_instructions(part))
    return {str(step.argval) for step in steps if step.opname in ("STORE_ATTR", "DELETE_ATTR")}
