"""What kind of items a list or tuple holds whose length only a run knows: all of one kind, whatever their number.

A kind is a `Sample` of a tensor or number, `Same` for what is the same in each item, `Parts` for a tuple or list of so
many kinds, or a dict with these keys, and `Many` for one of any length.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from graphwright.capture.growing import is_growing
from graphwright.capture.joining import Sample, Unlike

if TYPE_CHECKING:
    from graphwright.capture.joining import Joining

__all__ = ["Many", "Parts", "Same", "joined_kinds", "kind_of_item", "seen"]


@dataclasses.dataclass(frozen=True, eq=False)
class Same:
    """Text or None, the same in each item."""

    value: Any


@dataclasses.dataclass(frozen=True, eq=False)
class Parts:
    """A tuple or list of so many items, each of its kind, or a dict with these keys."""

    kind: type
    parts: tuple[Any, ...]
    keys: tuple[Any, ...] = ()


@dataclasses.dataclass(frozen=True, eq=False)
class Many:
    """A tuple or list of any length, whose items are of one kind; `item` is None as long as none was seen."""

    kind: type
    item: Any
    content: tuple[Any, ...] = ()  # of one, for the example
    is_certain: bool = False  # whether the example has that
    give_up: Callable[[], Any] | None = None  # has the next pass take it for one as long as the example's


def kind_of_item(joining: Joining, value: Any, name: str) -> Any:
    """The kind of a value. Raises Unlike for what a list of a run cannot hold."""
    if is_growing(value) and value.is_local and value.base is None:
        return value.kind
    if is_growing(value) and value.is_local:
        return Many(value.base, value.kind, tuple(value.content()), value.is_certain, value._give_up)
    if isinstance(value, torch.Tensor) or joining.is_open(value) or type(value) in (int, float, bool):
        return joining.sample(value, value)
    if type(value) in (tuple, list, torch.Size) or hasattr(value, "_fields"):
        return Parts(type(value), tuple([kind_of_item(joining, item, name) for item in value]))
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
    if isinstance(one, Sample) and isinstance(other, Sample):
        return joining.merged(one, other)
    if isinstance(one, Same) and isinstance(other, Same) and one.value == other.value:
        return one
    if isinstance(one, Parts | Many) and isinstance(other, Parts | Many) and one.kind is other.kind:
        if isinstance(one, Parts) and isinstance(other, Parts) and _places(one) == _places(other):
            pairs = zip(one.parts, other.parts, strict=True)
            parts = tuple([joined_kinds(joining, mine, its, name) for mine, its in pairs])
            return (
                one if all(a is b for a, b in zip(parts, one.parts, strict=True)) else Parts(one.kind, parts, one.keys)
            )
        if one.kind in (tuple, list):
            item = one.item if isinstance(one, Many) else None
            for part in [*_items(one), *_items(other)]:
                item = joined_kinds(joining, item, part, name)
            return (
                one if isinstance(one, Many) and item is one.item else Many(one.kind, item, give_up=_giver(one, other))
            )
    raise Unlike(f"{name or 'a list'} gets items of different kinds")


def _giver(one: Parts | Many, other: Parts | Many) -> Callable[[], Any] | None:
    return next((kind.give_up for kind in (one, other) if isinstance(kind, Many)), None)


def _items(kind: Parts | Many) -> tuple[Any, ...]:
    return kind.parts if isinstance(kind, Parts) else (kind.item,)


def seen(joining: Joining, kind: Any, value: Any) -> Any:
    """A kind of item, with the sizes and numbers of one."""
    if isinstance(kind, Sample):
        own = joining.sample(value, value)
        return dataclasses.replace(kind, example=own.example, hint=own.hint) if kind.kind is own.kind else kind
    if isinstance(kind, Many):
        is_certain = value.is_certain if is_growing(value) else True
        return Many(kind.kind, kind.item, tuple(_content(value)), is_certain, kind.give_up)
    if isinstance(kind, Parts):
        pairs = zip(kind.parts, _content(value), strict=True)
        return Parts(kind.kind, tuple([seen(joining, part, item) for part, item in pairs]), kind.keys)
    return kind


def _places(parts: Parts) -> Any:
    return parts.keys or len(parts.parts)


def _content(value: Any) -> Any:
    if is_growing(value):
        return value.content()
    return list(value.values()) if isinstance(value, dict) else value
