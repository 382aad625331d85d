"""From annotations, and from plain values, to types."""

from __future__ import annotations

import collections
import collections.abc
import dataclasses
import inspect
import numbers
import types
import typing
from typing import Any, Union, get_args, get_origin

import torch
from torch import nn

from graphwright.script.types import (
    ANY,
    BOOL,
    COMPLEX,
    DEVICE,
    DTYPE,
    FLOAT,
    GENERATOR,
    INT,
    NONE,
    NUMBER,
    STR,
    TENSOR,
    DictType,
    Hole,
    IteratorType,
    ListType,
    ObjectType,
    SetType,
    TupleType,
    Type,
    join,
    optional,
)

_ATOMS: dict[Any, Type] = {
    torch.Tensor: TENSOR, nn.Parameter: TENSOR, int: INT, float: FLOAT, bool: BOOL, complex: COMPLEX, str: STR,
    None: NONE, type(None): NONE, torch.dtype: DTYPE, torch.device: DEVICE, torch.Generator: GENERATOR,
    numbers.Number: NUMBER, torch.types.Number: NUMBER, torch.Size: ListType(INT), Any: ANY, object: ANY,
    inspect.Parameter.empty: TENSOR, list: ListType(ANY), dict: DictType(ANY, ANY), set: SetType(ANY),
    torch.SymInt: INT, collections.deque: ListType(ANY, collections.deque),
    **{kind: DictType(ANY, ANY, kind) for kind in (collections.defaultdict, collections.OrderedDict)},
    collections.Counter: DictType(ANY, INT, collections.Counter),
}  # fmt: skip
_ALIASES: Any = getattr(typing, "TypeAliasType", ())  # `type Pair = ...` of Python 3.12 and later
_LISTS = (list, collections.abc.Sequence, collections.abc.MutableSequence)
_OTHER_DICTS = (collections.OrderedDict, collections.defaultdict)
_DICTS = (dict, collections.abc.Mapping, collections.abc.MutableMapping, *_OTHER_DICTS)
_ITERATORS = (collections.abc.Iterable, collections.abc.Iterator, collections.abc.Generator)


def type_from_annotation(annotation: Any) -> Type | None:
    """The type that an annotation means; None where it means none that scripted programs have.

    >>> from typing import List, Optional
    >>> print(type_from_annotation(Optional[List[int]]), type_from_annotation(torch.Tensor))
    Optional[List[int]] Tensor
    """
    try:
        known = _ATOMS.get(annotation)
    except TypeError:  # what has no hash is no annotation
        return None
    if known is not None:
        return known
    if isinstance(annotation, typing.TypeVar):
        return type_from_annotation(annotation.__bound__ or Any)
    if isinstance(annotation, _ALIASES):
        return type_from_annotation(annotation.__value__)
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is typing.Annotated or origin is typing.Final or origin is typing.ClassVar:
        return type_from_annotation(args[0])
    if origin is typing.Literal:
        return _common([type_of_constant(arg) for arg in args])
    if origin is Union or origin is types.UnionType:
        return _of_union(args)
    if origin is not None and is_bare(annotation):
        return ANY if origin is tuple else _of_generic(origin, (Any, Any))
    if origin is not None:
        return _of_generic(origin, args)
    if isinstance(annotation, type):
        return _of_class(annotation)
    return None


def is_bare(annotation: Any) -> bool:
    """Tell whether an annotation says that something is a container, and not of what.

    >>> from typing import List, Tuple
    >>> is_bare(List), is_bare(List[int]), is_bare(Tuple[()])
    (True, False, False)
    """
    return get_origin(annotation) is not None and "[" not in repr(annotation)


def _of_class(kind: type) -> Type:
    if is_named_tuple(kind):
        fields = fields_of(kind)
        return TupleType(tuple(fields.values()), kind, tuple(fields))
    if issubclass(kind, torch.Tensor):
        return TENSOR
    if kind is tuple:
        return ANY
    return ObjectType(kind)


def _of_union(args: tuple[Any, ...]) -> Type | None:
    members = [type_from_annotation(arg) for arg in args if arg is not type(None)]
    if any(member is None for member in members):
        return None
    known = _common(members)
    if known is None:
        known = ANY  # a union of unlike types: nothing is known of it until isinstance tells
    return optional(known) if type(None) in args else known


def _common(members: list[Type | None]) -> Type | None:
    known: Type | None = members[0]
    for member in members[1:]:
        known = None if known is None or member is None else join(known, member)
    return known


def _of_generic(origin: Any, args: tuple[Any, ...]) -> Type | None:
    inner = [type_from_annotation(arg) for arg in args if arg is not ...]
    items = [kind for kind in inner if kind is not None]
    if len(items) < len(inner):
        return None
    if origin is tuple:
        if len(args) == 2 and args[1] is ...:
            return ListType(items[0])
        return TupleType(tuple(items))
    if origin in _LISTS:
        return ListType(items[0])
    if origin in (set, frozenset):
        return SetType(items[0])
    if origin is collections.deque:
        return ListType(items[0], collections.deque)
    if origin is collections.Counter:
        return DictType(items[0], INT, collections.Counter)
    if origin in _DICTS:
        return DictType(items[0], items[1], origin if origin in _OTHER_DICTS else dict)
    if origin in _ITERATORS:
        return IteratorType(items[0])
    return ANY if origin in (collections.abc.Callable, type) else None


def is_named_tuple(kind: Any) -> bool:
    """Tell whether a class is one of `NamedTuple`'s or `namedtuple`'s, or of torch's own results of that kind."""
    is_class = issubclass(type(kind), type)  # `tuple[int]` says that it is one before Python 3.11
    return is_class and issubclass(kind, tuple) and hasattr(kind, "_fields")


def fields_of(kind: type) -> dict[str, Type]:
    """The fields of a named tuple or dataclass, with their types: Tensor where nothing is said."""
    try:
        hints = typing.get_type_hints(kind)
    except Exception:  # names that only a type checker knows
        hints = {}
    names = [field.name for field in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else kind._fields  # type: ignore[attr-defined]
    return {name: type_from_annotation(hints.get(name, torch.Tensor)) or ANY for name in names}


def field_type(kind: type, name: str) -> Type:
    """The type that a class declares for an attribute of its objects; `Any` where it declares none."""
    if dataclasses.is_dataclass(kind):
        return fields_of(kind).get(name, ANY)
    for base in kind.__mro__:
        annotations = vars(base).get("__annotations__", {})
        if name in annotations:
            return type_from_annotation(annotations[name]) or ANY
    return ANY


def type_of_constant(value: Any) -> Type:
    """The type of a value that is known: `Any` for a mixture.

    >>> print(type_of_constant([1, 2]), type_of_constant((1, "a")), type_of_constant({"a": None}))
    List[int] Tuple[int, str] Dict[str, None]
    """
    kind = type(value)
    if isinstance(value, torch.Tensor):
        return TENSOR
    if kind is list or kind is torch.Size:
        return ListType(_common_constant(value))
    if kind is collections.deque:
        return ListType(_common_constant(value), kind)
    if kind is dict or kind in _OTHER_DICTS or kind is collections.Counter:
        return DictType(_common_constant(value), _common_constant(value.values()), kind)
    if kind in (set, frozenset):
        return SetType(_common_constant(value))
    if isinstance(value, tuple):
        items = tuple([type_of_constant(item) for item in value])
        return TupleType(items, kind, kind._fields) if is_named_tuple(kind) else TupleType(items)
    known = _ATOMS.get(kind)
    return ObjectType(kind) if known is None else known


def _common_constant(values: Any) -> Type:
    kinds: list[Type | None] = [type_of_constant(value) for value in values]
    if not kinds:
        return Hole()
    common = _common(kinds)
    return ANY if common is None else common
