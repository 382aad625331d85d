"""The join of two kinds: the narrowest kind that covers the values of both, as far as a policy lets them be one.

One table says by pair of classes which rule joins them; each rule stands below, with the policy's part in it. The order
of kinds follows from the join: one covers another where joining them changes nothing.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, overload

from graphwright.values.kinds import (
    ANY,
    MIXED,
    UNKNOWN,
    AnyKind,
    ConstantKind,
    Kind,
    MappingKind,
    MixedKind,
    NumberKind,
    OptionalKind,
    RecordKind,
    SequenceKind,
    TensorKind,
    TextKind,
    kind_of,
    without_none,
)


class NoJoin(Exception):
    """Two kinds have nothing in common that a graph could go by."""

    def __init__(self, one: Kind, other: Kind) -> None:
        super().__init__(f"{one} in one place, {other} in another")
        self.one, self.other = one, other


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Policy:
    """Which differences between two values a graph can live with, there where they are joined.

    `numbers` are classes of numbers that become the last of them; `may_be_none` are kinds that None joins. `is_same`
    tells whether two constants are one. With `mixes`, what has nothing in common is MIXED; otherwise it raises NoJoin.
    A policy with kinds of its own has `rules` of its own for them.
    """

    numbers: tuple[type, ...]
    may_be_none: tuple[type[Kind], ...]
    compares_layout: bool = False
    loosens_sizes: bool = False
    texts_differ: bool = False
    lengths_differ: bool = False  # tuples and lists become ones of any length, dicts get any keys
    tensors_may_be_numbers: bool = False
    values_may_be_any: bool = False
    mixes: bool = False
    rules: Mapping[tuple[type, type], Callable[[Any, Any, Policy], Kind | None]] | None = None  # None: those below
    is_same: Callable[[Any, Any], bool] = lambda one, other: type(one) is type(other) and bool(one == other)
    kind_of: Callable[[Any], Kind] = kind_of  # of a key


_K = TypeVar("_K", bound=Kind)


@overload
def join(one: _K, other: None, policy: Policy) -> _K: ...
@overload
def join(one: None, other: _K, policy: Policy) -> _K: ...
@overload
def join(one: Kind, other: Kind, policy: Policy) -> Kind: ...
@overload
def join(one: Kind | None, other: Kind | None, policy: Policy) -> Any: ...
def join(one: Kind | None, other: Kind | None, policy: Policy) -> Kind | None:
    """The kind of what is of one kind or of another: the first one, if that is it; None is the kind of nothing.

    Raises NoJoin where there is none, if the policy does not mix.

    >>> numbers = Policy((int, float), (NumberKind,))
    >>> print(join(NumberKind(int), NumberKind(float), numbers))
    float
    >>> print(join(NumberKind(int), ConstantKind(None), numbers))
    Optional[int]
    """
    if one is other or other is None:
        return one
    if one is None:
        return other
    rules = policy.rules or _RULES
    rule = rules.get((type(one), type(other)))
    if rule is not None:
        joined = rule(one, other, policy)
    else:
        rule = rules.get((type(other), type(one)), _neither)
        joined = rule(other, one, policy)
    if joined is None:
        joined = _unlike(one, other, policy)
    return one if joined == one else joined


def _unlike(one: Kind, other: Kind, policy: Policy) -> Kind:
    """What two kinds become that have no rule, or whose rule found nothing in common."""
    if policy.values_may_be_any and _is_value(one) and _is_value(other):
        return ANY
    if policy.mixes:
        return MIXED
    raise NoJoin(one, other)


def _is_value(kind: Kind) -> bool:
    is_constant = isinstance(kind, ConstantKind) and kind.value is not None
    return is_constant or isinstance(kind, TensorKind | NumberKind | TextKind | AnyKind)


# ---- the rules: None where a rule finds nothing in common


def _neither(one: Kind, other: Kind, policy: Policy) -> Kind | None:
    return None


def _tensors(one: TensorKind, other: TensorKind, policy: Policy) -> Kind | None:
    if (one.dtype, one.rank, one.device) != (other.dtype, other.rank, other.device):
        return None
    if one.layout != other.layout and policy.compares_layout:
        return None
    loose = one.loose | other.loose
    if policy.loosens_sizes:
        sizes, its = one.example.shape, other.example.shape
        loose |= {dim for dim in range(one.rank or 0) if sizes[dim] != its[dim]}
    layout = one.layout if one.layout == other.layout else None
    return dataclasses.replace(one, layout=layout, loose=loose, may_be_number=one.may_be_number or other.may_be_number)


def _tensor_and_number(tensor: TensorKind, number: NumberKind, policy: Policy) -> Kind | None:
    return dataclasses.replace(tensor, may_be_number=True) if policy.tensors_may_be_numbers else None


def _numbers(one: NumberKind, other: NumberKind, policy: Policy) -> Kind | None:
    if one.kind is other.kind:
        return one
    if one.kind not in policy.numbers or other.kind not in policy.numbers:
        return None
    wider = policy.numbers[max(map(policy.numbers.index, (one.kind, other.kind)))]
    return one if wider is one.kind else NumberKind(wider, one.hint if one.hint is UNKNOWN else wider(one.hint))


def _texts(one: TextKind, other: TextKind, policy: Policy) -> Kind | None:
    return one


def _text_and_constant(one: Kind, other: Kind, policy: Policy) -> Kind | None:
    text, constant = (one, other) if isinstance(one, TextKind) else (other, one)
    assert isinstance(constant, ConstantKind)
    if not isinstance(constant.value, str):
        return None
    return text if text is one else TextKind()  # the hint is the first one's


def _constants(one: ConstantKind, other: ConstantKind, policy: Policy) -> Kind | None:
    if policy.is_same(one.value, other.value):
        return one
    both_texts = isinstance(one.value, str) and isinstance(other.value, str)
    return TextKind() if policy.texts_differ and both_texts else None


def _constant_and_more(constant: ConstantKind, kind: Kind, policy: Policy) -> Kind | None:
    """None and a value that may be None then."""
    return OptionalKind(kind) if constant.value is None and type(kind) in policy.may_be_none else None


def _optional(one: Kind, other: Kind, policy: Policy) -> Kind | None:
    item = join(without_none(one), without_none(other), policy)
    return item if item is MIXED else OptionalKind(item)


def _mixed(one: Kind, other: Kind, policy: Policy) -> Kind | None:
    return MIXED


# ---- containers


def _records(one: RecordKind, other: RecordKind, policy: Policy) -> Kind | None:
    if one.kind is not other.kind or one.factory is not other.factory:
        return None
    if one.loose or other.loose:
        keys, loose = {**one.items, **other.items}, one.loose | other.loose | (one.items.keys() ^ other.items.keys())
        items = {key: join(one.items.get(key), other.items.get(key), policy) for key in keys}
        return RecordKind(one.kind, items, loose, one.factory)
    if one.keys == other.keys:
        items = {key: join(item, other.items[key], policy) for key, item in one.items.items()}
        return RecordKind(one.kind, items, factory=one.factory)
    return (_mappings if one.kind is dict else _sequences)(one, other, policy)


def _sequences(one: Kind, other: Kind, policy: Policy) -> Kind | None:
    """One of any length, where one of two is that or they differ in length."""
    assert isinstance(one, RecordKind | SequenceKind)
    assert isinstance(other, RecordKind | SequenceKind)
    if one.kind is not other.kind or one.kind not in (tuple, list, collections.deque, set):
        return None
    if not policy.lengths_differ and not (isinstance(one, SequenceKind) and isinstance(other, SequenceKind)):
        return None
    item: Kind | None = one.item if isinstance(one, SequenceKind) else None
    for part in (*_parts(one), *_parts(other)):
        item = join(item, part, policy)
    give_up = next((kind.give_up for kind in (one, other) if isinstance(kind, SequenceKind)), None)
    return SequenceKind(item, one.kind, give_up=give_up)


def _parts(kind: RecordKind | SequenceKind) -> tuple[Kind | None, ...]:
    return kind.parts if isinstance(kind, RecordKind) else (kind.item,)


def _mappings(one: Kind, other: Kind, policy: Policy) -> Kind | None:
    """One with any keys, where one of two is that or they have different keys."""
    if not policy.lengths_differ and not (isinstance(one, MappingKind) and isinstance(other, MappingKind)):
        return None
    mine, its = _as_mapping(one, policy), _as_mapping(other, policy)
    if mine is None or its is None or mine.kind is not its.kind or mine.factory is not its.factory:
        return None
    key, item = join(mine.key, its.key, policy), join(mine.item, its.item, policy)
    return MappingKind(key, item, mine.kind, mine.factory, mine.give_up or its.give_up)


def _as_mapping(kind: Kind, policy: Policy) -> MappingKind | None:
    """A kind of dict as one of any keys; None for what is no dict."""
    if isinstance(kind, MappingKind):
        return kind
    if not isinstance(kind, RecordKind) or kind.kind is not dict:
        return None
    key: Kind | None = None
    item: Kind | None = None
    for its, part in kind.items.items():
        key, item = join(key, policy.kind_of(its), policy), join(item, part, policy)
    return MappingKind(key, item, dict)


# ---- the table, by pair of classes; where only the other order is in it, the rule gets the two in that order

_CLASSES: tuple[type[Kind], ...] = (
    *(TensorKind, NumberKind, TextKind, ConstantKind, RecordKind, SequenceKind, MappingKind, AnyKind),
    *(OptionalKind, MixedKind),
)
_RULES: dict[tuple[type, type], Callable[[Any, Any, Policy], Kind | None]] = {
    (TensorKind, TensorKind): _tensors,
    (TensorKind, NumberKind): _tensor_and_number,
    (NumberKind, NumberKind): _numbers,
    (TextKind, TextKind): _texts,
    (TextKind, ConstantKind): _text_and_constant,
    (ConstantKind, TextKind): _text_and_constant,
    (ConstantKind, ConstantKind): _constants,
    **{(ConstantKind, kind): _constant_and_more for kind in (TensorKind, NumberKind, RecordKind)},
    (RecordKind, RecordKind): _records,
    **dict.fromkeys(((RecordKind, SequenceKind), (SequenceKind, RecordKind), (SequenceKind, SequenceKind)), _sequences),
    **dict.fromkeys(((RecordKind, MappingKind), (MappingKind, RecordKind), (MappingKind, MappingKind)), _mappings),
    **{pair: _optional for kind in _CLASSES for pair in ((OptionalKind, kind), (kind, OptionalKind))},
    **{pair: _mixed for kind in _CLASSES for pair in ((MixedKind, kind), (kind, MixedKind))},
}
