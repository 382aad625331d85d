"""Nested values taken apart and made again: what goes in comes out, whatever the classes of the containers."""

from __future__ import annotations

import collections
import dataclasses
import typing

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphwright.values import is_named_tuple, is_record, leaves, made, map_leaves, parts, rebuild, sequence


class Point(typing.NamedTuple):
    x: typing.Any
    y: typing.Any


@dataclasses.dataclass(frozen=True, slots=True)
class Pair:
    one: typing.Any
    other: typing.Any = None


@dataclasses.dataclass
class Counted:
    items: typing.Any
    kind: typing.ClassVar[str] = "counted"
    count: int = dataclasses.field(init=False, default=0)


@dataclasses.dataclass
class Output(collections.OrderedDict):  # type: ignore[type-arg]
    """A dict and a dataclass, as the outputs of transformers are."""

    logits: typing.Any = None
    loss: typing.Any = None

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if getattr(self, field.name) is not None:
                self[field.name] = getattr(self, field.name)


class Strict(list):  # type: ignore[type-arg]
    """A list that refuses to be gone over, as one of which only a run knows the items."""

    def __iter__(self) -> typing.Any:
        raise AssertionError("read")


def counted(items: typing.Any) -> Counted:
    made = Counted(items)
    made.count = 3
    return made


def factory(items: dict[str, typing.Any]) -> typing.Any:
    return collections.defaultdict(list, items)


_ATOMS = st.one_of(st.none(), st.integers(), st.text(max_size=3), st.booleans())
_KEYS = st.text(max_size=3)


def _containers(inner: st.SearchStrategy[typing.Any]) -> st.SearchStrategy[typing.Any]:
    dicts = st.dictionaries(_KEYS, inner, max_size=3)
    return st.one_of(
        *(st.lists(inner, max_size=3), st.lists(inner, max_size=3).map(tuple), dicts),
        *(dicts.map(collections.OrderedDict), dicts.map(factory), st.builds(Point, inner, inner)),
        *(st.builds(Pair, inner, inner), inner.map(counted)),
        st.lists(st.integers(0, 9), max_size=3).map(torch.Size),
    )


VALUES = st.recursive(_ATOMS, _containers, max_leaves=8)
LITERALS = st.recursive(
    st.one_of(_ATOMS, st.builds(slice, st.integers(), st.none(), st.integers())),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(_KEYS, inner, max_size=3),
        st.builds(Point, inner, inner),
    ),
    max_leaves=8,
)


@given(VALUES)
def test_what_is_taken_apart_is_made_again(value: typing.Any) -> None:
    held = parts(value)
    if held is None:
        assert not isinstance(value, tuple | list | dict)
        return
    again = rebuild(value, held)
    assert type(again) is type(value)
    assert again == value
    assert again is not value or not held
    assert list(parts(again) or {}) == list(held)


@given(LITERALS)
def test_leaves_come_in_order_and_no_leaf_is_a_container(value: typing.Any) -> None:
    seen: list[typing.Any] = []
    assert map_leaves(lambda leaf: seen.append(leaf) or leaf, value) is value
    assert seen == leaves(value)
    assert not any(isinstance(leaf, tuple | list | dict | slice) for leaf in seen)


@given(LITERALS)
def test_mapping_there_and_back(value: typing.Any) -> None:
    boxed = map_leaves(lambda leaf: Pair(leaf), value)
    assert all(type(leaf) is Pair for leaf in leaves(boxed))
    assert map_leaves(lambda leaf: leaf.one, boxed) == value


def test_torch_s_named_results_are_tuples_made_of_one_argument() -> None:
    result = torch.ones(2, 2).max(0)
    again = rebuild(result, parts(result) or {})
    assert type(again) is type(result)
    assert all(one is other for one, other in zip(again, result, strict=True))
    assert not is_named_tuple(type(result))


def test_a_dict_that_is_a_dataclass_holds_what_the_dict_holds() -> None:
    output = Output(logits=3)
    assert parts(output) == {"logits": 3}
    again = made(Output, {"logits": 4})
    assert (again.logits, again["logits"], again.loss) == (4, 4, None)


def test_a_field_that_the_constructor_does_not_take_is_kept() -> None:
    value = Counted([1])
    value.count = 7
    assert rebuild(value, parts(value) or {}) == value
    assert "kind" not in (parts(value) or {})


def test_an_order_that_was_changed_is_kept() -> None:
    value = collections.OrderedDict(a=1, b=2)
    value.move_to_end("a")
    assert list(parts(value) or {}) == ["b", "a"]
    assert rebuild(value, parts(value) or {}) == value


def test_lists_are_read_past_what_a_subclass_says() -> None:
    assert leaves((Strict([1, 2]), 3)) == [1, 2, 3]
    assert parts(Strict([1])) == {0: 1}


NO_CONTAINERS = [3, "ab", None, {1, 2}, collections.deque([1]), slice(1, 2), Pair, torch.ones(2), range(3)]


@pytest.mark.parametrize("value", NO_CONTAINERS, ids=repr)
def test_what_is_no_container_has_no_parts(value: typing.Any) -> None:
    assert parts(value) is None


def test_records_and_sequences() -> None:
    assert (is_record(Pair(1)), is_record(Pair), is_record((1,))) == (True, False, False)
    assert sequence(Point, [1, 2]) == Point(1, 2)
    assert sequence(torch.Size, [1, 2]) == torch.Size([1, 2])
