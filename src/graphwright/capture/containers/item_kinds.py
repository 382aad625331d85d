"""What kind of items a list or tuple holds whose length only a run knows: all of one kind, whatever their number.

A kind is a `Sample` of a tensor, number or text, `Same` for what is the same in each item, `Parts` for a tuple or list
of so many kinds, or a dict with these keys, `Many` for one of any length, and `Table` for a dict or set of any keys.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from graphwright.capture.proxies.growing import is_growing
from graphwright.capture.proxies.texts import RunText
from graphwright.capture.state.samples import Sample, Unlike
from graphwright.capture.state.symbols import UNKNOWN
from graphwright.values import is_named_tuple

if TYPE_CHECKING:
    from graphwright.capture.state.parts import Joining

__all__ = ["DICTS", "Many", "Parts", "Same", "Table", "joined_kinds", "kind_of_item", "kind_of_table", "seen"]

DICTS: tuple[type, ...] = (dict, collections.OrderedDict, collections.defaultdict, collections.Counter)


@dataclasses.dataclass(frozen=True, eq=False)
class Same:
    """Text or None, the same in each item."""

    value: Any


@dataclasses.dataclass(frozen=True, eq=False)
class Parts:
    """A tuple or list of so many items, each of its kind, or a dict with these keys; `loose` are those it may lack."""

    kind: type
    parts: tuple[Any, ...]
    keys: tuple[Any, ...] = ()
    loose: frozenset[Any] = frozenset()


@dataclasses.dataclass(frozen=True, eq=False)
class Many:
    """A tuple, list or deque of any length, whose items are of one kind; `item` is None as long as none was seen."""

    kind: type
    item: Any
    content: tuple[Any, ...] = ()  # of one, for the example
    is_certain: bool = False  # whether the example has that
    give_up: Callable[[], Any] | None = None  # has the next pass take it for one as long as the example's


@dataclasses.dataclass(frozen=True, eq=False)
class Table:
    """A dict or set of this class with any keys, of one kind, and values of another; None as long as none was seen.

    `factory` makes what a `defaultdict` has for a key that it does not have yet.
    """

    kind: type
    key: Any = None
    item: Any = None
    factory: Any = None
    give_up: Callable[[], Any] | None = None


def kind_of_table(joining: Joining, value: Any, name: str) -> Table:
    """The kind of a dict or set of the program, as one that may have any keys. Raises Unlike."""
    kind, factory = type(value), getattr(value, "default_factory", None)
    if factory is not None and factory not in _FACTORIES:
        raise Unlike(f"{name or 'a defaultdict'} makes its values with a function of the program")
    start = 0 if kind is collections.Counter else None if factory is None else factory()
    made = Table(kind, None, None if start is None else kind_of_item(joining, start, name), factory)
    for key in value:
        item = None if kind is set else kind_of_item(joining, value[key], name)
        made = joined_kinds(joining, made, Table(kind, kind_of_item(joining, key, name), item, factory), name)
    return made


_FACTORIES: tuple[Any, ...] = (list, int, float, bool, dict, set, collections.deque, collections.Counter)


def kind_of_item(joining: Joining, value: Any, name: str) -> Any:
    """The kind of a value. Raises Unlike for what a list of a run cannot hold."""
    if is_growing(value) and value.is_local:
        return value.as_item()
    if type(value) is RunText:
        return Sample(kind=str, hint=value.hint)
    if isinstance(value, torch.Tensor) or joining.is_open(value) or type(value) in (int, float, bool):
        return joining.sample(value, value)
    if type(value) is collections.deque or (type(value) is list and (not value or joining.items_grow())):
        made: Any = Many(type(value), None)
        for item in value:
            made = joined_kinds(joining, made, Many(type(value), kind_of_item(joining, item, name)), name)
        return dataclasses.replace(made, content=tuple(value), is_certain=True)
    if type(value) in (tuple, list, torch.Size) or is_named_tuple(type(value)):
        return Parts(type(value), tuple([kind_of_item(joining, item, name) for item in value]))
    if type(value) is set or type(value) in DICTS[1:] or (type(value) is dict and not value):
        return kind_of_table(joining, value, name)
    if type(value) is dict and joining.items_grow():
        with contextlib.suppress(Unlike):
            return kind_of_table(joining, value, name)
    if type(value) is dict:
        return Parts(dict, tuple([kind_of_item(joining, item, name) for item in value.values()]), tuple(value))
    if isinstance(value, str | type(None)):
        return Same(value)
    raise Unlike(f"{name or 'a list'} gets items of class {type(value).__name__}")


def joined_kinds(joining: Joining, one: Any, other: Any, name: str) -> Any:
    """The kind of what is of one kind or of another: the first one, if that is it. Raises Unlike."""
    if one is other or other is None:
        return one
    if one is None:
        return other
    if isinstance(one, Sample) and isinstance(other, Sample) and (one.kind is str) is (other.kind is str):
        return one if one.kind is str else joining.merged(one, other)
    if isinstance(one, Same) and isinstance(other, Same) and one.value == other.value:
        return one
    if _is_text(one) and _is_text(other):
        return one if isinstance(one, Sample) else Sample(kind=str, hint=UNKNOWN)
    for mine, its in ((one, other), (other, one)):
        if isinstance(mine, Sample) and mine.example is not None and isinstance(its, Same) and its.value is None:
            return mine if mine is one and mine.may_be_none else dataclasses.replace(mine, may_be_none=True)
    both_dicts = isinstance(one, Parts) and isinstance(other, Parts) and one.kind is other.kind is dict
    if both_dicts and (one.loose or other.loose):
        return _with_keys_of_both(joining, one, other, name)
    if isinstance(one, Table | Parts) and isinstance(other, Table | Parts) and one.kind is other.kind is not tuple:
        same_keys = isinstance(one, Parts) and isinstance(other, Parts) and one.keys == other.keys
        tables = [] if same_keys else [_as_table(joining, kind, name) for kind in (one, other)]
        if tables and None not in tables and tables[0].factory is tables[1].factory:
            mine, its = tables
            key, item = joined_kinds(joining, mine.key, its.key, name), joined_kinds(joining, mine.item, its.item, name)
            if isinstance(one, Table) and key is one.key and item is one.item:
                return one
            return Table(mine.kind, key, item, mine.factory, mine.give_up or its.give_up)
    if isinstance(one, Parts | Many) and isinstance(other, Parts | Many) and one.kind is other.kind:
        if isinstance(one, Parts) and isinstance(other, Parts) and _places(one) == _places(other):
            pairs = zip(one.parts, other.parts, strict=True)
            parts = tuple([joined_kinds(joining, mine, its, name) for mine, its in pairs])
            return (
                one if all(a is b for a, b in zip(parts, one.parts, strict=True)) else Parts(one.kind, parts, one.keys)
            )
        if one.kind in (tuple, list, collections.deque):
            item = one.item if isinstance(one, Many) else None
            for part in [*_items(one), *_items(other)]:
                item = joined_kinds(joining, item, part, name)
            return (
                one if isinstance(one, Many) and item is one.item else Many(one.kind, item, give_up=_giver(one, other))
            )
    can_differ = [
        isinstance(kind, Sample) or (isinstance(kind, Same) and kind.value is not None) for kind in (one, other)
    ]
    if all(can_differ) and joining.is_untyped:
        return Sample()
    raise Unlike(f"{name or 'a list'} gets items of different kinds")


def _is_value(kind: Any) -> bool:
    return isinstance(kind, Sample) or (isinstance(kind, Same) and kind.value is not None)


def _is_text(kind: Any) -> bool:
    return isinstance(kind.value, str) if isinstance(kind, Same) else isinstance(kind, Sample) and kind.kind is str


def _with_keys_of_both(joining: Joining, one: Parts, other: Parts, name: str) -> Parts:
    """The kind of a dict that has the keys of one or of another."""
    mine, its = (dict(zip(parts.keys, parts.parts, strict=True)) for parts in (one, other))
    kinds = {key: joined_kinds(joining, mine.get(key), its.get(key), name) for key in {**mine, **its}}
    made = Parts(dict, tuple(kinds.values()), tuple(kinds), one.loose | other.loose | (mine.keys() ^ its.keys()))
    is_one = made.loose == one.loose and all(kind is mine[key] for key, kind in kinds.items())
    return one if is_one else made


def _as_table(joining: Joining, kind: Table | Parts, name: str) -> Any:
    """A kind of dict as one of any keys; None for what is no dict."""
    if isinstance(kind, Table) or kind.kind is not dict:
        return kind if isinstance(kind, Table) else None
    key = item = None
    for its, part in zip(kind.keys, kind.parts, strict=True):
        key = joined_kinds(joining, key, kind_of_item(joining, its, name), name)
        item = joined_kinds(joining, item, part, name)
    return Table(dict, key, item)


def _giver(one: Parts | Many, other: Parts | Many) -> Callable[[], Any] | None:
    return next((kind.give_up for kind in (one, other) if isinstance(kind, Many)), None)


def _items(kind: Parts | Many) -> tuple[Any, ...]:
    return kind.parts if isinstance(kind, Parts) else (kind.item,)


def seen(joining: Joining, kind: Any, value: Any) -> Any:
    """A kind of item, with the sizes and numbers of one."""
    if value is None:
        return kind
    if isinstance(kind, Sample):
        own = joining.sample(value, value)
        return dataclasses.replace(kind, example=own.example, hint=own.hint) if kind.kind is own.kind else kind
    if isinstance(kind, Many):
        is_certain = value.is_certain if is_growing(value) else True
        return Many(kind.kind, kind.item, tuple(_content(value)), is_certain, kind.give_up)
    if isinstance(kind, Parts):
        if kind.kind is dict:
            held = {key: dict.__getitem__(value, key) for key in dict.keys(value)}
            pairs: Any = [(part, held.get(key)) for key, part in zip(kind.keys, kind.parts, strict=True)]
        else:
            pairs = zip(kind.parts, _content(value), strict=True)
        return dataclasses.replace(kind, parts=tuple([seen(joining, part, item) for part, item in pairs]))
    return kind


def _places(parts: Parts) -> Any:
    return parts.keys or len(parts.parts)


def _content(value: Any) -> Any:
    if is_growing(value):
        return value.content()
    return list(value.values()) if isinstance(value, dict) else value
