"""What a first call leaves together, and calls that find it."""

from __future__ import annotations

from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn

import graphwright
from graphwright import GuardError


class Anchors(nn.Module):
    """Attributes of the class, of another rank than what is made, as detectors have them."""

    shape = None
    anchors = torch.empty(0)
    strides = torch.empty(0)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            return x
        if self.shape != x.shape:
            self.anchors, self.strides = (each.t() for each in (torch.ones(x.shape[1], 2), torch.ones(x.shape[1], 1)))
            self.shape = x.shape
        return x * self.anchors[0].cumsum(0) * self.strides


class Shapes(nn.Module):
    """A list of sizes that is empty first, and an attribute that is not there."""

    shapes: ClassVar[list[list[int]]] = []

    def forward(self, x: Tensor) -> Tensor:
        shapes = [[each.shape[0], each.shape[1]] for each in (x, x[:1])]
        if self.shapes != shapes:
            self.anchors = torch.cat([torch.arange(h * w) * 1.0 for h, w in shapes])
            self.shapes = shapes
        return x.sum() * self.anchors


class Rotary(nn.Module):
    """Tables that grow: a None that is asked for, and another that must not be compared."""

    def __init__(self) -> None:
        super().__init__()
        self.length = self.cos = self.sin = None

    def forward(self, x: Tensor) -> Tensor:
        n = x.shape[1]
        if self.cos is None or n > self.length:
            angles = torch.arange(n) * torch.ones(3, 1)
            self.length, self.cos, self.sin = n, angles.cos(), angles.sin()
        return x * self.cos[0, :n] + self.sin[0, :n]


class RotaryOfKind(Rotary):
    """The same, with a text that says how they were made."""

    def __init__(self) -> None:
        super().__init__()
        self.made_by: str | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.cos is None or x.shape[1] > self.length:
            self.made_by = "ones"
        x = super().forward(x)
        return x * len(self.made_by)  # type: ignore[arg-type]


class Flag(nn.Module):
    """A flag, and a tensor that is of another rank before it is set."""

    def __init__(self) -> None:
        super().__init__()
        self.is_ready, self.table = False, torch.empty(0)

    def forward(self, x: Tensor) -> Tensor:
        if not self.is_ready:
            self.table, self.is_ready = torch.outer(torch.arange(5.0), x[0, :2]), True
        return x[:, :1] * self.table


class Sizes(nn.Module):
    """Two numbers that are set together."""

    def __init__(self) -> None:
        super().__init__()
        self.h = self.w = None

    def forward(self, x: Tensor) -> Tensor:
        if (self.h, self.w) != x.shape:
            self.h, self.w = x.shape
            self.mask = torch.ones(self.h, self.w).cumsum(0)
        return x * self.mask


class Either(nn.Module):
    """Two tables, each made by the first call that needs it."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = self.narrow = None
        self.of_wide, self.of_narrow = torch.empty(0), torch.empty(0)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[1] > 6:
            if self.wide != x.shape[1]:
                self.of_wide, self.wide = torch.ones(x.shape[1], 2).cumsum(0), x.shape[1]
            return x @ self.of_wide
        if self.narrow != x.shape[1]:
            self.of_narrow, self.narrow = torch.ones(x.shape[1], 3).cumsum(0), x.shape[1]
        return x @ self.of_narrow


ROWS = [5, 5, 7, 7, 5, 3, 8]


@pytest.mark.parametrize("kind", [Anchors, Shapes, Rotary, RotaryOfKind, Sizes, Either])
@pytest.mark.parametrize("is_over", [False, True], ids=["new", "called before"])
def test_calls_of_other_sizes(kind: type[nn.Module], is_over: bool) -> None:
    module = kind().eval()
    if is_over:
        module(torch.ones(2, 4))
    gm = graphwright.trace(module, (torch.randn(2, 5),))
    for n in ROWS:
        x = torch.randn(3, n)
        torch.testing.assert_close(gm(x), module(x), rtol=0, atol=0)


def test_a_flag_is_set_once() -> None:
    module = Flag()
    gm = graphwright.trace(module, (torch.randn(5, 5),))
    assert [node.target for node in gm.graph.all_nodes()].count(torch.outer) == 1 and "if not self.is_ready:" in gm.code
    for _ in range(3):
        x = torch.randn(5, 5)
        torch.testing.assert_close(gm(x), module(x), rtol=0, atol=0)


def test_a_call_that_sets_nothing_is_none() -> None:
    module = Anchors().eval()
    gm = graphwright.trace(module, (torch.randn(2, 5),))
    for is_training, n in (True, 5), (False, 5), (True, 7), (False, 7), (False, 7):
        x = torch.randn(2, n)
        torch.testing.assert_close(gm.train(is_training)(x), module.train(is_training)(x), rtol=0, atol=0)


def test_half_of_what_is_set_together_is_told() -> None:
    gm = graphwright.trace(Rotary(), (torch.randn(2, 5),))
    gm(torch.randn(2, 5))
    gm.cos = None
    with pytest.raises(GuardError, match="with the others"):
        gm(torch.randn(2, 5))
    gm.length = gm.sin = None
    gm(torch.randn(2, 6))


class Other(Flag):
    """The tensor that a later call leaves is of one more kind."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.is_ready:
            self.table, self.is_ready = torch.outer(torch.arange(5.0), x[0, :2]), True
            return x
        self.table = self.table.sum(-1)
        return x + self.table.sum()


def test_what_later_calls_leave_counts() -> None:
    x, gm = torch.randn(5, 5), graphwright.trace(Other(), (torch.randn(5, 5),))
    assert torch.equal(gm(x), x)
    with pytest.raises(GuardError, match="is_ready is False before the first call"):
        gm(x)
