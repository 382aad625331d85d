"""The range of the least loss, for any loss of a range: coarse candidates first, then finer ones about the best."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor

from graphwright.quantization.affine import Grid, grid_of_range
from graphwright.quantization.schemes import PerAxis, Scheme

Loss = Callable[[Tensor, Tensor], Tensor]  # of ranges from low (n,) to high (n,), the loss of each


def search_range(loss: Loss, lowest: float, highest: float, scheme: Scheme) -> tuple[Tensor, Tensor]:
    """Find the range within bounds, lowest <= 0 <= highest, whose loss is the least: one number each.

    Both bounds are shrunk by the same factor first, down to a thousandth; then, unless the scheme is symmetric, each
    by itself, twice, the second time in small steps. Losses are seldom convex: the result is the best one tried.
    """
    full_low, full_high = torch.tensor(lowest).double(), torch.tensor(highest).double()
    low, high, least = full_low, full_high, torch.tensor(float("inf"), dtype=torch.float64)

    def attempt(lows: Tensor, highs: Tensor) -> None:
        nonlocal low, high, least
        lows, highs = torch.broadcast_tensors(lows.clamp(min=lowest, max=0.0), highs.clamp(min=0.0, max=highest))
        losses = loss(lows, highs)
        best = int(losses.argmin())
        if losses[best] < least:
            low, high, least = lows[best], highs[best], losses[best]

    coarse = torch.cat([torch.logspace(-3, -1.1, 12), torch.linspace(0.1, 1.0, 61)]).double()
    attempt(full_low * coarse, full_high * coarse)
    about = torch.linspace(0.98, 1.02, 9).double()
    attempt(low * about, high * about)
    if lowest < 0.0 < highest and not scheme.is_symmetric:
        for near in (torch.linspace(0.4, 1.6, 41).double(), torch.linspace(0.95, 1.05, 21).double()):
            attempt(low * near, high)
            attempt(low, high * near)
            attempt(low * about, high * about)
    return low.float(), high.float()


def grids_of_ranges(lows: Tensor, highs: Tensor, scheme: Scheme) -> Grid:
    """The grids of several ranges, as one with as many scales."""
    return grid_of_range(lows, highs, dataclasses.replace(scheme, granularity=PerAxis(0)))
