"""What kind of items a list or tuple holds whose length only a run knows: all of one kind, whatever their number.

Their kinds are those of `graphwright.values`: of a tensor, a number or text, a constant where each item is the same, a
record for a tuple or list of so many kinds or a dict with these keys, and sequences and mappings of any length or keys.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any, TypeVar, overload

import torch

from graphwright.capture.proxies.contents import DICTS
from graphwright.capture.proxies.growing import is_growing
from graphwright.capture.proxies.run_text import RunText
from graphwright.capture.state.samples import Unlike
from graphwright.values import (
    ConstantKind,
    Kind,
    MappingKind,
    NoJoin,
    NumberKind,
    OptionalKind,
    RecordKind,
    SequenceKind,
    TensorKind,
    TextKind,
    is_named_tuple,
    join,
    parts,
    with_example,
    without_none,
)

if TYPE_CHECKING:
    from graphwright.capture.state.parts import Joining


def kind_of_table(joining: Joining, value: Any, name: str) -> MappingKind:
    """The kind of a dict or set of the program, as one that may have any keys. Raises Unlike."""
    kind, factory = type(value), getattr(value, "default_factory", None)
    if factory is not None and factory not in FACTORIES:
        raise Unlike(f"{name or 'a defaultdict'} makes its values with a function of the program")
    start = 0 if kind is collections.Counter else None if factory is None else factory()
    made = MappingKind(None, None if start is None else kind_of_item(joining, start, name), kind, factory)
    for key in value:
        item = None if kind is set else kind_of_item(joining, value[key], name)
        made = joined_kinds(joining, made, MappingKind(kind_of_item(joining, key, name), item, kind, factory), name)
    return made


FACTORIES: tuple[Any, ...] = (list, int, float, bool, dict, set, collections.deque, collections.Counter)


def kind_of_item(joining: Joining, value: Any, name: str) -> Kind:
    """The kind of a value. Raises Unlike for what a list of a run cannot hold."""
    if is_growing(value) and value.is_local:
        held: Kind = value.as_item()
        return held
    if type(value) is RunText:
        return TextKind(value.hint)
    if isinstance(value, torch.Tensor) or joining.is_open(value) or type(value) in (int, float, bool):
        return joining.sample(value, value)
    if type(value) is collections.deque or (type(value) is list and (not value or joining.items_grow())):
        made = SequenceKind(None, type(value))
        for item in value:
            made = joined_kinds(joining, made, SequenceKind(kind_of_item(joining, item, name), type(value)), name)
        return dataclasses.replace(made, content=tuple(value), is_certain=True)
    if type(value) is set or type(value) in DICTS[1:] or (type(value) is dict and not value):
        return kind_of_table(joining, value, name)
    if type(value) is dict and joining.items_grow():
        with contextlib.suppress(Unlike):
            return kind_of_table(joining, value, name)
    if type(value) in (tuple, list, torch.Size, dict) or is_named_tuple(type(value)):
        return RecordKind(
            type(value), {key: kind_of_item(joining, item, name) for key, item in (parts(value) or {}).items()}
        )
    if isinstance(value, str | type(None)):
        return ConstantKind(value)
    raise Unlike(f"{name or 'a list'} gets items of class {type(value).__name__}")


_K = TypeVar("_K", bound=Kind)


@overload
def joined_kinds(joining: Joining, one: _K, other: _K, name: str) -> _K: ...
@overload
def joined_kinds(joining: Joining, one: Kind | None, other: Kind, name: str) -> Kind: ...
@overload
def joined_kinds(joining: Joining, one: Kind | None, other: Kind | None, name: str) -> Any: ...
def joined_kinds(joining: Joining, one: Kind | None, other: Kind | None, name: str) -> Any:
    """The kind of what is of one kind or of another: the first one, if that is it. Raises Unlike."""
    try:
        return join(one, other, joining.policy(name))
    except NoJoin as why:
        are_tensors = all(isinstance(without_none(kind), TensorKind) for kind in (why.one, why.other))
        raise Unlike(str(why) if are_tensors else f"{name or 'a list'} gets items of different kinds") from None


def seen(joining: Joining, kind: Kind, value: Any) -> Kind:
    """A kind of item, with the sizes and numbers of one."""
    if value is None:
        return kind
    if isinstance(kind, TensorKind | OptionalKind | NumberKind | TextKind):
        if isinstance(without_none(kind), TensorKind) and not isinstance(value, torch.Tensor):
            return joining.like(kind, value)
        return with_example(kind, joining.sample(value, value))
    if isinstance(kind, SequenceKind):
        is_certain = value.is_certain if is_growing(value) else True
        return dataclasses.replace(kind, content=tuple(_content(value)), is_certain=is_certain)
    if isinstance(kind, RecordKind):
        if kind.kind is dict:
            held = {key: dict.__getitem__(value, key) for key in dict.keys(value)}
        else:
            held = dict(zip(kind.keys, _content(value), strict=True))
        return dataclasses.replace(
            kind, items={key: seen(joining, part, held.get(key)) for key, part in kind.items.items()}
        )
    return kind


def _content(value: Any) -> Any:
    if is_growing(value):
        return value.content()
    return list(value.values()) if isinstance(value, dict) else value
