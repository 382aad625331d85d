"""Kinds of values that a program keeps: what an attribute is before a call must go with what it is after one."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from graphwright.capture.state.symbols import symbol_of

__all__ = [
    "MIXED", "PLAIN", "ConstantKind", "Grows", "ItemsKind", "MissingOr", "Mixed", "NumberKind", "TensorKind", "is_kind",
    "is_same", "joined_kind",
]  # fmt: skip


@dataclasses.dataclass(frozen=True)
class TensorKind:
    """A tensor, like an example; `may_be_none` where some calls start with None."""

    example: torch.Tensor
    may_be_none: bool = False

    def goes_with(self, other: TensorKind) -> bool:
        a, b = self.example, other.example
        return (a.dtype, a.dim(), a.device, a.layout) == (b.dtype, b.dim(), b.device, b.layout)


@dataclasses.dataclass(frozen=True)
class NumberKind:
    kind: type
    value: Any


@dataclasses.dataclass(frozen=True)
class ItemsKind:
    """A tuple, list or dict, by its keys."""

    kind: type
    items: dict[Any, Any]


@dataclasses.dataclass(frozen=True)
class ConstantKind:
    """A value that is the same in each call."""

    value: Any


@dataclasses.dataclass(frozen=True)
class MissingOr:
    """None in some calls, and something else that is no tensor in others."""

    kind: Any


@dataclasses.dataclass(frozen=True)
class Grows:
    """A dict or list to which the program adds: the kinds of its values by key, of a list under None."""

    kind: type
    items: dict[Any, Any]
    is_assumed: bool = False  # because it holds tensors, as a cache does; not because a pass has shown it


class Plain:
    """A dict that was assumed to grow, and which the program uses as one that does not."""


PLAIN = Plain()


class Mixed:
    """What is of one kind before the call and of another after it: nothing may read it before it is written."""


MIXED = Mixed()


def joined_kind(a: Any, b: Any) -> Any:
    """The kind of an attribute that is of one kind in some calls and of another in others."""
    if isinstance(a, TensorKind) and isinstance(b, TensorKind):
        may_be_none = a.may_be_none or b.may_be_none
        return dataclasses.replace(a, may_be_none=may_be_none) if a.goes_with(b) else MIXED
    for one, other in ((a, b), (b, a)):
        if isinstance(one, ConstantKind) and one.value is None:
            if isinstance(other, TensorKind):
                return dataclasses.replace(other, may_be_none=True)
            if isinstance(other, NumberKind | ItemsKind):
                return MissingOr(other)
        if isinstance(one, MissingOr):
            rest = other.kind if isinstance(other, MissingOr) else other
            if isinstance(rest, ConstantKind) and rest.value is None:
                return one
            kind = joined_kind(one.kind, rest)
            return MIXED if kind is MIXED else MissingOr(kind)
    if isinstance(a, NumberKind) and isinstance(b, NumberKind):
        if {a.kind, b.kind} == {int, float}:
            return NumberKind(float, float(a.value))
        return a if a.kind is b.kind else MIXED
    if isinstance(a, ItemsKind) and isinstance(b, ItemsKind) and a.kind is b.kind and list(a.items) == list(b.items):
        items = {key: joined_kind(a.items[key], b.items[key]) for key in a.items}
        return ItemsKind(a.kind, items)
    if isinstance(a, Grows) and isinstance(b, Grows) and a.kind is b.kind:
        items = {**b.items, **{key: joined_kind(kind, b.items.get(key, kind)) for key, kind in a.items.items()}}
        return Grows(a.kind, items)
    if isinstance(a, ConstantKind) and isinstance(b, ConstantKind) and is_same(a.value, b.value):
        return a
    return MIXED


def is_same(a: Any, b: Any) -> bool:
    """Tell whether a value is what it was."""
    if a is b:
        return True
    known, now = symbol_of(a), symbol_of(b)
    if known is not None or now is not None:
        return known is not None and now is not None and known.key == now.key
    if type(a) is not type(b) or isinstance(a, torch.Tensor):
        return False
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(is_same, a, b))
    return isinstance(a, int | float | str | bytes | complex | torch.dtype | torch.device) and bool(a == b)


def is_kind(known: Any, kind: Any) -> bool:
    """Tell whether two kinds are the same, whatever their examples are."""
    if type(known) is not type(kind):
        return False
    if isinstance(known, TensorKind):
        return known.may_be_none == kind.may_be_none and known.goes_with(kind)
    if isinstance(known, NumberKind):
        return known.kind is kind.kind
    if isinstance(known, ItemsKind):
        return all(is_kind(known.items[key], kind.items[key]) for key in known.items)
    return is_kind(known.kind, kind.kind) if isinstance(known, MissingOr) else True
