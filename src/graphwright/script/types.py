"""The types of values in scripted programs: kinds of values, under TorchScript's names for them.

Tensors (of any dtype), numbers, texts, None, lists, dicts and optional values are kinds that captures know, too; what
a program may declare beyond those is below. `Any` says that nothing is known, and takes part in everything. How two
types become one is a policy of the join of kinds: int and float are a `number`, of which only a run knows the class.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeAlias

import torch

from graphwright import values
from graphwright.values import (
    ANY,
    AnyKind,
    ConstantKind,
    Kind,
    MappingKind,
    NoJoin,
    NumberKind,
    OptionalKind,
    Policy,
    SequenceKind,
    TensorKind,
    TextKind,
)

__all__ = [
    "ANY", "BOOL", "COMPLEX", "DEVICE", "DTYPE", "FLOAT", "GENERATOR", "INT", "NONE", "NUMBER", "RANGE", "STR",
    "TENSOR", "AtomType", "class_of", "DictType", "Hole", "IteratorType", "ListType", "ObjectType", "OptionalType",
    "SetType", "TupleType", "Type", "accepts", "is_number", "is_optional", "item_type", "join", "optional", "resolved",
    "without_none",
]  # fmt: skip


Type: TypeAlias = Kind
ListType: TypeAlias = SequenceKind
DictType: TypeAlias = MappingKind
OptionalType: TypeAlias = OptionalKind


@dataclasses.dataclass(frozen=True, slots=True)
class AtomType(Type):
    """A type that is not made of others."""

    name: str

    def __str__(self) -> str:
        return self.name


TENSOR, STR, NONE = TensorKind(), TextKind(), ConstantKind(None)
INT, FLOAT, BOOL, COMPLEX = NumberKind(int), NumberKind(float), NumberKind(bool), NumberKind(complex)
NUMBER, RANGE = AtomType("number"), AtomType("range")  # an int or a float: only a run knows which
DTYPE, DEVICE, GENERATOR = AtomType("torch.dtype"), AtomType("torch.device"), AtomType("torch.Generator")


class Hole(Type):
    """The item type of a list or dict that is still empty: the first item decides it."""

    __slots__ = ("known",)

    def __init__(self) -> None:
        self.known: Type | None = None

    def __str__(self) -> str:
        return "?" if self.known is None else str(self.known)


@dataclasses.dataclass(frozen=True, slots=True)
class SetType(Type):
    """A set of items of one type."""

    item: Type

    def __str__(self) -> str:
        return f"Set[{self.item}]"


@dataclasses.dataclass(frozen=True, slots=True)
class TupleType(Type):
    """A tuple with a type for each item; `kind` is the class of a named one, `names` the names of its items."""

    items: tuple[Type, ...]
    kind: type | None = None
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.kind.__name__ if self.kind is not None else f"Tuple[{', '.join(map(str, self.items))}]"


@dataclasses.dataclass(frozen=True, slots=True)
class IteratorType(Type):
    """What can only be gone over: what `zip`, `enumerate` and `dict.items` give."""

    item: Type

    def __str__(self) -> str:
        return f"Iterator[{self.item}]"


@dataclasses.dataclass(frozen=True, slots=True)
class ObjectType(Type):
    """An instance of a Python class."""

    kind: type

    def __str__(self) -> str:
        return self.kind.__qualname__


_NUMBERS = (INT, FLOAT, NUMBER)
_CLASSES: dict[Type, type] = {
    TENSOR: torch.Tensor, INT: int, FLOAT: float, STR: str, BOOL: bool, COMPLEX: complex, NONE: type(None),
    RANGE: range, DTYPE: torch.dtype, DEVICE: torch.device, GENERATOR: torch.Generator,
}  # fmt: skip


def resolved(kind: Type) -> Type:
    """What has been found out about a type in the meantime: holes that are known are filled."""
    if isinstance(kind, Hole):
        return kind if kind.known is None else resolved(kind.known)
    return kind


def is_number(kind: Type) -> bool:
    """Tell whether a value of this type is a number of Python's: bools count, tensors do not."""
    return resolved(kind) in (INT, FLOAT, NUMBER, BOOL, COMPLEX)


def class_of(kind: Type) -> type | None:
    """The class that every value of a type has, tensors of all classes counting as one; None for other types.

    >>> class_of(INT), class_of(OptionalType(INT))
    (<class 'int'>, None)
    """
    if isinstance(kind, ObjectType):
        return kind.kind
    return None if isinstance(kind, Hole | AnyKind) else _CLASSES.get(kind)


def is_optional(kind: Type) -> bool:
    """Tell whether a value of this type may be None."""
    return isinstance(kind, OptionalType) or kind in (NONE, ANY)


def optional(kind: Type) -> Type:
    """The type of a value that may be None, too."""
    return kind if is_optional(kind) else OptionalType(kind)


def without_none(kind: Type) -> Type:
    """The type of a value that turned out not to be None."""
    return kind.item if isinstance(kind, OptionalType) else kind


def item_type(kind: Type) -> Type | None:
    """The type of what going over a value gives; None for what cannot be gone over."""
    kind = resolved(kind)
    if isinstance(kind, ListType | SetType | IteratorType):
        return resolved(kind.item)
    if isinstance(kind, DictType):
        return resolved(kind.key)
    if isinstance(kind, TupleType):
        joined: Type | None = kind.items[0] if kind.items else ANY
        for other in kind.items[1:]:
            joined = None if joined is None else join(joined, other)
        return ANY if joined is None else joined
    return INT if kind is RANGE else kind if kind in (TENSOR, STR, ANY) else None


def join(a: Type, b: Type) -> Type | None:
    """The type of a value that is of one of two types; None where there is none that says enough.

    >>> print(join(TENSOR, NONE), join(INT, FLOAT), join(ListType(INT), ListType(INT)), join(TENSOR, INT))
    Optional[Tensor] number List[int] None
    """
    a, b = resolved(a), resolved(b)
    if a == b:
        return a
    try:
        return values.join(a, b, SCRIPT)
    except NoJoin:
        return None


def _filled(one: Type, other: Type, policy: Policy) -> Type:
    hole, kind = (one, other) if isinstance(one, Hole) else (other, one)
    assert isinstance(hole, Hole)
    hole.known = kind
    return kind


def _any(one: Type, other: Type, policy: Policy) -> Type:
    return ANY


def _none(none: ConstantKind, other: Type, policy: Policy) -> Type:
    return optional(other)


def _optional(one: Type, other: Type, policy: Policy) -> Type | None:
    inner = join(without_none(one), without_none(other))
    return None if inner is None else optional(inner)


def _numbers(one: Type, other: Type, policy: Policy) -> Type | None:
    are_numbers = one in _NUMBERS and other in _NUMBERS
    return NUMBER if are_numbers or (NUMBER in (one, other) and BOOL in (one, other)) else None


def _lists(one: SequenceKind, other: SequenceKind, policy: Policy) -> Type | None:
    item = join(one.item, other.item) if one.kind is other.kind else None
    return None if item is None or item == NUMBER != one.item else ListType(item, one.kind)


def _dicts(one: MappingKind, other: MappingKind, policy: Policy) -> Type | None:
    key, item = join(one.key, other.key), join(one.item, other.item)
    kind = one.kind if one.kind is other.kind else dict
    return None if key is None or item is None else DictType(key, item, kind)


def _tuples(one: TupleType, other: TupleType, policy: Policy) -> Type | None:
    if len(one.items) != len(other.items) or one.kind is not other.kind:
        return None
    items = [join(x, y) for x, y in zip(one.items, other.items, strict=True)]
    known = tuple([item for item in items if item is not None])
    return TupleType(known, one.kind, one.names) if len(known) == len(items) else None


def _objects(one: ObjectType, other: ObjectType, policy: Policy) -> Type | None:
    base = next(kind for kind in one.kind.__mro__ if issubclass(other.kind, kind))
    return None if base is object else ObjectType(base)


_TYPES: tuple[type[Type], ...] = (
    *(TensorKind, TextKind, NumberKind, AtomType, SequenceKind, SetType, MappingKind, TupleType, IteratorType),
    *(ObjectType, OptionalKind, AnyKind, Hole),
)
_RULES: dict[tuple[type, type], Callable[[Any, Any, Policy], Type | None]] = {  # later ones go first
    **{pair: _optional for kind in _TYPES for pair in ((OptionalKind, kind), (kind, OptionalKind))},
    **{(ConstantKind, kind): _none for kind in _TYPES},
    **{pair: _any for kind in (*_TYPES, ConstantKind) for pair in ((AnyKind, kind), (kind, AnyKind))},
    **{pair: _filled for kind in (*_TYPES, ConstantKind) for pair in ((kind, Hole), (Hole, kind))},
    **dict.fromkeys(((NumberKind, NumberKind), (NumberKind, AtomType)), _numbers),
    (SequenceKind, SequenceKind): _lists,
    (MappingKind, MappingKind): _dicts,
    (TupleType, TupleType): _tuples,
    (ObjectType, ObjectType): _objects,
}
SCRIPT = Policy((), (), rules=_RULES)


def accepts(wanted: Type, given: Type) -> bool:
    """Tell whether a value of one type may stand where another is declared.

    >>> accepts(OptionalType(TENSOR), NONE), accepts(FLOAT, INT), accepts(INT, FLOAT), accepts(TENSOR, INT)
    (True, True, False, False)
    """
    wanted, given = resolved(wanted), resolved(given)
    if wanted == given or ANY in (wanted, given):
        return True
    if isinstance(wanted, Hole) or isinstance(given, Hole):
        return join(wanted, given) is not None
    if isinstance(wanted, OptionalType):
        return given is NONE or accepts(wanted.item, without_none(given))
    if wanted is FLOAT:
        return given in (INT, NUMBER)
    if wanted in (NUMBER, COMPLEX):
        return given in (INT, FLOAT, NUMBER, BOOL)
    if wanted is INT or wanted is BOOL:
        return given is NUMBER
    if wanted is DEVICE:
        return given in (STR, INT)
    if wanted is DTYPE:
        return given is INT
    return _accepts_made(wanted, given)


def _accepts_made(wanted: Type, given: Type) -> bool:
    if isinstance(wanted, ListType) and isinstance(given, ListType) and wanted.kind is not given.kind:
        return False
    if isinstance(wanted, ListType | SetType) and type(wanted) is type(given):
        return accepts(wanted.item, given.item)
    if isinstance(wanted, ListType) and isinstance(given, TupleType):
        return all(accepts(wanted.item, item) for item in given.items)
    if isinstance(wanted, DictType) and isinstance(given, DictType):
        return accepts(wanted.key, given.key) and accepts(wanted.item, given.item)
    if isinstance(wanted, TupleType) and isinstance(given, TupleType):
        return len(wanted.items) == len(given.items) and all(map(accepts, wanted.items, given.items))
    if isinstance(wanted, IteratorType):
        item = item_type(given)
        return item is not None and accepts(wanted.item, item)
    if isinstance(wanted, ObjectType) and isinstance(given, ObjectType):
        return issubclass(given.kind, wanted.kind)
    return False
