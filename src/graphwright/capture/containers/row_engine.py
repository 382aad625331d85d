"""What a method of a container of the run does, carried out from its row of the tables in `methods.py`.

`values.pop(i)` of a list finds `"pop": Takes(ITEM, INDEX, optional=1, default=-1)` there, and so is

    values._may_raise()                                            # a program that catches the error is refused
    node = recorder.node("call_method", "pop", (values, i), {})    # where the program calls it
    item = values._part(ITEM, ...)                                 # the value of that node, of the kind of all items
    list.pop(values, i)                                            # of the example, if it comes here and knows `i`
    return item

What is known of the content decides how each of these steps is done: that is what the subclasses say.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from graphwright.capture.containers.methods import ITEM, ITEMS, KEY, SAME, Given, Part, Row, Table, arguments_of
from graphwright.capture.proxies.constructors import lasting
from graphwright.capture.proxies.growing import Growing
from graphwright.capture.proxies.run_keys import example_of_key
from graphwright.capture.state.symbols import UNKNOWN
from graphwright.ir import Node

_C = TypeVar("_C", bound=type)


class Container(Growing):
    """What all lists, tuples, dicts, sets and deques share of which only a run knows the content."""

    # What each mode and each class of containers does in its own way:
    _admit_given: Callable[[Given], None]  # note of what kinds that is which goes in
    _part: Callable[[Row, Given, Node], Any]  # the item, key or both that a node gives
    _same: Callable[[Given, Node], Any]  # another one with such items, which a node gives
    _list_of: Callable[[Part, Node, bool], Any]  # a list of one part of all that is in it
    _change: Callable[[str, Row, Given], None]  # do the same to what it holds for the example

    def _do(self, method: str, row: Row, args: tuple[Any, ...]) -> Any:
        """Carry out a row for a call with these arguments."""
        if row.each and not isinstance(args[0], Container):
            for item in [*args[0]]:
                getattr(self, row.each)(item)
            return None
        if row.slices is not None and isinstance(args[0], slice):
            row = row.slices
        if row.owner is not None and self.stands_for() is not row.owner:
            self._refuse()
        given = arguments_of(row, method, args)
        if row.may_raise:
            self._may_raise()
        self._admit_given(given)
        node = self._row_node(method, row, given)
        if row.changes and row.keeps:
            self._change(method, row, given)
        value = self._given(row, given, node)
        if row.changes and not row.keeps:
            self._change(method, row, given)
        return value

    def _may_raise(self) -> None:
        """Refuse, where the program catches what a call may raise and only a run knows whether it does."""

    def _written(self, value: Any) -> Any:
        """The argument of a node for an item, or the key of one."""
        return lasting(self.recorder, value)

    def _row_node(self, method: str, row: Row, given: Given) -> Node:
        recorder, owner = self.recorder, self._read()
        puts = (ITEM, ITEMS, KEY) if ITEM in row.takes else (ITEM, ITEMS)
        arguments = [self._written(arg) if part in puts else recorder.argument(arg) for part, arg in given]
        op, called = ("call_method", method) if row.calls is None else ("call_function", row.calls.__name__)
        part, name = (called, "") if row.is_part else ("", recorder.target_name() or called)
        return recorder.node(op, row.calls or method, (owner, *arguments), {}, part, name)

    def _given(self, row: Row, given: Given, node: Node) -> Any:
        """The value of the program that a row gives."""
        if row.gives is None:
            return None
        if row.gives is SAME:
            return self._same(given, node)
        if isinstance(row.gives, type):
            return self.recorder.numbers.of_node(node, UNKNOWN, row.gives)
        return self._list_of(row.gives, node, row.is_hidden) if row.lists else self._part(row, given, node)


def with_methods(table: Table, *plain: type) -> Callable[[_C], _C]:
    """Give a class the methods of a table; what plain classes have beyond these, and itself does not, is refused."""

    def fill(cls: _C) -> _C:
        for name, row in table.items():
            if name not in vars(cls):
                setattr(cls, name, _method(name, row))
        for name in {name for kind in plain for name in dir(kind) if callable(getattr(kind, name))} - _OF_ALL:
            owner = next((base for base in cls.__mro__ if name in vars(base)), object)
            if not issubclass(owner, Growing):
                setattr(cls, name, Growing._refuse)
        cls.__hash__ = None  # type: ignore[assignment]
        return cls

    return fill


# What all objects have, but for their order; a class is asked by `[]` for its form with types.
_OF_ALL = {*dir(object), "__class_getitem__"} - {"__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"}


def _method(name: str, row: Row) -> Callable[..., Any]:
    def method(self: Container, *args: Any, **named: Any) -> Any:
        if named:  # by the names that the class itself has for them
            args = inspect.signature(getattr(self.stands_for(), name)).bind(self, *args, **named).args[1:]
        return self._asked(lambda: self._do(name, row, args)) if name == "__getitem__" else self._do(name, row, args)

    method.__name__ = name
    return method


class Shown:
    """A value of the program that is compared as what it is for the example: LookupError where that does not tell."""

    __slots__ = ("_example", "value")

    def __init__(self, value: Any, example: Any) -> None:
        self.value, self._example = value, example

    def known(self) -> Any:
        """What it is for the example."""
        if self._example is UNKNOWN:
            raise LookupError
        return self._example

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Shown) and bool(self.known() == other.known())

    def __lt__(self, other: Shown) -> bool:
        return bool(self.known() < other.known())

    def __hash__(self) -> int:
        return hash(self.known())


def shown_key(key: Hashable) -> Shown:
    """A key, compared as numbers and texts are."""
    example = example_of_key(key)
    return Shown(key, example if _is_plain(example) else UNKNOWN)


def _is_plain(key: Hashable) -> bool:
    return all(map(_is_plain, key)) if type(key) is tuple else type(key) in _PLAIN


_PLAIN = (int, float, bool, str, bytes, type(None))
