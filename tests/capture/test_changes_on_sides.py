"""What one side of a branch changes in objects and containers of the program, the other side does not see."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any

import pytest
import torch
from torch import nn

from graphwright import trace, verify

INPUTS = (torch.ones(2), 5 * torch.ones(3), torch.tensor([-3.0, 7.0]), -torch.ones(2))


class Range:
    """What a class of the program asks when it is made is a branch like any other."""

    def __init__(self, x: torch.Tensor, limit: float = 2.0) -> None:
        if x.max() > limit:
            self.scale = x.max()
            x = x / self.scale
        else:
            self.scale = x.min()
        self.x = x

    def back(self) -> torch.Tensor:
        return self.x * self.scale


def test_objects_that_ask_when_they_are_made() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return Range(x).back() + Range(-x, limit=1.0).back()

    gm = trace(program, (torch.rand(3),))
    assert (len(gm.report.forks), len(gm.report.regions)) == (0, 2)
    for x in (torch.ones(2), 5 * torch.ones(3), torch.tensor([-3.0, 7.0])):
        assert torch.equal(gm(x), program(x))


class Box:
    def __init__(self) -> None:
        self.factor: Any = 1.0
        self.inner: Any = None

    def double(self) -> None:
        self.factor = self.factor * 2


@dataclasses.dataclass
class State:
    x: torch.Tensor
    steps: int = 0


class Output(collections.OrderedDict):  # type: ignore[type-arg]
    def update(self, *args: Any, **kwargs: Any) -> None:
        raise TypeError("not allowed")

    def clear(self) -> None:
        raise TypeError("not allowed")


def attribute(x: torch.Tensor) -> Any:
    box = Box()
    if x.sum() > 0:
        box.factor = 3.0
    else:
        box.factor = x.max()
    return x * box.factor


def method(x: torch.Tensor) -> Any:
    box = Box()
    if x.sum() > 0:
        box.double()
    return x * box.factor


def nested(x: torch.Tensor) -> Any:
    box = Box()
    box.inner = Box()
    if x.sum() > 0:
        box.inner.factor = 4.0
    return x * box.inner.factor


def fields(x: torch.Tensor) -> Any:
    state = State(x)
    if x.min() > 0:
        state.x = state.x + 1
        state.steps += 1
    if x.max() > 3:
        state.steps += 2
    return state.x * state.steps


def ordered(x: torch.Tensor) -> Any:
    output = Output(x=x)
    if x.sum() > 0:
        output["x"] = x + 1
    return output["x"] * 2


def queue(x: torch.Tensor) -> Any:
    waiting = collections.deque([x, x + 1])
    if x.sum() > 0:
        waiting[0] = x * 5
    return waiting[0] + waiting[1]


@pytest.mark.parametrize("program", [attribute, method, nested, fields, ordered, queue])
def test_a_side_changes_what_the_program_has(program: Any) -> None:
    gm = trace(program, (torch.rand(3),))
    for x in INPUTS:
        assert torch.equal(gm(x), program(x))


class Window(nn.Module):
    """Works on pieces of one size, and keeps what it computes from its bias."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size, self.bias = size, nn.Parameter(torch.randn(size))
        self.cache: dict[str, torch.Tensor] = {}

    def biases(self, key: str) -> torch.Tensor:
        if self.training:
            return self.bias * 2
        if key not in self.cache:
            self.cache[key] = self.bias * 2
        return self.cache[key]

    def inner(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.biases("cpu")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.size(-1) == self.size:
            return self.inner(x)  # makes no sense for the example, in the first of two
        padded = nn.functional.pad(x, (0, (-x.size(-1)) % self.size))
        return self.inner(padded.view(-1, self.size)).flatten()[: x.size(-1)]


def test_a_side_that_fails_for_one_layer_stays_for_another_and_leaves_no_cache() -> None:
    model = nn.Sequential(Window(4), Window(8)).eval()
    gm = trace(model, (torch.ones(8),))
    asked = ["input is a tensor of 1 dimension", "Window.inner, Window.biases", "eq was False", "rank was 1"]
    assert [guard.what for guard in gm.guards if guard.node] == asked
    for n in (8, 12, 16, 5):
        assert torch.equal(gm(torch.ones(n)), model(torch.ones(n)))


class Doubled(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if self.training else x * 3


class Checked(nn.Module):
    """Reads a training flag for the first time where a side of a branch raises, and raises later."""

    def __init__(self) -> None:
        super().__init__()
        self.part = Doubled()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.max() > 0:
            if x.min() > 0:
                y = self.part(x)
            else:
                raise ValueError("some are negative")
        else:
            y = x
        if y.sum() > 15:
            raise ValueError("too large")
        return y


def test_flags_that_are_first_read_beside_an_error_are_not_written() -> None:
    model = Checked()
    gm = trace(model, (torch.ones(3),))
    assert "training =" not in gm.code
    report = verify(model, gm, [(x,) for x in INPUTS], modes=("train", "eval"))
    assert report.ok, report
    assert [case.verdict for case in report.cases] == ["equal"] * 2 + ["raises"] * 4 + ["equal"] * 2
