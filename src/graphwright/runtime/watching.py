"""Whether tables were written to since they were looked at: of each dict, Python counts the writes.

What holds of some dicts holds until one of them is written to. To compare one number for each is several times as fast
as to look at what they hold.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch

_FORWARD, _IS = operator.attrgetter("forward"), operator.is_
_PATIENCE = 32  # looks one after the other


class Watched(NamedTuple):
    """What a check has looked at, and what may become another without a write to its tables.

    tables: the dicts that it has read. idle: dicts that are to be empty. modules: modules and objects whose classes are
    to be `kinds`; classes: classes whose `forward` is to be that of `forwards`; lacking: classes, and an attribute that
    each is not to have; attributes: owners, names, and the very values that are to be there.
    """

    tables: Sequence[dict[Any, Any]] = ()
    idle: Sequence[dict[Any, Any]] = ()
    modules: Sequence[Any] = ()
    kinds: Sequence[type] = ()
    classes: Sequence[type] = ()
    forwards: Sequence[Any] = ()
    lacking: Sequence[tuple[type, str]] = ()
    attributes: tuple[Sequence[Any], Sequence[str], Sequence[Any]] = ((), (), ())


class Watch:
    """Whether all that some checks have looked at is as it was when they held.

    `look` comes before such a check, and what it gives is kept with `keep` where the check held. Where it is asked time
    after time, as for a program that writes to a table in each call, it gives None most of the time, and costs nothing.

    >>> module = torch.nn.ReLU()
    >>> watch = Watch([Watched(tables=[module.__dict__], idle=[module._forward_hooks])])
    >>> watch.keep(watch.look())
    >>> watch.holds() or watch.versions is None  # not known of Pythons that do not count all writes
    True
    >>> module.inplace = True
    >>> watch.holds()
    False
    """

    __slots__ = (
        "_classes",
        "_empty",
        "_forwards",
        "_idle",
        "_is_versioned",
        "_kinds",
        "_lacking",
        "_looks",
        "_modules",
        "_names",
        "_owners",
        "_tables",
        "_values",
        "versions",
    )

    def __init__(self, parts: Iterable[Watched]) -> None:
        parts = list(parts)
        self._tables = _distinct(table for part in parts for table in part.tables)
        self._idle = _distinct(table for part in parts for table in part.idle)
        kinds = {id(module): each for part in parts for module, each in zip(part.modules, part.kinds, strict=True)}
        self._modules = _distinct(module for part in parts for module in part.modules)
        self._kinds = [kinds[id(module)] for module in self._modules]
        forwards = {each: known for part in parts for each, known in zip(part.classes, part.forwards, strict=True)}
        self._classes, self._forwards = list(forwards), list(forwards.values())
        lacking = dict.fromkeys(pair for part in parts for pair in part.lacking)
        self._lacking = tuple(map(list, zip(*lacking, strict=True)))  # classes and names
        self._is_versioned = _found is not None and all(isinstance(table, dict) for table in self._tables)
        rows = {(id(row[0]), row[1]): row for part in parts for row in zip(*part.attributes, strict=True)}
        self._owners, self._names, self._values = ([row[i] for row in rows.values()] for i in range(3))
        self._empty: list[dict[Any, Any]] = []  # tables that held nothing when they were looked at
        self._looks = 0  # since it held
        self.versions: list[int] | None = None  # what was kept

    def holds(self) -> bool:
        """Tell whether nothing has become another since `keep`; where that is not known, no."""
        if (  # what `_all_else_holds` asks, without a call
            self.versions is None
            or [*map(_version_of, self._tables)] != self.versions
            or any(self._idle)
            or any(self._empty)
            or [*map(type, self._modules)] != self._kinds
            or [*map(_FORWARD, self._classes)] != self._forwards
            or (self._lacking and any(map(hasattr, *self._lacking)))
            or not all(map(_IS, map(getattr, self._owners, self._names), self._values))
        ):
            return False
        if self._looks:
            self._looks = 0
        return True

    def written(self) -> tuple[list[dict[Any, Any]], list[int]] | None:
        """The tables that were written to since `keep`, and what to keep; None where that, or all else, is not known.

        >>> module = torch.nn.ReLU()
        >>> watch = Watch([Watched(tables=[module.__dict__, module._buffers])])
        >>> watch.keep(watch.look())
        >>> module.inplace = True
        >>> found = watch.written()
        >>> found is None or (len(found[0]) == 1 and found[0][0] is vars(module))
        True
        """
        if self.versions is None:
            return None
        versions = [*map(_version_of, self._tables)]
        pairs = zip(self._tables, versions, self.versions, strict=True)
        return ([table for table, now, then in pairs if now != then], versions) if self._all_else_holds() else None

    def _all_else_holds(self) -> bool:
        return not (
            any(self._idle)
            or any(self._empty)
            or [*map(type, self._modules)] != self._kinds
            or [*map(_FORWARD, self._classes)] != self._forwards
            or (self._lacking and any(map(hasattr, *self._lacking)))
            or not all(map(_IS, map(getattr, self._owners, self._names), self._values))
        )

    def includes(self, tables: Iterable[dict[Any, Any]]) -> bool:
        """Tell whether a write to any of these tables is noticed."""
        return {id(table) for table in tables} <= {id(table) for table in self._tables}

    def look(self) -> list[int] | None:
        """The versions of the tables, for `keep`; None where they are not known, or not worth to be."""
        self.versions = None
        self._looks += 1
        if not self._is_versioned or (self._looks > _PATIENCE and self._looks % _PATIENCE):
            return None
        self._empty = [table for table in self._tables if not table] if _MISSES_FIRST_UPDATE else []
        return [*map(_version_of, self._tables)]

    def keep(self, versions: list[int] | None) -> None:
        """Take note of the versions that the tables had before a check that held."""
        self.versions = versions


def _distinct(items: Iterable[Any]) -> list[Any]:
    return list({id(item): item for item in items}.values())


class _Owner:
    """An object whose attributes are written to: the first of them may be kept beside its dict, since Python 3.13."""

    first = 0


def _counts_writes(version_of: Callable[[Any], int]) -> bool:
    """Tell whether a function gives the versions of dicts, those of attributes among them."""
    table, owner = {"first": 1}, _Owner()
    owner.first = 1
    writes: list[tuple[dict[str, int], Callable[[], object]]] = [
        (table, lambda: table.update(a=1)), (table, lambda: table.update(a=2)), (table, lambda: table.pop("a")),
        (vars(owner), lambda: setattr(owner, "first", 2)), (vars(owner), lambda: delattr(owner, "first")),
    ]  # fmt: skip
    for held, write in writes:
        before = version_of(held)
        if version_of(held) != before or (write(), version_of(held) == before)[1]:
            return False
    return True


def _find_version_of() -> Callable[[Any], int] | None:
    """The function of torch that gives the version of a dict, where there is one."""
    found = getattr(getattr(getattr(torch._C, "_dynamo", None), "guards", None), "dict_version", None)
    return found if found is not None and _counts_writes(found) else None


def _misses_first_update(version_of: Callable[[Any], int]) -> bool:
    """Tell whether an update of a dict that holds nothing is not counted, as since Python 3.12."""
    table: dict[str, int] = {}
    before = version_of(table)
    table.update({"a": 1})
    return version_of(table) == before


_found = _find_version_of()
_version_of: Callable[[Any], int] = _found or (lambda table: 0)
_MISSES_FIRST_UPDATE = _misses_first_update(_version_of)
