"""The join of two ways of a program: what is the same stays, and what differs has a slot for a value of the graph.

Both values are walked in parallel. Which leaves are the same, which get a slot and which cannot be joined at all is
told by a `Joiner`; what comes out is the value itself or a template of it, which is filled when the graph has given
what its slots stand for.
"""

from __future__ import annotations

import abc
import collections
import copy
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from graphwright.values.structure import is_named_tuple, is_record, parts, rebuild

Path = tuple[Any, ...]  # the keys that lead to what a value holds
INSIDE: Any = object()  # it depends on what the two values hold


class Unlike(Exception):
    """Two values cannot be joined: why not, and where in them."""

    def __init__(self, why: str, place: str = "") -> None:
        super().__init__(f"{place}: {why}" if place else why)
        self.why, self.place = why, place

    def of(self, name: str) -> Unlike:
        """The same, told of the variable that holds the values."""
        return Unlike(self.why, f"{name!r}{self.place}")

    def within(self, holder: Any, key: Any) -> Unlike:
        """The same, told of what holds the values under a key.

        >>> print(Unlike("int on one side, str on the other").within([0], 0).within({"a": [0]}, "a"))
        ['a'][0]: int on one side, str on the other
        """
        field = holder._fields[key] if is_named_tuple(type(holder)) else key if is_record(holder) else None
        return Unlike(self.why, f"[{key!r}]{self.place}" if field is None else f".{field}{self.place}")


# ---- templates


@dataclasses.dataclass(slots=True)
class Given:
    """What the graph gives for the slots, by number, and the containers that were made of it so far."""

    values: Sequence[Any]
    made: dict[Container, Any] = dataclasses.field(default_factory=dict)


class Template(abc.ABC):
    """A value of the program with slots in it."""

    __slots__ = ()

    @abc.abstractmethod
    def filled(self, given: Given) -> Any:
        """The value that it stands for."""


def filled(value: Any, given: Given) -> Any:
    """A joined value, with what the graph gives in its slots.

    >>> filled(Container([1, 2], {0: Slot(0), 1: 2}), Given(["first"]))
    ['first', 2]
    """
    return value.filled(given) if isinstance(value, Template) else value


@dataclasses.dataclass(eq=False, slots=True)
class Slot(Template):
    """The place of a value of the graph, by its number."""

    number: int

    def filled(self, given: Given) -> Any:
        """The value with this number."""
        return given.values[self.number]


@dataclasses.dataclass(eq=False, slots=True)
class Container(Template):
    """A container to make of joined items, once: like which one, and which objects it stands for, if any."""

    like: Any
    items: dict[Any, Any]
    of: tuple[Any, ...] = ()

    def filled(self, given: Given) -> Any:
        """The one container that is made of this template."""
        if self not in given.made:
            given.made[self] = self.made({key: filled(item, given) for key, item in self.items.items()})
        return given.made[self]

    def made(self, items: dict[Any, Any]) -> Any:
        """A container of such items."""
        like = self.like
        kind: Any = type(like)
        if kind is set:
            return set(items)
        if kind is collections.deque:
            return collections.deque(items.values(), like.maxlen)
        held = (parts(like) or {}) if self.of else {}
        if self.of and list(held) == list(items) and all(held[key] is item for key, item in items.items()):
            return copy.copy(like)  # past what its constructor does
        if parts(like) is None:  # a plain object, which has attributes
            made = kind.__new__(kind)
            vars(made).update(items)
            return made
        return rebuild(like, items)


# ---- the join


class Joiner(abc.ABC):
    """Says how two values become one; its `join` does it."""

    _around: tuple[tuple[int, int], ...] = ()  # the containers whose items are being joined, by id

    @abc.abstractmethod
    def leaf(self, one: Any, other: Any, path: Path) -> Any:
        """What two values become; INSIDE where that depends on what they hold. Raises Unlike."""

    @abc.abstractmethod
    def pairs(self, one: Any, other: Any, path: Path) -> Mapping[Any, tuple[Any, Any]]:
        """What two containers hold under each key. Raises Unlike where they are not alike."""

    @abc.abstractmethod
    def whole(self, one: Any, other: Any, items: dict[Any, Any], path: Path) -> Any:
        """What two containers become whose items have become these."""

    def inside(self, one: Any) -> Joiner:
        """How the items of a container are joined."""
        return self

    def join(self, one: Any, other: Any, path: Path = ()) -> Any:
        """Make one value of two. Raises Unlike, with the place of what cannot be joined.

        >>> class Numbers(OneWay):
        ...     def leaf(self, one, other, path):
        ...         return INSIDE if isinstance(one, list) else one if one == other else Slot(path[-1])
        ...
        ...     def whole(self, one, other, items, path):
        ...         return Container(one, items)
        >>> filled(Numbers().join([1, [2, 3]], [1, [2, 4]]), Given(["first", "second"]))
        [1, [2, 'second']]
        """
        found = self.leaf(one, other, path)
        return self.whole(one, other, self.items(one, other, path), path) if found is INSIDE else found

    def items(self, one: Any, other: Any, path: Path) -> dict[Any, Any]:
        """Join what two containers hold, item by item. Raises Unlike of what holds itself, too."""
        inner, items, pair = self.inside(one), {}, (id(one), id(other))
        around = inner._around
        if pair in around:
            raise Unlike(f"a {type(one).__name__} that holds itself")
        inner._around = (*around, pair)
        try:
            for key, (mine, its) in self.pairs(one, other, path).items():
                try:
                    items[key] = inner.join(mine, its, (*path, key))
                except Unlike as why:
                    raise why.within(one, key) from None
        finally:
            inner._around = around
        return items


class OneWay(Joiner):
    """A joiner of what one way leaves with what was there before it, which may be anything, or nothing."""

    nothing: Any = None

    def pairs(self, one: Any, other: Any, path: Path) -> Mapping[Any, tuple[Any, Any]]:
        """What the first container holds, each with what the other one has there."""
        its: Mapping[Any, Any] = (parts(other) or {}) if type(other) is type(one) else {}
        return {key: (part, its.get(key, self.nothing)) for key, part in (parts(one) or {}).items()}
