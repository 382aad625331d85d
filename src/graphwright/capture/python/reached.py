"""Functions that a function may call, as its code and what it can see tell: which of them ask what Python answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

from graphwright.capture.outside.library_calls import CODES
from graphwright.source import held_by, is_internal, mentions

_DEEPEST = 4  # calls on the way to the function that asks
_MOST_OWNERS = 8  # objects whose methods are looked at, in one function
_OWNS_NONE = (str, int, float, tuple, list, dict)


Known = dict[tuple[int, ...], tuple[Any, Any]]  # what was found, and what keeps the ids of its key
# Of code, its global variables, and those that it has when it starts: those it closes over, and arguments.
Asks = Callable[[CodeType, dict[str, Any], dict[str, Any]], bool]


def asking_in(function: FunctionType, owner: Any, asks: Asks, known: Known) -> set[CodeType]:
    """The functions on the ways from a function to those that ask: itself among them, and none without such.

    `owner` is what it is a method of. `known` keeps what was found, for as long as a capture lasts.
    """
    key = id(asks), id(function), id(type(owner))
    if key not in known:
        known[key] = function, _of_function(function, owner, asks, _DEEPEST, set(), known)
    return known[key][1]  # type: ignore[no-any-return]


def asking_from(frame: FrameType, asks: Asks, known: Known) -> set[CodeType]:
    """The same for a function that is running."""
    code = frame.f_code
    first = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
    key = id(asks), id(code), id(type(first))
    if key not in known:
        names = (*code.co_freevars, *code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
        own = {name: frame.f_locals[name] for name in names if name in frame.f_locals}
        known[key] = code, _ways(code, frame.f_globals, own, first, asks, _DEEPEST, set(), known)
    return known[key][1]  # type: ignore[no-any-return]


def _of_function(
    function: FunctionType, owner: Any, asks: Asks, depth: int, seen: set[CodeType], known: Known
) -> set[CodeType]:
    code, defaults = function.__code__, function.__defaults__ or ()
    names = code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount]
    own = {**dict(zip(names, defaults, strict=True)), **(function.__kwdefaults__ or {}), **held_by(function)}
    return _ways(code, function.__globals__, own, owner, asks, depth, seen, known)


def _ways(
    code: CodeType,
    names: dict[str, Any],
    own: dict[str, Any],
    first: Any,
    asks: Asks,
    depth: int,
    seen: set[CodeType],
    known: Known,
) -> set[CodeType]:
    seen.add(code)
    found = {code} if asks(code, names, own) else set()
    if depth == 0:
        return found
    free = {name: own[name] for name in code.co_freevars if name in own}
    key = id(code), id(names), id(type(first)), *map(id, free.values())
    if key not in known:
        known[key] = (code, names, free), [*_called(code, names, free, first)]
    for owner, function in known[key][1]:
        inner = function.__code__
        if inner in seen:
            continue
        further = _of_function(function, owner, asks, depth - 1, seen, known)
        if further:
            found |= {code} | further
    return found


def _called(
    code: CodeType, names: dict[str, Any], free: dict[str, Any], first: Any
) -> Iterator[tuple[Any, FunctionType]]:
    """The functions of programs that code may call by the names in it, each with what it is a method of.

    Those of libraries that are one operation each are not looked into.
    """
    for owner, function in _named(code, names, free, first):
        if not is_internal(function.__code__.co_filename) and id(function.__code__) not in CODES:
            yield owner, function


def _named(
    code: CodeType, names: dict[str, Any], free: dict[str, Any], first: Any
) -> Iterator[tuple[Any, FunctionType]]:
    mentioned = {*code.co_names, *free, "__call__"}
    loaded = {path[0] for path in mentions(code).paths}  # others are attributes
    owners = [first] if first is not None else []
    of_first = getattr(first, "__dict__", {})
    for name in (*code.co_names, *free):
        value = free[name] if name in free else (names if name in loaded else of_first).get(name)
        if type(value) is FunctionType:
            yield None, value
            inner = value.__dict__.get("__wrapped__")
            if type(inner) is FunctionType:  # which it calls, or it would not be a wrapper
                yield None, inner
        elif type(value) is MethodType and type(value.__func__) is FunctionType:
            yield value.__self__, value.__func__
        elif value is not None and not issubclass(type(value), _OWNS_NONE):
            owners.append(value)
    for owner in owners[:_MOST_OWNERS]:
        for method in _methods(owner, mentioned):
            yield None if isinstance(owner, ModuleType) else owner, method


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
            found = found.fget if isinstance(found, property) else getattr(found, "func", found)
            if type(found) is FunctionType:
                yield found
        rest = rest - there if there else rest
