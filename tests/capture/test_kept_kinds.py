"""Attributes that begin as a number, or as a tensor of another rank, and hold a tensor after the first call."""

from __future__ import annotations

import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import graphwright


class Starts(nn.Module):
    """Runs one of the ways below on what it holds, which begins as what `start` makes."""

    def __init__(self, way: Any, start: Any) -> None:
        super().__init__()
        self.way, self.start = way, start
        self.register_buffer("buffer", torch.zeros(0), persistent=False)
        self.reset()

    def reset(self) -> None:
        self.held, self.buffer = self.start(), torch.zeros(0)
        self.inside = SimpleNamespace(held=self.start())

    def forward(self, x: Tensor) -> Any:
        return self.way(self, x)


def membrane(self: Any, x: Tensor) -> Any:  # of snntorch
    if not self.held.shape == x.shape:
        self.held = torch.zeros_like(x)
    self.held = 0.9 * self.held + x
    return (self.held > 1).float()


def buffered(self: Any, x: Tensor) -> Any:
    if not self.buffer.shape == x.shape:
        self.buffer = torch.zeros_like(x)
    self.buffer = 0.9 * self.buffer + x
    return (self.buffer > 1).float()


def of_an_object(self: Any, x: Tensor) -> Any:
    self.inside.held = 0.9 * self.inside.held + x.mean(0)
    return x + self.inside.held


def potential(self: Any, x: Tensor) -> Any:  # of spikingjelly
    if isinstance(self.held, float):
        self.held = torch.full_like(x[0], self.held)
    self.held = self.held + (x.mean(0) - self.held) / 2.0
    spike = (self.held >= 1.0).float()
    self.held = (1.0 - spike) * self.held
    return spike


def added_up(self: Any, x: Tensor) -> Any:
    self.held = self.held * 0.5 + x.sum()
    return x / self.held


def per_column(self: Any, x: Tensor) -> Any:
    self.held = self.held * 0.5 + x.mean(0)
    return x + self.held


def streamed(self: Any, x: Tensor) -> Any:
    self.held = torch.cat([self.held, x])[-5:]
    return self.held.sum(0)


def asked_for_its_number(self: Any, x: Tensor) -> Any:
    self.held = x if self.held.numel() == 0 else torch.cat([self.held[-2:], x])
    return self.held.sum(0)


ZERO, EMPTY = (lambda: 0.0), (lambda: torch.zeros(0))
CASES: list[tuple[Any, Any]] = [
    (membrane, EMPTY), (buffered, EMPTY), (of_an_object, ZERO), (of_an_object, lambda: torch.zeros(())),
    (potential, ZERO), (added_up, ZERO), (added_up, lambda: 0), (per_column, ZERO), (streamed, EMPTY),
    (per_column, lambda: torch.tensor(0)), (per_column, lambda: torch.zeros(())), (asked_for_its_number, EMPTY),
]  # fmt: skip


@pytest.mark.parametrize(
    ("way", "start"), [pytest.param(*each, id=f"{each[0].__name__} {i}") for i, each in enumerate(CASES)]
)
@pytest.mark.parametrize("door", ["called", "called before", "loaded", "example of a later call"])
def test_the_first_call_and_later_ones_are_right(way: Any, start: Any, door: str, tmp_path: Path) -> None:
    model = Starts(way, start)
    if door == "example of a later call":
        model(torch.ones(2, 3))
    eager = copy.deepcopy(model)
    gm: Any = graphwright.trace(model, (torch.ones(2, 3),))
    if door == "called before":
        for each in (eager, gm):
            each(torch.ones(2, 3))
            each.reset()
    if door == "loaded":
        graphwright.save(gm, tmp_path / "held.gw", as_plain=True)
        gm = graphwright.load(tmp_path / "held.gw", allow=[__name__])
    for call, rows in enumerate((2, 2, 4, 4, 1)):
        x = torch.arange(3.0 * rows).view(rows, 3) * (call + 1) / 7
        for each in (eager, gm):
            each.train(call % 2 == 0)
            if call == 3 and door.startswith("called"):
                each.reset() if each is eager else Starts.reset(each)
        assert torch.equal(gm(x), eager(x))


class Layers(nn.Module):
    """Several that begin so, which one call sets together."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Starts(membrane, EMPTY) for _ in range(count)])

    def forward(self, x: Tensor) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x


@pytest.mark.parametrize("count", [2, 5])
def test_several_begin_together(count: int) -> None:
    model = Layers(count)
    eager = copy.deepcopy(model)
    gm: Any = graphwright.trace(model, (torch.ones(2, 3),))
    for call, rows in enumerate((2, 2, 4, 1)):
        x = torch.arange(3.0 * rows).view(rows, 3) * (call + 1)
        if call == 2:
            for each in (*eager.layers, *gm.layers):
                Starts.reset(each)
        assert torch.equal(gm(x), eager(x))


def of_its_rank(self: Any, x: Tensor) -> Any:
    scale = 10.0 if self.held.dim() == 1 else 1.0
    self.held = x
    return x * scale + 1


@pytest.mark.parametrize("count", [2, 3, 5])
def test_some_begin_anew(count: int) -> None:
    model = Layers(count)
    for each in model.layers:
        each.way = of_its_rank
    eager = copy.deepcopy(model)
    gm: Any = graphwright.trace(model, (torch.ones(2, 3),))
    for call, number in enumerate((None, None, 1, 0, -1)):
        if number is not None:
            for each in (eager.layers[number], gm.layers[number]):
                Starts.reset(each)
        x = torch.ones(2, 3) * (call + 1)
        try:
            result = gm(x)
        except graphwright.GuardError:
            assert number is not None
            return
        assert torch.equal(result, eager(x))


@pytest.mark.parametrize("held", [torch.ones(2, 2, 3), "text", [1.0]], ids=["rank", "text", "list"])
def test_another_kind_than_these_is_an_error(held: Any) -> None:
    gm: Any = graphwright.trace(Starts(of_its_rank, EMPTY), (torch.ones(2, 3),))
    gm.held = held
    with pytest.raises(graphwright.GuardError, match=r"which no call of the program leaves there"):
        gm(torch.ones(2, 3))


def test_another_rank_than_these_is_none_where_nothing_asks() -> None:
    model = Starts(per_column, ZERO)
    gm: Any = graphwright.trace(copy.deepcopy(model), (torch.ones(2, 3),))
    model.held = gm.held = torch.ones(2, 2, 3)
    for _ in range(2):
        assert torch.equal(gm(torch.ones(2, 3)), model(torch.ones(2, 3)))


def test_ends_that_are_alike_are_one() -> None:
    gm: Any = graphwright.trace(Starts(asked_for_its_number, EMPTY), (torch.ones(2, 3),))
    assert "held.dim()" not in gm.code
    assert gm.code.count("torch.cat([held") == 1


def tripled(x: Tensor) -> Tensor:
    return x * 3


class MadeWhereNone(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.act: Any = None

    def forward(self, x: Tensor) -> Any:
        if self.act is None:
            self.act = tripled
        return self.act(x)


class ChosenByData(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.act: Any = torch.relu

    def forward(self, x: Tensor) -> Any:
        y = self.act(x)
        self.act = tripled if x.sum() > 0 else torch.tanh
        return y


@pytest.mark.parametrize("kind", [MadeWhereNone, ChosenByData])
def test_functions_are_state_and_others_that_somebody_puts_there_are_told(kind: Any) -> None:
    model, x = kind(), torch.ones(2)
    gm = graphwright.trace(kind(), (x,))
    for each in x, -x, x, -x, -x:
        assert torch.equal(gm(each), model(each))
    gm.act = torch.sigmoid
    with pytest.raises(graphwright.GuardError, match=r"act is"):
        gm(x)
