"""Two values that become one: what is the same stays, what differs has a slot, and what cannot be joined says where."""

from __future__ import annotations

import collections
import dataclasses
import typing

import pytest

from graphwright.values import INSIDE, Container, Given, Joiner, Slot, Unlike, filled, parts


class Point(typing.NamedTuple):
    x: typing.Any
    y: typing.Any


@dataclasses.dataclass
class Pair:
    one: typing.Any
    other: typing.Any


class Numbers(Joiner):
    """Joins numbers; what else differs cannot be joined."""

    def __init__(self) -> None:
        self.slots: list[tuple[typing.Any, typing.Any]] = []

    def leaf(self, one: typing.Any, other: typing.Any, path: typing.Any) -> typing.Any:
        if one is other:
            return one
        if isinstance(one, int) and isinstance(other, int):
            self.slots.append((one, other))
            return Slot(len(self.slots) - 1)
        if type(one) is not type(other) or parts(one) is None:
            raise Unlike(f"{type(one).__name__} and {type(other).__name__}")
        return INSIDE

    def pairs(self, one: typing.Any, other: typing.Any, path: typing.Any) -> typing.Any:
        held, its = parts(one) or {}, parts(other) or {}
        if held.keys() != its.keys():
            raise Unlike("other keys")
        return {key: (held[key], its[key]) for key in held}

    def whole(self, one: typing.Any, other: typing.Any, items: typing.Any, path: typing.Any) -> typing.Any:
        return Container(one, items, (one, other))


@pytest.mark.parametrize(
    ("one", "other", "wanted"),
    [
        (1, 2, "a"),
        ([1, "x"], [2, "x"], ["a", "x"]),
        ((1, {"k": 2}), (3, {"k": 4}), ("a", {"k": "b"})),
        (Point(1, [2]), Point(3, [4]), Point("a", ["b"])),
        (Pair(1, "x"), Pair(2, "x"), Pair("a", "x")),
        (
            collections.defaultdict(list, {"k": 1}),
            collections.defaultdict(list, {"k": 2}),
            collections.defaultdict(list, {"k": "a"}),
        ),
    ],
)
def test_what_differs_is_given_by_the_graph(one: typing.Any, other: typing.Any, wanted: typing.Any) -> None:
    made = filled(Numbers().join(one, other), Given(["a", "b"]))
    assert made == wanted
    assert type(made) is type(wanted)


@pytest.mark.parametrize(
    ("one", "other", "place"),
    [
        (1, "x", ""),
        ([1, {"k": 1}], [1, {"k": "x"}], "[1]['k']"),
        (Point(1, Pair(1, 2)), Point(1, Pair(1, "x")), ".y.other"),
        ({"k": (1, 2)}, {"k": (1, 2, 3)}, "['k']"),
    ],
)
def test_what_cannot_be_joined_says_where(one: typing.Any, other: typing.Any, place: str) -> None:
    with pytest.raises(Unlike) as caught:
        Numbers().join(one, other)
    assert caught.value.place == place
    assert str(caught.value.of("v")).startswith(f"'v'{place}: ")


def test_one_container_is_made_of_a_template_however_often_it_stands_somewhere() -> None:
    template = Container([1], {0: Slot(0)})
    given = Given(["a"])
    made = filled(Container((), {0: template, 1: template}), given)
    assert made == (["a"], ["a"])
    assert made[0] is made[1]
    assert filled(template, Given(["b"])) == ["b"]


@pytest.mark.parametrize("like", [{1, 2}, collections.deque([1, 2], 2)], ids=["set", "deque"])
def test_what_has_no_keys_is_made_of_its_items(like: typing.Any) -> None:
    made = filled(Container(like, dict.fromkeys((1, 2)) if isinstance(like, set) else {0: 1, 1: 2}), Given([]))
    assert made == like
    assert made is not like
    assert getattr(made, "maxlen", None) == getattr(like, "maxlen", None)
