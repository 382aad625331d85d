"""Functions that a function may call, as its code and what it can see tell: which of them ask what Python answers."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from types import CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

from torch import nn

from graphwright.capture.effects.watched_tables import aside_of
from graphwright.capture.outside.library_calls import CODES
from graphwright.source import held_by, is_internal, mentions

_DEEPEST = 4  # calls on the way to the function that asks
_MOST_OWNERS = 8  # objects whose methods are looked at, in one function
_OWNS_NONE = (str, int, float, tuple, list, dict)
_CALLED = (FunctionType, MethodType)
_NONE = frozenset[CodeType]()

# Of code, its global variables, and those that it has when it starts: those it closes over, and arguments.
Asks = Callable[[CodeType, dict[str, Any], dict[str, Any]], bool]


class Reached:
    """What functions may call, and which of these ask, as it was found: for as long as a capture lasts."""

    def __init__(self) -> None:
        # By the function, the class of what it belongs to, and the functions that this holds.
        self._functions: dict[tuple[int, ...], _Reaching] = {}
        self._running: dict[tuple[int, ...], tuple[Any, ...]] = {}  # by what asks, code, and the same
        self._held: dict[int, tuple[Any, Any, tuple[int, ...]]] = {}  # by a module: itself, functions it has, their ids
        self._called: dict[tuple[int, ...], tuple[Any, ...]] = {}

    def asking_in(self, function: FunctionType, owner: Any, asks: Asks) -> frozenset[CodeType]:
        """The functions on the ways from a function to those that ask: itself among them, and none without such.

        `owner` is what it is a method of.
        """
        return self._ways(self.function(function, owner), asks, _DEEPEST)

    def asking_from(self, frame: FrameType, asks: Asks) -> frozenset[CodeType]:
        """The same for a function that is running."""
        code = frame.f_code
        held = frame.f_locals  # made anew each time
        first = held.get(code.co_varnames[0]) if code.co_argcount else None
        key = id(asks), id(code), id(type(first)), *self._held_by(first)
        if key not in self._running:
            names = (*code.co_freevars, *code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
            own = {name: held[name] for name in names if name in held}
            ways = self._ways(_Reaching(code, frame.f_globals, own, first), asks, _DEEPEST)
            self._running[key] = ways, asks, code, type(first)
        return self._running[key][0]  # type: ignore[no-any-return]

    def function(self, function: FunctionType, owner: Any) -> _Reaching:
        """What is known of a function."""
        key = id(function), id(type(owner)), *self._held_by(owner)
        if key not in self._functions:
            code, defaults = function.__code__, function.__defaults__ or ()
            names = code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount]
            own = {**dict(zip(names, defaults, strict=True)), **(function.__kwdefaults__ or {}), **held_by(function)}
            held = function, type(owner)
            self._functions[key] = _Reaching(code, function.__globals__, own, owner, held)
        return self._functions[key]

    def _held_by(self, owner: Any) -> tuple[int, ...]:
        """The functions that a module has as attributes, by id: another one of its class may have others."""
        if not isinstance(owner, nn.Module):
            return ()
        known, _, ids = self._held.get(id(owner), (None, None, ()))
        if known is None or known() is not owner:
            held = [value for value in _attributes(owner).values() if type(value) in _CALLED]
            ids = tuple(map(id, held))
            self._held[id(owner)] = weakref.ref(owner), held, ids
        return ids

    def _ways(self, at: _Reaching, asks: Asks, depth: int) -> frozenset[CodeType]:
        key = id(asks), depth
        if key not in at.ways:
            found = set[CodeType]()
            for inner in self._calls(at) if depth else ():
                found |= self._ways(inner, asks, depth - 1)
            if found or asks(at.code, at.names, at.own):
                found.add(at.code)
            at.ways[key] = asks, frozenset(found) if found else _NONE
        return at.ways[key][1]

    def _calls(self, at: _Reaching) -> list[_Reaching]:
        """What it may call; functions of one code share it, where they see the same."""
        if at.calls is None:
            first = at.first()
            free = {name: at.own[name] for name in at.code.co_freevars if name in at.own}
            key = id(at.code), id(at.names), id(type(first)), *self._held_by(first), -1, *map(id, free.values())
            if key not in self._called:
                called = [self.function(each, owner) for owner, each in _called(at.code, at.names, free, first)]
                self._called[key] = called, at.code, at.names, free, type(first)
            at.calls = self._called[key][0]
        return at.calls


class _Reaching:
    """A function: its code, the variables it sees, what it is a method of, and what was found of it.

    `held` are those that tell it from others by their ids. What it is a method of is not kept alive by it, where that
    can be: programs may see when it goes.
    """

    __slots__ = ("calls", "code", "first", "held", "names", "own", "ways")

    def __init__(
        self,
        code: CodeType,
        names: dict[str, Any],
        own: dict[str, Any],
        first: Any,
        held: Any = None,
    ) -> None:
        self.code, self.names, self.own, self.held = code, names, own, held
        self.first = weakref.ref(first) if type(first).__weakrefoffset__ else lambda: first
        self.calls: list[_Reaching] | None = None
        self.ways: dict[tuple[int, int], tuple[Asks, frozenset[CodeType]]] = {}  # by what asks, and how deep


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
    of_first = _attributes(first)
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


def _attributes(owner: Any) -> dict[str, Any]:
    """What an object holds by name, of a shell also what stands aside."""
    own: dict[str, Any] = getattr(owner, "__dict__", {})
    return {**aside_of(owner), **own} if isinstance(owner, nn.Module) and "_parameters" in own else own


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
