"""What the containers and objects in a value of the user's held at one moment, to compare with and to put back."""

from __future__ import annotations

import collections
import threading
from collections.abc import Collection, Iterator
from typing import Any

from torch import nn

from graphwright.capture.proxies.contents import changeable, content, holds_bytes, is_unchanged, refill
from graphwright.capture.proxies.growing import is_growing
from graphwright.runtime import state_of
from graphwright.source import is_foreign_class

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


class AttributesBefore:
    """What an object of an installed package had in its public attributes; those that it got later do not count."""

    __slots__ = ("_held", "_inner", "_table")

    def __init__(self, value: Any) -> None:
        self._table = state_of(value)
        is_own = isinstance(value, threading.local)
        self._held = {name: held for name, held in self._table.items() if is_own or not name.startswith("_")}
        self._inner = ContentsBefore([held for held in self._held.values() if type(held) in _CONTAINERS])

    def __bool__(self) -> bool:
        return bool(self._held)

    def is_changed(self, but: Collection[int] = ()) -> bool:
        """Tell whether it has something else in one of them now."""
        return self._inner.is_changed(but) or any(self._table.get(name) is not it for name, it in self._held.items())

    def put_back(self) -> None:
        """Have it hold what it held; a second time does no harm."""
        self._table.update(self._held)
        self._inner.put_back()


_CONTAINERS = (list, dict, set, collections.deque)
