"""Tensors that are given another shape in place: their sizes before and after are two numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from graphwright import CaptureError, GuardError, trace


def out(x: Tensor, kept: Tensor) -> Any:
    before = kept.shape[0]
    torch.add(x, x, out=kept)
    return x * before + kept.shape[0] + kept.numel()


def several(x: Tensor, kept: Tensor) -> Any:
    places = torch.empty(0, dtype=torch.long)
    before = len(places)
    torch.sort(x, out=(kept, places))
    return x * before + len(places) + len(kept)


def like(x: Tensor, kept: Tensor) -> Any:
    before = kept.numel()
    torch.resize_as_(kept, x).fill_(1.0)
    return x * before + kept.numel()


def operator(x: Tensor, kept: Tensor) -> Any:
    before = kept.size(0)
    torch.ops.aten.unsqueeze_(kept, 0)
    return x * before + kept.size(0)


def data(x: Tensor, kept: Tensor) -> Any:
    before = kept.shape[0]
    kept.data = torch.cat([x, x])
    return x * before + kept.shape[0]


def method(x: Tensor, kept: Tensor) -> Any:
    before = kept.shape[0] + kept.numel()
    kept.resize_(2, len(x)).fill_(1.0)
    return x * before + kept.shape[0] + kept.numel()


def on_one_side(x: Tensor, kept: Tensor) -> Any:
    before = kept.shape[0]
    if x.sum() > 0:
        torch.cat([x, x, x], out=kept)
    return x * before + kept.shape[0]


def in_a_loop(x: Tensor, kept: Tensor) -> Any:
    total = torch.zeros(())
    while total < 10:
        total = total + kept.shape[0] + 1
        torch.cat([x, x], out=kept)
    return x * total + kept.shape[0]


@pytest.mark.parametrize("program", [out, several, like, operator, data, method, on_one_side, in_a_loop])
@pytest.mark.parametrize("size", [0, 3])  # 3: what is there has the shape that it is given, or the same number of rows
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_sizes_are_those_of_their_time(program: Callable[..., Any], size: int) -> None:
    gm = trace(program, (torch.ones(3), torch.zeros(size)))
    for x in (torch.ones(3), torch.ones(5), -torch.ones(4)):
        mine, theirs = torch.zeros(size), torch.zeros(size)
        assert torch.equal(gm(x, mine), program(x, theirs))
        assert torch.equal(mine, theirs)


def rank_out(x: Tensor, kept: Tensor) -> Any:
    torch.add(x, x, out=kept)
    return x * kept.dim()


def rank_of_data(x: Tensor, kept: Tensor) -> Any:
    kept.data = x.sum(0)
    return x * len(kept.shape)


@pytest.mark.parametrize("program", [rank_out, rank_of_data])
def test_the_rank_is_that_of_what_gives_the_shape(program: Callable[..., Any]) -> None:
    gm = trace(program, (torch.ones(3), torch.zeros(0)))
    assert torch.equal(gm(torch.ones(5), torch.zeros(0)), program(torch.ones(5), torch.zeros(0)))
    with pytest.raises(GuardError, match="'x' was a tensor of 1 dimension"):
        gm(torch.ones(2, 3), torch.zeros(0))


class Kept(nn.Module):
    def __init__(self, asks: bool) -> None:
        super().__init__()
        self.asks = asks
        self.register_buffer("total", torch.zeros(0))

    def forward(self, x: Tensor) -> Tensor:
        torch.cat([x, x], out=self.total)
        return x + (self.total.shape[0] if self.asks else self.total.sum())


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_a_tensor_of_the_module_is_not_asked_afterwards() -> None:
    with pytest.raises(CaptureError, match=r"asks for the shape of total after.*\n.*self\.total\.shape\[0\]"):
        trace(Kept(True), torch.ones(3))
    model, gm = Kept(False), trace(Kept(False), torch.ones(3))
    for x in (torch.ones(3), torch.ones(5)):
        assert torch.equal(model(x), gm(x))


class Graded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        self.weight.grad = None
        return x * self.weight.shape[0] + self.weight


def test_a_gradient_that_is_taken_away_reshapes_nothing() -> None:
    gm = trace(Graded(), torch.ones(3))
    assert "self.weight.grad = None" in gm.code
    gm.weight.grad = torch.ones(3)
    assert torch.equal(gm(torch.ones(3)), torch.full((3,), 4.0))
    assert gm.weight.grad is None


def assigned(x: Tensor, y: Tensor) -> Tensor:
    x.data = torch.cat([y, y])
    return x * x.shape[0]


def test_assigned_data_is_written_so() -> None:
    gm = trace(assigned, (torch.ones(3), torch.ones(2)))
    assert "x.data = torch.cat([y, y])" in gm.code
    mine, theirs = torch.ones(3), torch.ones(3)
    assert torch.equal(gm(mine, torch.ones(5)), assigned(theirs, torch.ones(5)))
    assert torch.equal(mine, theirs)
