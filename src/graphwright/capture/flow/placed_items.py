"""What iterators of Python's own go over, item by item: looked up by place, so that no side of a branch moves them.

A loop that has an iterator alone, as `for i, layer in enumerate(layers)`, may end on one side of a branch and go on on
the other. Whoever asked the iterator would find that one side has moved it; there is nobody.
"""

from __future__ import annotations

import gc
import operator
import sys
from collections.abc import Callable, Iterator
from typing import Any

_SEQUENCES: Any = (list, tuple, range)


class Placed:
    """Items that are looked up when they are wanted, as an iterator would: a list may have got longer until then."""

    def __init__(self, count: Callable[[], int], item: Callable[[int], Any]) -> None:
        self._count, self._item = count, item

    def __len__(self) -> int:
        return self._count()

    def __getitem__(self, place: int) -> Any:
        if place >= len(self):
            raise IndexError(place)
        return self._item(place)


def placed(iterator: Iterator[Any]) -> Placed | None:
    """The items that an iterator still has to give; None for one of which they are not known without moving it.

    >>> items = placed(enumerate(zip("ab", [1, 2, 3])))
    >>> items is None, [*placed(enumerate(zip(("a", "b"), [1, 2, 3])))]
    (True, [(0, ('a', 1)), (1, ('b', 2))])
    >>> row = iter([1, 2])
    >>> placed(enumerate(row)) is None  # others have it, too
    True
    """
    kind = type(iterator)
    if kind in _MADE and _count(iterator) > _count(_MADE[kind]()):
        return None  # others have what it goes over
    if kind is enumerate:
        inner, first = _inner(iterator)
        return _numbered(placed(inner), first)
    if kind is zip:
        found = [placed(each) for each in _inner(iterator)]
        known = [each for each in found if each is not None]
        is_strict = len(iterator.__reduce__()) > 2
        return None if is_strict or len(known) < len(found) else _side_by_side(known)
    if kind in _OF_DICTS:
        return _of_dict(iterator)
    return _of_sequence(iterator) if kind in _OF_SEQUENCES else None


def _inner(iterator: Iterator[Any]) -> Any:
    return iterator.__reduce__()[1]


def _count(iterator: Iterator[Any]) -> int:
    """How many references there are to an iterator that another one goes over: the most of all."""
    inner = _inner(iterator)
    return max([sys.getrefcount(each) for each in (inner[:1] if type(iterator) is enumerate else inner)], default=0)


def _numbered(items: Placed | None, first: int) -> Placed | None:
    return None if items is None else Placed(items.__len__, lambda place: (first + place, items[place]))


def _side_by_side(rows: list[Placed]) -> Placed:
    return Placed(lambda: min(map(len, rows), default=0), lambda place: tuple([row[place] for row in rows]))


def _of_sequence(iterator: Iterator[Any]) -> Placed | None:
    told: Any = iterator.__reduce__()
    values, first = told[1][0], (told[2] or 0) if len(told) > 2 else 0
    if type(values) not in _SEQUENCES:
        return None
    return Placed(lambda: len(values) - first, lambda place: values[first + place])


def _of_dict(iterator: Iterator[Any]) -> Placed | None:
    """By the keys that are there, with the values that there will be; Python lets none be added or go meanwhile."""
    table = next((each for each in gc.get_referents(iterator) if isinstance(each, dict)), None)
    if table is None:  # it is at its end
        return None
    size, count, give = dict.__len__(table), operator.length_hint(iterator), _OF_DICTS[type(iterator)]
    keys = [*dict.keys(table)][size - count :]

    def item(place: int) -> Any:
        if dict.__len__(table) != size or not dict.__contains__(table, keys[place]):
            raise RuntimeError("dictionary changed size during iteration")
        return give(keys[place], dict.__getitem__(table, keys[place]))

    return Placed(lambda: count, item)


_OF_SEQUENCES = frozenset(map(type, map(iter, ([], (), range(0)))))
_OF_DICTS: dict[type, Callable[[Any, Any], Any]] = {
    type(iter({}.keys())): lambda key, value: key,
    type(iter({}.values())): lambda key, value: value,
    type(iter({}.items())): lambda key, value: (key, value),
}
# Iterators over what nothing else has: who listens to calls has references of his own, as long as he does.
_MADE: dict[Any, Callable[[], Iterator[Any]]] = {
    enumerate: lambda: enumerate(iter(())),
    zip: lambda: zip(iter(()), strict=False),
}
