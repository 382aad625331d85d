"""Which attributes a program writes: those that are no constants of its modules."""

from __future__ import annotations

import ast
import functools
import inspect
import types
from collections.abc import Iterable
from typing import Any

from torch import nn

from graphwright.script.program.frames import code_of
from graphwright.source import names_in


class Written:
    """The attributes that the methods of some classes assign, as far as these methods may run.

    A method may run where its name is mentioned by one that may; `entries` are those that run for sure. A method that
    only sets a module up, which nothing in the program mentions, makes no attribute a variable.
    """

    def __init__(self, classes: Iterable[Any], entries: Iterable[str]) -> None:
        self._methods = {kind: _methods(kind) for kind in set(classes)}
        self._known: dict[Any, frozenset[str]] = {}
        mentioned, new = set[str](), set(entries)
        while new:
            mentioned |= new
            found: set[str] = set()
            for methods in self._methods.values():
                for name, function in methods:
                    if name in new:
                        found |= names_in(function.__code__)
            new = found - mentioned
        self._running = mentioned

    def by(self, kind: Any) -> frozenset[str]:
        """The attributes of instances of a class that its methods assign."""
        if kind not in self._known:
            running = [function for name, function in self._methods.get(kind, ()) if name in self._running]
            self._known[kind] = frozenset().union(*[_written(function) for function in running])
        return self._known[kind]


def written_elsewhere(kind: type) -> frozenset[str]:
    """The names of attributes and global variables that code of a class assigns to anything but its own object."""
    found: set[str] = set()
    for function in [value for base in kind.__mro__ for value in vars(base).values()]:
        inner = inspect.unwrap(function) if isinstance(function, types.FunctionType) else None
        code = code_of(inner) if isinstance(inner, types.FunctionType) else None
        if code is not None and inner is not None:
            own = inner.__code__.co_varnames[:1]
            for part in ast.walk(code.definition):
                if isinstance(part, ast.Global):
                    found.update(part.names)
                elif isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store):
                    is_own = isinstance(part.value, ast.Name) and part.value.id in own
                    found.update(() if is_own else (part.attr,))
    return frozenset(found)


def _methods(kind: Any) -> list[tuple[str, types.FunctionType]]:
    """The methods of a class of the program, other than its constructor."""
    found = []
    for base in kind.__mro__:
        if base is nn.Module:
            break
        for name, value in vars(base).items():
            method = value.fget if isinstance(value, property) else value
            function = inspect.unwrap(method) if callable(method) else None
            if isinstance(function, types.FunctionType) and name != "__init__":
                found.append((name, function))
    return found


@functools.lru_cache(4096)
def _written(function: types.FunctionType) -> frozenset[str]:
    code = code_of(function)
    first = function.__code__.co_varnames[:1]
    if code is None:
        return frozenset()
    return frozenset([
        part.attr
        for part in ast.walk(code.definition)
        if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store)
        and isinstance(part.value, ast.Name) and part.value.id in first
    ])  # fmt: skip
