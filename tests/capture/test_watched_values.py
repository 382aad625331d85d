"""What variables outside lead to is looked at again where it has changed, and only there."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from graphwright import trace
from graphwright.capture.effects.variables import Variables
from graphwright.capture.effects.watched_values import WatchedOutside, WatchedValues


class Names:
    """Whose attribute is the variable."""


def counter() -> Callable[[int], int]:
    rows = [0]

    def count(step: int) -> int:
        nonlocal rows
        rows = [*rows, step]
        return len(rows)

    return count


def watched(value: Any) -> WatchedOutside:
    Names.held = value  # type: ignore[attr-defined]
    variables = Variables(Names, Names, "Names")
    variables.watch("held")
    return WatchedOutside(lambda: [variables])


def append(held: Any) -> None:
    held[0].append(1)


def reorder(held: Any) -> None:
    held.move_to_end("a")


def take(held: Any) -> None:
    next(held["rows"])


CHANGES = [
    pytest.param([[]], append, id="list"),
    pytest.param(collections.OrderedDict(a=1, b=2), reorder, id="order"),
    pytest.param({"rows": iter([1, 2, 3])}, take, id="iterator"),
    pytest.param({"one": {1}}, lambda held: held["one"].add(2), id="set"),
    pytest.param([collections.deque()], append, id="deque"),
    pytest.param(counter(), lambda held: held(1), id="cell"),
    pytest.param([1], lambda held: setattr(Names, "held", [1]), id="variable"),
]


@pytest.mark.parametrize(("value", "change"), CHANGES)
def test_what_is_outside_is_looked_at_again_where_it_has_changed(value: Any, change: Callable[[Any], Any]) -> None:
    outside = watched(value)
    _, found = outside.look()
    assert outside.look()[1] is found
    change(value)
    _, now = outside.look()
    assert now is not found
    assert outside.look()[1] is now


def test_what_is_seen_already_is_not_noted_twice() -> None:
    inner: list[Any] = []
    known, further = WatchedValues(), WatchedValues()
    known.watch([inner])
    further.watch({"inner": inner})
    known.take(further)
    assert sum(container is inner for container, _ in known.containers) == 1
    assert len(known.containers) == 3


class Box:
    def __init__(self) -> None:
        self.rows: list[int] = []


@pytest.mark.parametrize("make", [Box, lambda: nn.Linear(1, 1)])
def test_what_objects_and_modules_hold_is_not_noted_twice(make: Callable[[], Any]) -> None:
    value = make()
    known, further, alone = WatchedValues(), WatchedValues(), WatchedValues()
    known.watch(value)
    further.watch([value])
    alone.watch(value)
    known.take(further)
    assert len(known.containers) == len(alone.containers) + 1


ROWS: list[int] = []


def grows(x: torch.Tensor) -> tuple[torch.Tensor, int]:
    for _ in range(3):
        if x.sum() > 0:
            x = x - 1
        ROWS.append(1)
    return x, len(ROWS)


def test_a_list_outside_that_changes_between_branches() -> None:
    ROWS.clear()
    gm = trace(grows, (torch.ones(2),))
    for value in (torch.ones(2), -torch.ones(2), torch.full((2,), 5.0)):
        ROWS.clear()
        expected = grows(value)
        ROWS.clear()
        got = gm(value)
        torch.testing.assert_close(got[0], expected[0])
        assert got[1] == expected[1] == len(ROWS)


class Parts(tuple[int, ...]):
    def __len__(self) -> int:
        raise NotImplementedError


def test_a_tuple_whose_class_knows_no_length() -> None:
    parts = Parts((1, 2))

    def program(x: torch.Tensor) -> torch.Tensor:
        return x + parts[0] if x.sum() > 0 else x - parts[1]

    gm = trace(program, (torch.ones(2),))
    for value in (torch.ones(3), -torch.ones(2)):
        assert torch.equal(gm(value), program(value))
