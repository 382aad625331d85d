"""Dtypes of inputs and parameters that a program compares: a call checks how they compare, and nothing else of them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from graphwright import load, save, trace
from graphwright.errors import GuardError


class Projection(nn.Module):
    """A layer that takes inputs of other dtypes, as those of images do."""

    def __init__(self, use: Callable[[Projection, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2)
        self.use = use

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(self.use(self, x))


def compared(self: Projection, x: torch.Tensor) -> torch.Tensor:
    if x.dtype != self.inner.weight.dtype:
        x = x.to(self.inner.weight.dtype)
    return x * 2


def compared_by_a_variable(self: Projection, x: torch.Tensor) -> torch.Tensor:
    expected = self.inner.weight.dtype
    if x.dtype != expected:
        x = x.to(expected)
    return x * 2


def compared_the_other_way(self: Projection, x: torch.Tensor) -> torch.Tensor:
    kind = x.dtype
    return x * 2 if self.inner.bias.dtype is kind else x.to(self.inner.bias.dtype) * 3


USES = [compared, compared_by_a_variable, compared_the_other_way]
X = torch.ones(3, 2)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
@pytest.mark.parametrize("use", USES)
def test_a_captured_module_is_converted(use: Callable[..., Any], dtype: torch.dtype, tmp_path: Any) -> None:
    model = Projection(use)
    gm = trace(model, X)
    converted, eager = copy.deepcopy(gm).to(dtype), copy.deepcopy(model).to(dtype)
    torch.testing.assert_close(converted(X.to(dtype)), eager(X.to(dtype)))
    with pytest.raises(GuardError, match=r"dtype|weight|bias"):
        converted(X)
    save(gm, tmp_path / "model.gw")
    loaded = load(tmp_path / "model.gw", allow=[__name__]).to(dtype)
    torch.testing.assert_close(loaded(X.to(dtype)), eager(X.to(dtype)))
    assert gm.code.count("expect(") == 1


@pytest.mark.parametrize("use", USES)
def test_the_other_answer_is_captured_too(use: Callable[..., Any]) -> None:
    model = Projection(use)
    gm = trace(model, X.double())
    torch.testing.assert_close(gm(X.double()), model(X.double()))
    torch.testing.assert_close(gm(X.half()), model(X.half()))
    with pytest.raises(GuardError):
        gm(X)


def changed_between(self: Projection, x: torch.Tensor) -> torch.Tensor:
    kind = x.dtype
    x = x.double()
    return x.float() if self.inner.weight.dtype == kind and x.dtype != kind else x.float() * 3


OUTSIDE = torch.ones(3, 2)


def compared_with_what_is_outside(self: Projection, x: torch.Tensor) -> torch.Tensor:
    kind, y = self.inner.weight.dtype, x
    x = OUTSIDE
    return y * 2 if x.dtype == kind else y.float().to(kind) * 3


def another_in_each_turn(self: Projection, x: torch.Tensor) -> torch.Tensor:
    kind, y = self.inner.weight.dtype, x
    for each in (x, x.double()):
        y = y * 2 if each.dtype == kind else y * 3
    return y.to(kind)


def said_too(self: Projection, x: torch.Tensor) -> torch.Tensor:
    if x.dtype == self.inner.weight.dtype and str(x.dtype) == "torch.float32":
        return x * 2
    return x.to(self.inner.weight.dtype) * 3


@pytest.mark.parametrize("use", [changed_between, compared_with_what_is_outside, another_in_each_turn, said_too])
def test_what_else_is_asked_is_taken_for_granted(use: Callable[..., Any]) -> None:
    model = Projection(use)
    gm = trace(model, X)
    torch.testing.assert_close(gm(X), model(X))
    for dtype in (torch.float64, torch.bfloat16):
        eager = copy.deepcopy(model).to(dtype)
        try:
            result = copy.deepcopy(gm).to(dtype)(X.to(dtype))
        except GuardError:
            continue
        torch.testing.assert_close(result, eager(X.to(dtype)))
    with pytest.raises(GuardError):
        gm.to(torch.float64)(X.double())
