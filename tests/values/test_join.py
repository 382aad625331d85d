"""Kinds and their join: the laws that hold whatever the policy, and what each policy lets be one."""

from __future__ import annotations

import collections
import itertools
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphwright.capture.containers.joining import RUN
from graphwright.capture.effects.kept_kinds import ATTRIBUTE
from graphwright.values import (
    ANY,
    MIXED,
    UNKNOWN,
    ConstantKind,
    Kind,
    MappingKind,
    NoJoin,
    NumberKind,
    OptionalKind,
    Policy,
    RecordKind,
    SequenceKind,
    TensorKind,
    TextKind,
    join,
    kind_of,
)


def covers(one: Kind, other: Kind, policy: Policy) -> bool:
    """Tell whether all values of another kind are of this kind, too."""
    try:
        return join(one, other, policy) is one
    except NoJoin:
        return False


POLICIES = [pytest.param(ATTRIBUTE, id="attribute"), pytest.param(RUN, id="run")]

_TENSORS = [TensorKind.like(torch.ones(*sizes)) for sizes in ((2, 3), (2, 4), (3, 3))]
_NUMBERS = [NumberKind(bool, True), NumberKind(int, 2), NumberKind(float, 2.5)]
_TEXTS = [ConstantKind("a"), ConstantKind("b"), TextKind()]
_NONE = ConstantKind(None)
FAMILIES: list[list[Kind]] = [  # of kinds that have much in common
    [*_TENSORS, _NONE],
    [*_NUMBERS, *_TENSORS[:2]],
    [*_TEXTS, *_NUMBERS],
    [*_TENSORS, _NONE, *_NUMBERS, *_TEXTS, TensorKind.like(torch.ones(2)), TensorKind.like(torch.ones(2, 3).long())],
]
_KEYS = st.lists(st.sampled_from(["a", "b", "c"]), max_size=2, unique=True).map(sorted)


@st.composite
def _records(draw: Any, inner: st.SearchStrategy[Kind]) -> Kind:
    kind = draw(st.sampled_from([tuple, list, dict]))
    keys = draw(_KEYS) if kind is dict else range(draw(st.integers(0, 2)))
    return RecordKind(kind, {key: draw(inner) for key in keys})


@st.composite
def some_kinds(draw: Any, count: int) -> list[Kind]:
    """Kinds of one family, and containers of such."""
    family = st.sampled_from(draw(st.sampled_from(FAMILIES)))
    kinds = st.recursive(family, _records, max_leaves=4)
    return [draw(kinds) for _ in range(count)]


def joined(one: Kind | None, other: Kind | None, policy: Policy) -> Kind | None:
    """The join; None where there is none."""
    try:
        return None if one is None or other is None else join(one, other, policy)
    except NoJoin:
        return None


@pytest.mark.parametrize("policy", POLICIES)
@given(some_kinds(1))
def test_a_kind_joined_with_itself_is_itself(policy: Policy, kinds: list[Kind]) -> None:
    (kind,) = kinds
    assert join(kind, kind, policy) is kind
    assert join(kind, None, policy) is kind
    assert join(None, kind, policy) is kind
    assert covers(kind, kind, policy)


@pytest.mark.parametrize("policy", POLICIES)
@given(some_kinds(2))
def test_the_order_does_not_matter(policy: Policy, kinds: list[Kind]) -> None:
    one, other = kinds
    assert joined(one, other, policy) == joined(other, one, policy)


@pytest.mark.parametrize("policy", POLICIES)
@given(some_kinds(2))
def test_a_join_covers_both(policy: Policy, kinds: list[Kind]) -> None:
    one, other = kinds
    made = joined(one, other, policy)
    assert made is None or (covers(made, one, policy) and covers(made, other, policy))


@pytest.mark.parametrize("policy", POLICIES)
@given(some_kinds(3))
def test_what_covers_the_wider_covers_the_narrower(policy: Policy, kinds: list[Kind]) -> None:
    narrow, second, third = kinds
    middle = joined(narrow, second, policy)
    wide = joined(middle, third, policy)
    assert wide is None or covers(wide, narrow, policy)
    for a, b, c in itertools.permutations(kinds):
        assert not (covers(a, b, policy) and covers(b, c, policy)) or covers(a, c, policy)


@given(st.recursive(st.sampled_from([1, 2.5, "a", None]), lambda inner: st.lists(inner, max_size=2)))
def test_equal_kinds_are_of_values_that_are_alike(value: Any) -> None:
    assert kind_of(value) == kind_of(kind_of(value).instance())


T, WIDE, LONG = (TensorKind.like(torch.ones(*sizes)) for sizes in ((2, 3), (2, 4), (2,)))
MAY_BE_FLOAT = OptionalKind(NumberKind(float))
NONE, INT, FLOAT, BOOL = ConstantKind(None), NumberKind(int, 1), NumberKind(float, 2.5), NumberKind(bool, True)
TUPLE, PAIR = RecordKind(tuple, {0: INT}), RecordKind(tuple, {0: INT, 1: INT})

# two kinds, and what an attribute and a value of a run become; None where there is nothing
CASES: list[Any] = [
    pytest.param(INT, FLOAT, FLOAT, FLOAT, id="int and float"),
    pytest.param(BOOL, FLOAT, MIXED, FLOAT, id="bool and float"),
    pytest.param(T, NONE, OptionalKind(T), OptionalKind(T), id="tensor and None"),
    pytest.param(INT, NONE, OptionalKind(INT), None, id="number and None"),
    pytest.param(OptionalKind(T), INT, MIXED, OptionalKind(join(T, INT, RUN)), id="optional tensor and number"),
    pytest.param(OptionalKind(INT), MAY_BE_FLOAT, MAY_BE_FLOAT, MAY_BE_FLOAT, id="optional numbers"),
    pytest.param(T, LONG, MIXED, None, id="other rank"),
    pytest.param(ConstantKind("a"), ConstantKind("b"), MIXED, TextKind(), id="texts"),
    pytest.param(TUPLE, PAIR, MIXED, SequenceKind(INT, tuple), id="other length"),
    pytest.param(
        RecordKind(dict, {"a": INT}), RecordKind(dict, {"b": FLOAT}), MIXED, MappingKind(TextKind(), FLOAT, dict),
        id="other keys",
    ),
    pytest.param(
        RecordKind(dict, {"a": INT}, frozenset({"a"})), RecordKind(dict, {"b": FLOAT}),
        *[RecordKind(dict, {"a": INT, "b": FLOAT}, frozenset({"a", "b"}))] * 2, id="keys that may lack",
    ),
    pytest.param(RecordKind(list, {0: INT}), TUPLE, MIXED, None, id="other class"),
    pytest.param(RecordKind(tuple, {0: T}), TUPLE, RecordKind(tuple, {0: MIXED}),
                 RecordKind(tuple, {0: join(T, INT, RUN)}), id="items of other kinds"),
    pytest.param(SequenceKind(None, list), RecordKind(list, {0: INT}), MIXED, SequenceKind(INT, list), id="none seen"),
    pytest.param(
        MappingKind(kind=collections.defaultdict, factory=list), MappingKind(kind=collections.defaultdict, factory=int),
        MIXED, None, id="other factory",
    ),
    pytest.param(MIXED, INT, MIXED, MIXED, id="mixed"),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other", "attribute", "run"), CASES)
def test_what_becomes_of_two(one: Kind, other: Kind, attribute: Kind, run: Kind | None) -> None:
    for wanted, policy in ((attribute, ATTRIBUTE), (run, RUN)):
        if wanted is None:
            with pytest.raises(NoJoin):
                join(one, other, policy)
        else:
            assert join(one, other, policy) == wanted
            assert join(other, one, policy) == wanted


def test_sizes_are_loosened_where_the_policy_says_so() -> None:
    assert join(T, WIDE, ATTRIBUTE) is T
    made = join(T, WIDE, RUN)
    assert isinstance(made, TensorKind)
    assert made.loose == {1}
    assert covers(made, WIDE, RUN)
    assert not covers(T, WIDE, RUN)


def test_the_example_is_the_first_one_s() -> None:
    made = join(INT, FLOAT, RUN)
    assert isinstance(made, NumberKind)
    assert made.hint == 1.0
    assert type(made.hint) is float
    unknown = join(NumberKind(int), FLOAT, RUN)
    assert isinstance(unknown, NumberKind)
    assert unknown.hint is UNKNOWN


def test_values_of_which_nothing_is_known() -> None:
    untyped = Policy((), (), values_may_be_any=True)
    assert join(ConstantKind("a"), ConstantKind("b"), untyped) is ANY
    assert join(ANY, INT, untyped) is ANY
    with pytest.raises(NoJoin, match="Any in one place, None in another"):
        join(ANY, NONE, untyped)


def test_examples() -> None:
    assert kind_of([1, "a", None]).instance() == [3, "a", None]
    assert SequenceKind(INT, list).instance() == [3]
    assert SequenceKind(None, tuple).instance() == ()
    assert MappingKind(kind=collections.defaultdict, factory=list).instance()["new"] == []
    assert OptionalKind(TextKind()).instance() == ""
