"""What a value of a program is like: one class per kind, from the narrowest to the widest.

Each class says which values of Python it covers. What is left out of comparisons (an example, a hint, what a container
holds for the example) says nothing about that: two kinds are equal where they cover the same values.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable
from typing import Any

import torch

from graphwright.values.structure import is_named_tuple, made, parts


class _Unknown:
    """A hint that there is none."""

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Any = _Unknown()  # the hint of a value that depends on data which the examples do not have


_NAMES: dict[type, str] = {
    list: "List", tuple: "Sequence", collections.deque: "Deque", set: "Set", dict: "Dict",
    collections.defaultdict: "DefaultDict", collections.OrderedDict: "OrderedDict", collections.Counter: "Counter",
}  # fmt: skip


class Kind:
    """What is known of a value: the base of all kinds."""

    __slots__ = ()

    def instance(self) -> Any:
        """A value of this kind."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True, slots=True)
class TensorKind(Kind):
    """Tensors of a dtype, rank, device and layout, and of the example's sizes where a policy says so; None: of any.

    `loose` are the dimensions whose sizes differ all the same; `may_be_number` covers numbers of Python, too: what a
    loop adds up may start at zero.

    >>> TensorKind.like(torch.ones(2, 3)) == TensorKind.like(torch.zeros(4, 4))
    True
    """

    dtype: torch.dtype | None = None
    rank: int | None = None
    device: torch.device | None = None
    layout: torch.layout | None = None
    loose: frozenset[int] = frozenset()
    may_be_number: bool = False
    example: Any = dataclasses.field(default=None, compare=False, repr=False)

    @classmethod
    def like(cls, example: torch.Tensor, may_be_number: bool = False) -> TensorKind:
        """The kind of a tensor."""
        return cls(
            example.dtype,
            example.dim(),
            example.device,
            example.layout,
            may_be_number=may_be_number,
            example=example,
        )

    def __str__(self) -> str:
        return "Tensor" if self.dtype is None else f"a tensor of {self.dtype} with {self.rank} dimensions"

    def instance(self) -> Any:
        return self.example


@dataclasses.dataclass(frozen=True, slots=True)
class NumberKind(Kind):
    """Numbers of one class: bool, int, float or complex; `hint` is what it is for the example."""

    kind: type
    hint: Any = dataclasses.field(default=UNKNOWN, compare=False, repr=False)

    def __str__(self) -> str:
        return self.kind.__name__

    def instance(self) -> Any:
        return _EXAMPLES[self.kind]


@dataclasses.dataclass(frozen=True, slots=True)
class TextKind(Kind):
    """Texts; `hint` is what it is for the example."""

    hint: Any = dataclasses.field(default=UNKNOWN, compare=False, repr=False)

    def __str__(self) -> str:
        return "str"

    def instance(self) -> Any:
        return ""


@dataclasses.dataclass(frozen=True, slots=True)
class ConstantKind(Kind):
    """One value, the same each time: None is one."""

    value: Any

    def __str__(self) -> str:
        return repr(self.value)

    def instance(self) -> Any:
        return self.value


@dataclasses.dataclass(frozen=True, slots=True)
class OptionalKind(Kind):
    """None, and the values of another kind."""

    item: Kind

    def __str__(self) -> str:
        return f"Optional[{self.item}]"

    def instance(self) -> Any:
        return self.item.instance()


@dataclasses.dataclass(frozen=True, slots=True)
class RecordKind(Kind):
    """Tuples, lists, dicts or objects of a class with these keys, indices or attributes, and a kind for each.

    `loose` are keys of a dict that it may lack; `factory` makes what a `defaultdict` has for those.
    """

    kind: type
    items: dict[Any, Kind]
    loose: frozenset[Any] = frozenset()
    factory: Any = dataclasses.field(default=None, repr=False)

    @property
    def keys(self) -> tuple[Any, ...]:
        """The keys, in their order."""
        return tuple(self.items)

    @property
    def parts(self) -> tuple[Kind, ...]:
        """The kinds of what it holds, in the order of the keys."""
        return tuple(self.items.values())

    def __str__(self) -> str:
        items = self.items.items() if self.kind is dict else ((None, item) for item in self.items.values())
        return f"{self.kind.__name__}({', '.join(f'{key!r}: {item}' if key else f'{item}' for key, item in items)})"

    def instance(self) -> Any:
        held = {key: item.instance() for key, item in self.items.items()}
        return self.kind(self.factory, held) if self.factory else made(self.kind, held)


@dataclasses.dataclass(frozen=True, slots=True)
class SequenceKind(Kind):
    """Lists, deques or tuples of any length, whose items are of one kind: None as long as none was seen.

    `content` is what it holds for the example (where that `is_certain`); `give_up` is called where only one of a known
    length will do.
    """

    item: Any  # a kind
    kind: type = list
    content: tuple[Any, ...] = dataclasses.field(default=(), compare=False, repr=False)
    is_certain: bool = dataclasses.field(default=False, compare=False, repr=False)
    give_up: Callable[[], Any] | None = dataclasses.field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return f"{_NAMES.get(self.kind, 'List')}[{self.item}]"

    def instance(self) -> Any:
        return self.kind([] if self.item is None else [self.item.instance()])


@dataclasses.dataclass(frozen=True, slots=True)
class MappingKind(Kind):
    """Dicts or sets of a class with any keys, of one kind, and values of another: None as long as none was seen.

    `factory` makes what a `defaultdict` has for a key that it does not have yet.
    """

    key: Any = None  # a kind
    item: Any = None  # a kind
    kind: type = dict
    factory: Any = None
    give_up: Callable[[], Any] | None = dataclasses.field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        held = f"{self.key}" if self.kind is set else f"{self.key}, {self.item}"
        return f"{_NAMES.get(self.kind, 'Dict')}[{held}]"

    def instance(self) -> Any:
        return self.kind(self.factory) if self.factory else self.kind()


@dataclasses.dataclass(frozen=True, slots=True)
class AnyKind(Kind):
    """Values of a program of which nothing is known but that nodes give them; numbers and texts, but not None."""

    def __str__(self) -> str:
        return "Any"


@dataclasses.dataclass(frozen=True, slots=True)
class MixedKind(Kind):
    """All values: they have nothing in common that a graph could go by."""

    def __str__(self) -> str:
        return "values of different kinds"


ANY, MIXED = AnyKind(), MixedKind()
_EXAMPLES: dict[type, Any] = {int: 3, float: 1.5, bool: True}


# ---- of a value, and back

_OF_CLASS: dict[type, Callable[[Any], Kind]] = {
    **dict.fromkeys((bool, int, float), lambda value: NumberKind(type(value), value)),
    **dict.fromkeys((str, type(None)), ConstantKind),
}
_RECORDS = (tuple, list, dict, torch.Size)


def kind_of(value: Any, own: Callable[[Any], Kind | None] = lambda value: None) -> Kind:
    """The kind of a value: that of a tensor or number, of a container by its parts, or a constant.

    `own` is asked first, for each part, too: it knows the values that stand for others, and other kinds of containers.

    >>> kind_of((1, {"a": 2.5}))
    RecordKind(kind=<class 'tuple'>, items={0: NumberKind(kind=<class 'int'>), 1: RecordKind(...)}, loose=frozenset())
    """
    known = own(value)
    if known is not None:
        return known
    kind = type(value)
    if kind in _RECORDS or is_named_tuple(kind):
        return RecordKind(kind, {key: kind_of(part, own) for key, part in (parts(value) or {}).items()})
    if isinstance(value, torch.Tensor):
        return TensorKind.like(value)
    return _OF_CLASS.get(kind, ConstantKind)(value)


def without_none(kind: Kind | None) -> Kind | None:
    """The kind of the values that are not None; None where there are none.

    >>> print(without_none(OptionalKind(NumberKind(int))), without_none(ConstantKind(None)))
    int None
    """
    if isinstance(kind, OptionalKind):
        return kind.item
    return None if isinstance(kind, ConstantKind) and kind.value is None else kind


def loose_sizes(kind: Kind) -> frozenset[int]:
    """The dimensions of tensors of a kind whose sizes differ."""
    item = without_none(kind)
    return item.loose if isinstance(item, TensorKind) else frozenset()


def with_example(kind: Kind, other: Kind) -> Kind:
    """A kind of tensor, number or text with the example of another kind of such.

    >>> with_example(NumberKind(int, 1), NumberKind(int, 2)).hint
    2
    """
    own = without_none(other)
    if isinstance(kind, OptionalKind):
        return OptionalKind(with_example(kind.item, other))
    if isinstance(kind, TensorKind) and isinstance(own, TensorKind):
        return dataclasses.replace(kind, example=own.example)
    if isinstance(kind, NumberKind) and isinstance(own, NumberKind):
        return own if kind.kind is own.kind else kind
    return own if isinstance(kind, TextKind) and isinstance(own, TextKind) else kind
