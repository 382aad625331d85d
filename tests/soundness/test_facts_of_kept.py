"""What a program asks of a tensor that it keeps itself holds in later calls, whatever an earlier one left there."""

from __future__ import annotations

import collections
import contextlib
import copy
import functools
import operator
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from graphwright import CaptureError, GuardError, trace
from graphwright.capture.typed import program


def asked(kept: Tensor, x: Tensor) -> Tensor:
    """Ask what it is of something that is made of it, for which a node reads it."""
    made = kept + 0
    return x * 2 if made.is_floating_point() else x


def asked_rank(kept: Tensor, x: Tensor) -> Tensor:
    return x * (kept + 0).dim()


def asked_alone(kept: Tensor, x: Tensor) -> Tensor:
    return x * 2 if kept.is_floating_point() else x


def asked_rank_alone(kept: Tensor, x: Tensor) -> Tensor:
    return x * 2 if kept.dim() == 2 else x


class Kept(nn.Module):
    last = torch.zeros(2, 2)  # of the class

    def __init__(self, ask: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.ask, self.attribute, self.optional = ask, torch.zeros(2, 2), None
        self.register_buffer("buffer", torch.zeros(2, 2))
        self.items, self.table, self.grows = [torch.zeros(2, 2)], {"a": torch.zeros(2, 2)}, [torch.zeros(2, 2)]


class Attribute(Kept):
    def forward(self, x: Tensor) -> Tensor:
        y = self.ask(self.attribute, x)
        self.attribute = x + 0
        return y


class Optional(Kept):
    def forward(self, x: Tensor) -> Tensor:
        y = x if self.optional is None else self.ask(self.optional, x)
        self.optional = x
        return y


class Buffer(Kept):
    def forward(self, x: Tensor) -> Tensor:
        y = self.ask(self.buffer, x)
        self.buffer = x
        return y


class Item(Kept):
    def forward(self, x: Tensor) -> Tensor:
        y = self.ask(self.items[0], x)
        self.items[0] = x
        return y


class Table(Kept):
    def forward(self, x: Tensor) -> Tensor:
        y = self.ask(self.table["a"], x)
        self.table["a"] = x
        return y


class Grows(Kept):
    def forward(self, x: Tensor) -> Tensor:
        y = self.ask(self.grows[-1], x)
        self.grows.append(x)
        return y


class OfClass(Kept):
    def forward(self, x: Tensor) -> Tensor:
        y = self.ask(OfClass.last, x)
        OfClass.last = x
        return y


class Swapped(Kept):
    def forward(self, x: Tensor) -> Tensor:
        y = self.ask(self.buffer, x)
        self.attribute, self.buffer = x, self.attribute
        return y


OTHERS = {
    asked: torch.ones(2, 2, dtype=torch.int64), asked_alone: torch.ones(2, 2, dtype=torch.int64),
    asked_rank: torch.ones(1, 2, 2), asked_rank_alone: torch.ones(1, 2, 2),
}  # fmt: skip
KEPT = [Attribute, Optional, Buffer, Item, Table, Grows, OfClass, Swapped]


@pytest.mark.parametrize("ask", OTHERS)
@pytest.mark.parametrize("kind", KEPT)
def test_what_is_kept_is_as_it_was_asked(kind: type[Kept], ask: Any) -> None:
    calls = [torch.ones(2, 2), torch.ones(2, 2), OTHERS[ask], torch.ones(2, 2), torch.ones(2, 2)]
    OfClass.last = torch.zeros(2, 2)
    gm, loud = trace(kind(ask), (torch.ones(2, 2),)), 0
    model = kind(ask)
    given = []
    for x in calls:
        try:
            given.append((x, gm(x)))
        except GuardError:  # which leaves everything as it was
            loud += 1
    OfClass.last = torch.zeros(2, 2)
    assert loud == 1
    for x, y in given:
        expected = model(x)
        assert torch.equal(y, expected) and y.dtype == expected.dtype


class Unread(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.potential: Any = 0.0

    def forward(self, x: Tensor) -> Tensor:
        self.potential = 0.0
        for _ in range(2):
            if isinstance(self.potential, float):
                self.potential = torch.full_like(x, self.potential)
            self.potential = self.potential + x
        return self.potential


def test_what_is_written_first_may_be_of_any_rank() -> None:
    gm = trace(Unread(), (torch.ones(2, 3),))
    for shape in ((2, 3), (4,), (2, 2, 2), (2, 3)):
        assert torch.equal(gm(torch.ones(shape)), Unread()(torch.ones(shape)))


@pytest.mark.parametrize("ask", OTHERS)
@pytest.mark.parametrize("name", ["attribute", "optional"])
def test_what_others_put_there_is_asked_too(name: str, ask: Any) -> None:
    gm = trace(Attribute(ask) if name == "attribute" else Optional(ask), (torch.ones(2, 2),))
    gm(torch.ones(2, 2))
    setattr(gm, name, OTHERS[ask])
    with pytest.raises(GuardError, match="which no call of the program leaves there"):
        gm(torch.ones(2, 2))


class Shifted(Kept):
    def forward(self, x: Tensor) -> Tensor:
        y = self.ask(self.items[0], x)
        self.items.append(x * 1)
        self.items.pop(0)
        return y


class Filled(Kept):
    def forward(self, x: Tensor) -> Tensor:
        y = self.ask(self.table["a"], x)
        self.table["b"] = x * 1
        return y


class Looped(Kept):
    def forward(self, x: Tensor) -> Tensor:
        y = x * 0
        for item in self.grows:
            y = y + self.ask(item, x)
        self.grows.append(x * 1)
        return y


class Listed(Kept):
    def forward(self, x: Tensor) -> Tensor:
        y = torch.stack([self.ask(item, x) for item in self.grows])
        self.grows.append(x * 1)
        return y


class Last(Kept):
    def forward(self, x: Tensor) -> Tensor:
        latest = self.grows[-2:]
        self.grows.append(x * 1)
        return self.ask(latest[-1], x)


@pytest.mark.parametrize("ask", OTHERS)
@pytest.mark.parametrize("kind", [Item, Table, Grows, Shifted, Filled, Looped, Listed, Last])
def test_what_others_put_into_what_the_program_fills_is_asked_too(kind: type[Kept], ask: Any) -> None:
    gm = trace(kind(ask), (torch.ones(2, 2),))
    gm(torch.ones(2, 2))
    held = gm.table if kind in (Table, Filled) else gm.items if kind in (Item, Shifted) else gm.grows
    held["a" if held is gm.table else -1] = OTHERS[ask]
    with pytest.raises(GuardError, match=r"no call of the program leaves|the program was captured where this was"):
        gm(torch.ones(2, 2))


def test_one_dtype_is_as_good_as_another_where_both_are_floats() -> None:
    gm, model = trace(Looped(asked), (torch.ones(2, 2),)), Looped(asked)
    for held in (gm, model):
        held.grows[0] = torch.ones(2, 2, dtype=torch.float64)
    assert torch.equal(gm(torch.ones(2, 2)), model(torch.ones(2, 2)))


class Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.counts: list[float] = [1]

    def forward(self, x: Tensor) -> Tensor:
        last = self.counts[-1]
        self.counts.append(last + 1)
        return x * last if isinstance(last, int) else x - last


def test_the_class_of_a_number_in_what_the_program_fills_is_asked() -> None:
    gm = trace(Counts(), (torch.ones(2),))
    assert torch.equal(gm(torch.ones(2)), torch.ones(2))
    gm.counts[-1] = 2.5
    with pytest.raises(GuardError, match="was of class int; now it is of class float"):
        gm(torch.ones(2))


def filled(start: Any, fill: Callable[[Any], Any], ask: Callable[[Any], Any]) -> nn.Module:
    class Filling(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.held = copy.copy(start)

        def forward(self, x: Tensor) -> Any:
            fill(self.held)
            return x, type(self.held) is type(start), type(self.held).__name__, ask(self.held)

    return Filling()


@pytest.mark.parametrize(("start", "fill"), [
    ([1], lambda held: held.append(2)), (collections.deque([1]), lambda held: held.append(2)),
    ({1: 2}, lambda held: held.update({2: 3})), ({1, 2}, lambda held: held.discard(1)),
    (collections.OrderedDict(a=1), lambda held: held.update(b=2)),
])  # fmt: skip
def test_what_the_program_fills_is_of_its_own_class(start: Any, fill: Callable[[Any], Any]) -> None:
    gm, model = trace(filled(start, fill, len), (torch.ones(2),)), filled(start, fill, len)
    for _ in range(3):
        assert gm(torch.ones(2))[1:] == model(torch.ones(2))[1:]


def _updated(method: str) -> Callable[[Any], Any]:
    def ask(held: Any) -> Any:
        found = {1, 2, 7}
        getattr(found, method)(held)
        return found

    return ask


def _by_star(held: Any) -> Any:
    return {5, *held}


def _in_place(held: Any) -> Any:
    found = {1}
    found |= held
    return found


# What functions in C read of a set past the methods of its class.
READS: list[Callable[[Any], Any]] = [
    lambda held: set(held),
    lambda held: frozenset(held),
    lambda held: {1, 5}.union(held),
    lambda held: {1, 2}.issubset(held),
    lambda held: {1, 2}.difference(held),
    lambda held: {1, 2}.isdisjoint(held),
    lambda held: set().union([3], held),
    lambda held: frozenset({1}) | held,
    lambda held: functools.reduce(set.union, [held], {1}),
    lambda held: operator.ior({1}, held),
    lambda held: {3} == held,
    lambda held: len(pickle.dumps(held)),
    lambda held: f"{held}",
    lambda held: [*held],
    *map(_updated, ("update", "difference_update", "intersection_update", "symmetric_difference_update")),
    _by_star,
    _in_place,
]


@pytest.mark.parametrize("ask", READS)
def test_a_set_that_the_program_fills_is_not_read_past_its_methods(ask: Callable[[Any], Any]) -> None:
    class Filling(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.held = {1, 2}

        def forward(self, x: Tensor) -> Any:
            self.held.discard(1)
            return x, ask(self.held)

    with pytest.raises(CaptureError, match="goes over"):
        trace(Filling(), (torch.ones(2),))


class Remembering(nn.Module):
    """Has a set to which another method than `forward` adds, which asks of it what `ask` does."""

    def __init__(self, ask: Callable[[Any], Any], name: str) -> None:
        super().__init__()
        self.held = {1, 2}
        self.ask, self.name = ask, name

    def remember(self, step: int) -> None:
        self.held.add(step)

    def forward(self, x: Tensor) -> Any:
        return x, self.ask(self.held if self.name == "held" else getattr(self, "".join([self.name, "d"])))


@pytest.mark.parametrize("name", ["held", "hel"])
@pytest.mark.parametrize("ask", READS)
def test_a_set_that_another_method_fills_is_as_it_was(ask: Callable[[Any], Any], name: str) -> None:
    model = Remembering(ask, name)
    gm = trace(model, (torch.ones(2),))
    assert gm(torch.ones(2))[1] == model(torch.ones(2))[1]
    gm.held.add(7)
    with pytest.raises(GuardError, match="held"):
        gm(torch.ones(2))


@pytest.mark.parametrize(("held", "other"), [([3], [3, 4]), ((3,), (3, 4)), ({"a": 3}, {"a": 4}), ({3}, {4})])
def test_containers_under_names_that_are_computed(held: Any, other: Any) -> None:
    class Looking(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.steps_in_all = held

        def forward(self, x: Tensor) -> Tensor:
            steps = getattr(self, "_".join(["steps", "in", "all"]))
            return x * sum(steps.values() if isinstance(steps, dict) else steps)

    gm = trace(Looking(), (torch.ones(2),))
    assert torch.equal(gm(torch.ones(2)), torch.full((2,), 3.0))
    gm.steps_in_all = other
    with pytest.raises(GuardError, match="steps_in_all"):
        gm(torch.ones(2))


class Idle(Remembering):
    def forward(self, x: Tensor) -> Any:
        return x


def test_no_call_is_watched_for_a_set_that_the_program_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = []
    monkeypatch.setattr(program, "watching", lambda *about: watched.append(about) or contextlib.nullcontext())
    trace(Idle(len, "held"), (torch.ones(2),))
    assert not watched
    trace(Remembering(len, "held"), (torch.ones(2),))
    assert watched
