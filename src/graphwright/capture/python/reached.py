"""Functions that a function may call, as its code and what it can see tell: which of them ask what Python answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

from graphwright.capture.source.origins import is_internal

__all__ = ["asking_from", "asking_in"]

_DEEPEST = 4  # calls on the way to the function that asks
_MOST_OWNERS = 8  # objects whose methods are looked at, in one function


def asking_in(function: FunctionType, owner: Any, asks: Callable[[CodeType], bool]) -> set[CodeType]:
    """The functions on the ways from a function to those that ask: itself among them, and none without such.

    `owner` is what it is a method of.
    """
    return _ways(function.__code__, _names_of(function), owner, asks, _DEEPEST, set())


def asking_from(
    frame: FrameType, asks: Callable[[CodeType], bool], known: dict[tuple[int, int], tuple[CodeType, set[CodeType]]]
) -> set[CodeType]:
    """The same for a function that is running; `known` keeps what was found, by the code and the class of its owner."""
    code = frame.f_code
    first = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
    key = id(code), id(type(first))
    if key not in known:
        known[key] = code, _asking_from(frame, code, first, asks)
    return known[key][1]


def _asking_from(frame: FrameType, code: CodeType, first: Any, asks: Callable[[CodeType], bool]) -> set[CodeType]:
    free = {name: frame.f_locals[name] for name in code.co_freevars if name in frame.f_locals}
    return _ways(code, {**frame.f_globals, **free} if free else frame.f_globals, first, asks, _DEEPEST, set())


def _ways(
    code: CodeType, names: dict[str, Any], first: Any, asks: Callable[[CodeType], bool], depth: int, seen: set[CodeType]
) -> set[CodeType]:
    seen.add(code)
    found = {code} if asks(code) else set()
    if depth == 0:
        return found
    for owner, function in _called(code, names, first):
        inner = function.__code__
        if inner in seen or is_internal(inner.co_filename):
            continue
        further = _ways(inner, _names_of(function), owner, asks, depth - 1, seen)
        if further:
            found |= {code} | further
    return found


def _called(code: CodeType, names: dict[str, Any], first: Any) -> Iterator[tuple[Any, FunctionType]]:
    """The functions that code may call by the names in it, each with what it is a method of."""
    mentioned = [*code.co_names, *code.co_freevars]
    owners = [first] if first is not None else []
    for name in mentioned:
        value = names.get(name)
        inner = getattr(value, "__wrapped__", value) if isinstance(value, FunctionType) else value
        if type(inner) is FunctionType:
            yield None, inner
        elif type(inner) is MethodType and type(inner.__func__) is FunctionType:
            yield inner.__self__, inner.__func__
        elif value is not None and not isinstance(value, str | int | float | tuple | list | dict):
            owners.append(value)
    wanted = {*mentioned}
    for owner in owners[:_MOST_OWNERS]:
        for method in _methods(owner, wanted):
            yield None if isinstance(owner, ModuleType) else owner, method


def _names_of(function: FunctionType) -> dict[str, Any]:
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    free = {name: cell.cell_contents for name, cell in cells if _is_filled(cell)}
    return {**function.__globals__, **free} if free else function.__globals__


def _methods(owner: Any, names: set[str]) -> Iterator[FunctionType]:
    """The functions under these names of a module, or of the class of something; nothing of the user's is run."""
    kind = owner if isinstance(owner, type) else type(owner)
    tables = [vars(owner)] if isinstance(owner, ModuleType) else [each.__dict__ for each in kind.__mro__]
    rest = names
    for table in tables:
        there = rest & table.keys()
        for name in sorted(there) if there else ():
            found = table[name]
            found = found.__func__ if isinstance(found, staticmethod | classmethod) else found
            if type(found) is FunctionType:
                yield found
        rest = rest - there if there else rest


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - whether it holds anything
    except ValueError:
        return False
    return True
