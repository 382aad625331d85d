"""Which attributes a program writes: those that are no constants of its modules."""

from __future__ import annotations

import ast
import collections
import functools
import inspect
import types
from collections.abc import Iterable, Iterator
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
    """The names of attributes and global variables that code of a class changes, but those of its own objects.

    The class of a class runs where an object is made, too.
    """
    found: set[str] = set()
    bases = (*inspect.getmro(kind), *inspect.getmro(type(kind)))
    for name, function in [item for base in bases for item in vars(base).items()]:
        is_of_class = isinstance(function, classmethod | staticmethod) or name == "__new__" or name in vars(type(kind))
        inner = inspect.unwrap(getattr(function, "__func__", function)) if callable(function) or is_of_class else None
        code = code_of(inner) if isinstance(inner, types.FunctionType) else None
        if code is not None and isinstance(inner, types.FunctionType):
            own = () if is_of_class else inner.__code__.co_varnames[:1]
            for part in ast.walk(code.definition):
                found.update(_changed_by(part, own))
    return frozenset(found)


def _changed_by(part: ast.AST, own: tuple[str, ...]) -> Iterator[str]:
    """The names that a piece of source assigns, or of which it changes the container."""
    changed: ast.expr | None = None
    if isinstance(part, ast.Global):
        yield from part.names
    elif isinstance(part, ast.Attribute) and not isinstance(part.ctx, ast.Load):
        changed = part
    elif isinstance(part, ast.Subscript) and not isinstance(part.ctx, ast.Load):
        changed = part.value
    elif isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr in _CHANGING:
        changed = part.func.value
    if isinstance(changed, ast.Attribute) and not (isinstance(changed.value, ast.Name) and changed.value.id in own):
        yield changed.attr
    elif isinstance(changed, ast.Name):
        yield changed.id


# The methods of containers that those of containers which never change do not have.
_CHANGING = frozenset({*dir(list), *dir(dict), *dir(set), *dir(collections.deque)}) - {
    *dir(tuple), *dir(frozenset), *dir(types.MappingProxyType),
}  # fmt: skip


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
