"""A capture that starts again goes over the same operations, on stand-ins of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from graphwright import trace


class Asking(nn.Module):
    """Does something, then asks in two functions, which takes three passes."""

    def __init__(self, begin: Callable[..., Any]) -> None:
        super().__init__()
        self.begin = begin
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        y = self.begin(self.linear(x), x)
        y = y * 2 if y.sum() > 0 else y - 1
        return self.late(y) + x

    def late(self, y: Any) -> Any:
        return y / 2 if y.max() > 3 else y + y.shape[0]


def written(y: Any, x: Any) -> Any:
    z = x.clone()
    z += y
    z.mul_(2)
    return z


def turned(y: Any, x: Any) -> Any:
    z = x.clone()
    z.transpose_(0, 1)
    return y @ z


def made_twice(y: Any, x: Any) -> Any:
    a, b = torch.zeros(4), torch.zeros(4)
    a += y.sum()
    return y + a + b


def without_grad(y: Any, x: Any) -> Any:
    with torch.no_grad():
        a = x * y
    return a + x * y


def drawn(y: Any, x: Any) -> Any:
    return y + torch.zeros_like(torch.rand(4)) + nn.functional.relu(y.clone(), True)


BEGINNINGS = [lambda y, x: y + x, written, turned, made_twice, without_grad, drawn]


@pytest.mark.parametrize("begin", BEGINNINGS)
def test_passes_that_repeat_what_came_before(begin: Callable[..., Any]) -> None:
    model = Asking(begin)
    gm = trace(model, torch.randn(4, 4))
    assert gm.report.facts.passes == 2
    for scale in (-3.0, 0.1, 3.0):
        x = (torch.randn(4, 4) * scale).requires_grad_()
        expected = model(x)
        assert torch.equal(gm(x), expected)
        mine, its = (torch.autograd.grad(run(x).sum(), x)[0] for run in (gm, model))
        assert torch.equal(mine, its)


def test_what_is_not_torchs_runs_in_each_pass() -> None:
    calls: list[int] = []

    class Counting(nn.Module):
        def forward(self, x: Any) -> Any:
            calls.append(len(calls))
            return x + 1

    counting = Counting()
    model = Asking(lambda y, x: counting(y))
    model.counting = counting
    gm = trace(model, torch.randn(4, 4), leaf_modules=[Counting, nn.Linear])
    assert len(calls) == gm.report.facts.passes == 2
