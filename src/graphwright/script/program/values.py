"""What an expression of a scripted program stands for while it is compiled.

Some of it is known only when the program runs (`Runtime`); constants, tuples, modules, functions and classes are known
now. Tuples are taken apart and put together without a node.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
from collections.abc import Callable
from typing import Any

from torch import nn

from graphwright.ir import Node
from graphwright.script.annotations import type_of_constant
from graphwright.script.types import ANY, DictType, IteratorType, ListType, ObjectType, TupleType, Type, join


class Value:
    """What an expression stands for."""

    @property
    def type(self) -> Type:
        """What is known of it."""
        return ANY


@dataclasses.dataclass(frozen=True, eq=False)
class Runtime(Value):
    """A value that the graph computes."""

    node: Node
    kind: Type

    @property
    def type(self) -> Type:
        return self.kind


@dataclasses.dataclass(frozen=True, eq=False)
class Const(Value):
    """A value that is known: a literal, or (`fixed`) what a module, global variable or type says."""

    value: Any
    kind: Type
    fixed: bool = False

    @property
    def type(self) -> Type:
        return self.kind


def constant(value: Any, fixed: bool = False) -> Const:
    """Make the value of something that is known."""
    return Const(value, type_of_constant(value), fixed)


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a module of the program holds something: the path of the module, and the way from there.

    >>> Place("encoder").attribute("scales").item(0).inner
    'scales.0'
    """

    path: str
    steps: tuple[tuple[str, Any], ...] = ()

    @property
    def inner(self) -> str:
        """The way, as what is taken for granted of modules names it."""
        return ".".join([str(name) for _, name in self.steps])

    def attribute(self, name: str) -> Place:
        """An attribute of what is here."""
        return Place(self.path, (*self.steps, ("attribute", name)))

    def part(self, name: str) -> Place:
        """A part of the partial function or method that is here."""
        return Place(self.path, (*self.steps, ("part", name)))

    def item(self, key: Any) -> Place | None:
        """An item of the container that is here; None where no text names it."""
        is_named = type(key) is int or (type(key) is str and "." not in key)
        return Place(self.path, (*self.steps, ("item", key))) if is_named else None


@dataclasses.dataclass(frozen=True, eq=False)
class Group(Value):
    """A tuple whose items are known one by one; `kind` is the class of a named tuple.

    `held` is the list from outside of the program of which these are the items.
    """

    items: tuple[Value, ...]
    kind: type | None = None
    held: Instance | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the items of a named tuple."""
        return () if self.kind is None else self.kind._fields  # type: ignore[attr-defined]

    @property
    def type(self) -> Type:
        if self.held is not None:
            return ListType(common_type(list(self.items)))
        return TupleType(tuple([item.type for item in self.items]), self.kind, self.names)


@dataclasses.dataclass(frozen=True, eq=False)
class Display(Value):
    """A list or dict as it is written, `[a, b]`, before anything holds it: keys and values, or None and items."""

    items: tuple[tuple[Value | None, Value], ...]
    is_dict: bool
    declared: Type | None = None

    @property
    def type(self) -> Type:
        if self.declared is not None:
            return self.declared
        values = common_type([value for _, value in self.items])
        return (
            DictType(common_type([key for key, _ in self.items if key]), values) if self.is_dict else ListType(values)
        )


def common_type(values: list[Value]) -> Type:
    """The type of each of several values; a hole where there is none, `Any` for a mixture."""
    if not values:
        return type_of_constant([]).item  # type: ignore[attr-defined, no-any-return]
    known: Type | None = values[0].type
    for value in values[1:]:
        known = None if known is None else join(known, value.type)
    return ANY if known is None else known


@dataclasses.dataclass(frozen=True, eq=False)
class ModuleRef(Value):
    """A module of the program, at its path."""

    module: nn.Module
    path: str

    @property
    def type(self) -> Type:
        return ObjectType(type(self.module))


@dataclasses.dataclass(frozen=True, eq=False)
class Instance(Value):
    """An object of Python that is known and is no plain data: what its attributes hold is known, too.

    `place` is where a module of the program holds it.
    """

    value: Any
    place: Place | None = None

    @property
    def type(self) -> Type:
        return ObjectType(type(self.value))


@dataclasses.dataclass(frozen=True, eq=False)
class Table(Value):
    """The attributes of an object: `value.__dict__`."""

    owner: Value


@dataclasses.dataclass(frozen=True, eq=False)
class Reference(Value):
    """A function, class or module of Python."""

    value: Any

    @property
    def type(self) -> Type:
        """What is known of it: what going over an enum gives."""
        is_enum = isinstance(self.value, enum.EnumMeta)
        return IteratorType(ObjectType(self.value)) if is_enum else ANY


@dataclasses.dataclass(frozen=True, eq=False)
class Bound(Value):
    """A method and what it is called on: a function of Python, or the name of a method."""

    owner: Value
    method: str | Callable[..., Any]


@dataclasses.dataclass(frozen=True, eq=False)
class Choice(Value):
    """One of several modules or methods, by a number that only a run knows."""

    number: Value
    items: tuple[Value, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Unbound(Value):
    """A variable that may have no value, and why."""

    why: str
    fix: str


class Bad(Value):
    """What stands for an expression that is wrong: nothing more is said about what is made of it."""


BAD = Bad()


def is_outside(value: Value) -> bool:
    """Tell whether a value is a list, dict or set that lives on after a call: a global, or the default of an input."""
    if isinstance(value, Runtime):
        node = value.node
        return node.op == "placeholder" and bool(node.args) and isinstance(node.args[0], _CHANGEABLE)
    return isinstance(value, Const) and value.fixed and isinstance(value.value, _CHANGEABLE)


_CHANGEABLE = (list, dict, set, collections.deque)
