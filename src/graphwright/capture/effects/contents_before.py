"""What the containers and objects in a value of the user's held at one moment, to compare with and to put back."""

from __future__ import annotations

import array
import collections
import functools
import io
import operator
import pickle
import sys
import threading
from collections.abc import Collection, Iterable, Iterator
from enum import Enum
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any

from torch import nn

from graphwright.capture.proxies.contents import changeable, content, holds_bytes, is_still, is_unchanged, refill
from graphwright.capture.proxies.growing import is_growing
from graphwright.runtime import MODULE_TABLES, state_of
from graphwright.source import is_foreign_class

_CHANGED, _TENSORS = frozenset({list, dict, set}), ("_buffers", "_parameters")
_DEPTH = 3  # how far inside of each other the containers and objects are


class ContentsBefore:
    """What is in a value, as it was when this was made; modules, and what is of installed packages, are left out.

    >>> inner = [1]
    >>> before = ContentsBefore({"a": inner})
    >>> inner.append(2)
    >>> before.is_changed()
    True
    >>> before.put_back()
    >>> inner, before.is_changed()
    ([1], False)
    """

    __slots__ = ("_held",)

    def __init__(self, value: Any) -> None:
        self._held = [(table, content(table)) for table in _tables(value)]

    def __bool__(self) -> bool:
        """Whether there is anything that may change."""
        return bool(self._held)

    def is_changed(self, but: Collection[int] = ()) -> bool:
        """Tell whether another thing is in one of them now; those whose id is in `but` may change."""
        return not all(id(table) in but or is_unchanged(before, content(table)) for table, before in self._held)

    def put_back(self) -> None:
        """Have all hold what they held; a second time does no harm."""
        for table, before in self._held:
            refill(table, before)


def _tables(value: Any, depth: int = _DEPTH) -> Iterator[Any]:
    """The containers and tables of attributes in a value."""
    if holds_bytes(value):
        yield value
        return
    is_container = isinstance(value, list | tuple | dict | set | collections.deque)
    if isinstance(value, nn.Module | type) or (not is_container and is_foreign_class(type(value))):
        return
    if isinstance(value, tuple):
        for item in value:
            yield from _tables(item, depth)
        return
    held = changeable(value) or ([value] if is_container and not is_growing(value) else [])
    for table in held:
        yield table
        if depth:
            for item in list(table.values() if isinstance(table, dict) else table):
                yield from _tables(item, depth - 1)


class LayersBefore:
    """What modules hold, to which no capture writes: what a program writes goes to their shells.

    It does not where the program has a module by another way than its own: from an object that holds it, for example.
    """

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        self._held: list[tuple[nn.Module, str, Any, Any]] = []
        for module in modules:
            state = vars(module)
            self._held.append((module, "", state, state.copy()))
            for name, value in state.items():
                if type(value) in _CHANGED and value and (name not in MODULE_TABLES or name in _TENSORS):
                    self._held.append((module, name, value, value.copy()))

    def put_back(self) -> tuple[nn.Module, str] | None:
        """Have all hold what they held; give a module that has changed, and the name of what it has there."""
        found = None
        for module, name, table, before in self._held:
            if type(table) is dict:
                if len(table) == len(before) and all(map(operator.is_, table.values(), before.values())):
                    continue
            elif table == before if type(table) is set else is_still(table, before):
                continue
            if type(table) is dict:  # one by one: other threads may use it
                other = [key for key in {**table, **before} if table.get(key, table) is not before.get(key, table)]
                for key in other:
                    table.pop(key, None)
                table.update({key: before[key] for key in other if key in before})
                found = found or (module, str(other[0]) if other and name in ("", *_TENSORS) else name)
            else:
                refill(table, before)
                found = found or (module, name)
        return found


class AttributesBefore:
    """What an object had in its public attributes; those that one of an installed package got later do not count.

    `names` are those that count of what a thread has of its own.
    """

    __slots__ = ("_computed", "_held", "_inner", "_is_own", "_names", "_table")

    def __init__(self, value: Any, names: Collection[str] | None = None) -> None:
        self._table, self._names = state_of(value), names
        self._is_own = isinstance(value, threading.local | Enum)
        self._computed = _computed_once(type(value)) if isinstance(value, Enum) else set()
        self._held = self._now()
        self._inner = ContentsBefore([held for held in self._held.values() if isinstance(held, _CONTAINERS)])

    def __bool__(self) -> bool:
        return self._is_own or bool(self._held)

    def _now(self) -> dict[str, Any]:
        if self._names is not None:
            return {name: held for name, held in self._table.items() if name in self._names}
        hidden = self._computed if self._is_own else {name for name in self._table if name.startswith("_")}
        return {name: held for name, held in self._table.items() if name not in hidden}

    def is_changed(self, but: Collection[int] = ()) -> bool:
        """Tell whether it has something else in one of them now."""
        more = self._now().keys() - self._held.keys() if self._is_own else ()
        # None is what `getattr(local, name, None)` has found there, and what a context has put back.
        is_more = any(self._table[name] is not None for name in more)
        is_other = any(self._table.get(name) is not it for name, it in self._held.items())
        return is_more or is_other or self._inner.is_changed(but)

    def put_back(self) -> None:
        """Have it hold what it held; a second time does no harm."""
        for name in self._now().keys() - self._held.keys() if self._is_own else ():
            del self._table[name]
        self._table.update(self._held)
        self._inner.put_back()


def _computed_once(kind: type) -> set[str]:
    """The attributes that objects of a class compute when they are first read."""
    members = [item for base in kind.__mro__ for item in vars(base).items()]
    return {name for name, value in members if isinstance(value, functools.cached_property)}


class ModulesBefore:
    """What was in `sys.modules`; what an import brings does not count."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held = sys.modules.copy()

    def _changed(self) -> list[str]:
        return [
            name
            for name, module in sys.modules.copy().items()
            if self._held.get(name) is not module and getattr(getattr(module, "__spec__", None), "name", None) != name
        ]

    def is_changed(self, but: Collection[int] = ()) -> bool:
        """Tell whether a module was put there by hand."""
        return bool(self._changed())

    def put_back(self) -> None:
        """Take it out again; a second time does no harm."""
        for name in self._changed():
            del sys.modules[name]
            sys.modules.update({name: self._held[name]} if name in self._held else {})


_CONTAINERS = (list, dict, set, collections.deque)


class ShownBefore:
    """What an object of Python's library in C showed of what it holds: its text or bytes, or how it would be copied.

    >>> import io
    >>> text = io.StringIO()
    >>> before = ShownBefore(text)
    >>> _ = text.write("a")
    >>> before.is_changed(), before.put_back(), text.getvalue(), before.is_changed()
    (True, None, '', False)
    """

    __slots__ = ("_shown", "_value")

    def __init__(self, value: Any) -> None:
        self._value, self._shown = value, shown(value)

    def is_changed(self, but: Collection[int] = ()) -> bool:
        """Tell whether it shows something else now."""
        return shown(self._value) != self._shown

    def put_back(self) -> None:
        """Have it hold what it held, where that can be done; a second time does no harm."""
        if type(self._value) in _TEXTS and self._shown is not None and self.is_changed():
            held, position = self._shown
            self._value.seek(0)
            self._value.truncate()
            self._value.write(held)
            self._value.seek(position)


def shown(value: Any) -> tuple[Any, ...] | None:
    """What shows whether an object in C has changed, None where nothing does."""
    try:
        for name in _SHOWS:
            if hasattr(value, name):
                return getattr(value, name)(), value.tell() if hasattr(value, "tell") else None
        return (pickle.dumps(value),)
    except Exception:  # of whatever class: it is closed, cannot be copied, or tells no position
        return None


def may_show(value: Any) -> bool:
    """Tell whether an object is one in C that is no value, and no container that is known.

    >>> import io
    >>> may_show(io.StringIO()), may_show([]), may_show(1)
    (True, False, False)
    """
    kind: Any = type(value)
    return _may_show(kind) and not any(value is told for told in (sys.stdout, sys.stderr, sys.stdin))


@functools.lru_cache(4096)
def _may_show(kind: type) -> bool:
    if kind.__module__.partition(".")[0] not in _LIBRARY or issubclass(kind, _SHOWN_OTHERWISE):
        return kind is memoryview
    return not any(type(held) is FunctionType for held in vars(kind).values())


_LIBRARY = sys.stdlib_module_names - {"builtins", "itertools"}
_SHOWN_OTHERWISE = (
    bool, int, float, complex, str, bytes, tuple, frozenset, type, Enum, ModuleType, FunctionType, BuiltinFunctionType,
    MethodType, functools.partial, list, dict, set, collections.deque, bytearray, array.array, SimpleNamespace,
    threading.local,
)  # fmt: skip
_SHOWS = ("getvalue", "tobytes", "hexdigest", "locked", "getstate", "tell")
_TEXTS = (io.StringIO, io.BytesIO)
