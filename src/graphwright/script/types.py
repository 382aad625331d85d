"""The types of values in scripted programs: a small algebra, and how two types become one.

`Tensor`, numbers, `str`, `None`, devices and dtypes are atoms; lists, dicts, tuples and optional values are made of
other types. `Any` says that nothing is known, and takes part in everything.
"""

from __future__ import annotations

import collections
import dataclasses

__all__ = [
    "ANY", "BOOL", "COMPLEX", "DEVICE", "DTYPE", "FLOAT", "GENERATOR", "INT", "NONE", "NUMBER", "RANGE", "STR",
    "TENSOR", "AtomType", "DictType", "Hole", "IteratorType", "ListType", "ObjectType", "OptionalType",
    "SetType", "TupleType", "Type", "accepts", "is_number", "is_optional", "item_type", "join", "optional", "resolved",
    "without_none",
]  # fmt: skip


_NAMES: dict[type, str] = {
    collections.deque: "Deque", collections.defaultdict: "DefaultDict", collections.OrderedDict: "OrderedDict",
    collections.Counter: "Counter",
}  # fmt: skip


class Type:
    """What is known of a value: the base of all types."""

    __slots__ = ()


@dataclasses.dataclass(frozen=True, slots=True)
class AtomType(Type):
    """A type that is not made of others."""

    name: str

    def __str__(self) -> str:
        return self.name


TENSOR, INT, FLOAT, BOOL = AtomType("Tensor"), AtomType("int"), AtomType("float"), AtomType("bool")
COMPLEX, STR, NONE, NUMBER = AtomType("complex"), AtomType("str"), AtomType("None"), AtomType("number")
DTYPE, DEVICE, GENERATOR = AtomType("torch.dtype"), AtomType("torch.device"), AtomType("torch.Generator")
RANGE, ANY = AtomType("range"), AtomType("Any")


class Hole(Type):
    """The item type of a list or dict that is still empty: the first item decides it."""

    __slots__ = ("known",)

    def __init__(self) -> None:
        self.known: Type | None = None

    def __str__(self) -> str:
        return "?" if self.known is None else str(self.known)


@dataclasses.dataclass(frozen=True, slots=True)
class ListType(Type):
    """A list of items of one type, or (`kind`) a deque."""

    item: Type
    kind: type = list

    def __str__(self) -> str:
        return f"{_NAMES.get(self.kind, 'List')}[{self.item}]"


@dataclasses.dataclass(frozen=True, slots=True)
class SetType(Type):
    """A set of items of one type."""

    item: Type

    def __str__(self) -> str:
        return f"Set[{self.item}]"


@dataclasses.dataclass(frozen=True, slots=True)
class DictType(Type):
    """A dict with keys of one type and values of one type; `kind` is the class of one that is no plain dict."""

    key: Type
    value: Type
    kind: type = dict

    def __str__(self) -> str:
        return f"{_NAMES.get(self.kind, 'Dict')}[{self.key}, {self.value}]"


@dataclasses.dataclass(frozen=True, slots=True)
class TupleType(Type):
    """A tuple with a type for each item; `kind` is the class of a named one, `names` the names of its items."""

    items: tuple[Type, ...]
    kind: type | None = None
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.kind.__name__ if self.kind is not None else f"Tuple[{', '.join(map(str, self.items))}]"


@dataclasses.dataclass(frozen=True, slots=True)
class OptionalType(Type):
    """A value of a type, or None."""

    item: Type

    def __str__(self) -> str:
        return f"Optional[{self.item}]"


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


def resolved(kind: Type) -> Type:
    """What has been found out about a type in the meantime: holes that are known are filled."""
    if isinstance(kind, Hole):
        return kind if kind.known is None else resolved(kind.known)
    return kind


def is_number(kind: Type) -> bool:
    """Tell whether a value of this type is a number of Python's: bools count, tensors do not."""
    return resolved(kind) in (INT, FLOAT, NUMBER, BOOL, COMPLEX)


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
    if a == b or b is a:
        return a
    if isinstance(a, Hole) or isinstance(b, Hole):
        if isinstance(a, Hole):
            a.known = b
            return b
        assert isinstance(b, Hole)
        b.known = a
        return a
    if ANY in (a, b):
        return ANY
    if NONE in (a, b):
        return optional(b if a is NONE else a)
    if isinstance(a, OptionalType) or isinstance(b, OptionalType):
        inner = join(without_none(a), without_none(b))
        return None if inner is None else optional(inner)
    if a in _NUMBERS and b in _NUMBERS:
        return NUMBER
    if {a, b} == {NUMBER, BOOL}:
        return NUMBER
    return _join_made(a, b)


def _join_made(a: Type, b: Type) -> Type | None:
    """Join two types that are made of others."""
    if isinstance(a, ListType) and isinstance(b, ListType):
        item = join(a.item, b.item) if a.kind is b.kind else None
        return None if item is None or item == NUMBER != a.item else ListType(item, a.kind)
    if isinstance(a, DictType) and isinstance(b, DictType):
        key, value = join(a.key, b.key), join(a.value, b.value)
        kind = a.kind if a.kind is b.kind else dict
        return None if key is None or value is None else DictType(key, value, kind)
    if isinstance(a, TupleType) and isinstance(b, TupleType) and len(a.items) == len(b.items) and a.kind is b.kind:
        items = [join(x, y) for x, y in zip(a.items, b.items, strict=True)]
        known = tuple([item for item in items if item is not None])
        return TupleType(known, a.kind, a.names) if len(known) == len(items) else None
    if isinstance(a, ObjectType) and isinstance(b, ObjectType):
        base = next(kind for kind in a.kind.__mro__ if issubclass(b.kind, kind))
        return None if base is object else ObjectType(base)
    return None


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
        return accepts(wanted.key, given.key) and accepts(wanted.value, given.value)
    if isinstance(wanted, TupleType) and isinstance(given, TupleType):
        return len(wanted.items) == len(given.items) and all(map(accepts, wanted.items, given.items))
    if isinstance(wanted, IteratorType):
        item = item_type(given)
        return item is not None and accepts(wanted.item, item)
    if isinstance(wanted, ObjectType) and isinstance(given, ObjectType):
        return issubclass(given.kind, wanted.kind)
    return False
