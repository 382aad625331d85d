"""A histogram whose range grows with the values.

The width of a bin is a power of two, and 0 is an edge. Where a value lies outside, the width doubles until it lies
inside, and pairs of bins become one: counts stay whole numbers, and are the same in whatever order batches come.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from graphwright.quantization.observers.observer import Observer

_SIDE = 2048  # bins above 0, and as many below
_LEAST_EXPONENT = -60  # finer bins than 2 ** -60 are never needed: values there count as the bins next to 0


class BinnedObserver(Observer):
    """Counts values in bins.

    bins: how many values each holds; those that are exactly 0 are counted in `zeros` and no bin, for no grid changes
    them. exponent: the width of a bin is `2 ** exponent`.
    """

    bins: Tensor
    zeros: Tensor
    exponent: Tensor

    def __init__(self, name: str = "a value") -> None:
        super().__init__(name)
        self.register_buffer("bins", torch.zeros(2 * _SIDE, dtype=torch.int64))
        self.register_buffer("zeros", torch.zeros((), dtype=torch.int64))
        self.register_buffer("exponent", torch.full((), _LEAST_EXPONENT, dtype=torch.int64))

    @property
    def width(self) -> float:
        """Of one bin."""
        return math.ldexp(1.0, int(self.exponent))

    def _see(self, x: Tensor, low: Tensor, high: Tensor) -> None:
        self._grow(max(-float(low), float(high)))
        index = (x.reshape(-1) * (1.0 / self.width)).floor_().to(torch.int32)
        index = index.add_(_SIDE).clamp_(0, 2 * _SIDE - 1)
        bins = torch.bincount(index, minlength=2 * _SIDE)
        zeros = torch.count_nonzero(x == 0)
        bins[_SIDE] -= zeros
        self.bins += bins.to(self.bins.device)
        self.zeros += zeros.to(self.zeros.device)

    def _grow(self, largest: float) -> None:
        """Double the width until a value lies inside; a side is merged outwards from 0."""
        wanted = math.frexp(largest)[1] - (_SIDE.bit_length() - 1)
        doublings = wanted - int(self.exponent)
        if doublings <= 0:
            return
        if int(self.bins.count_nonzero()):
            merged = torch.zeros_like(self.bins)
            old = torch.arange(2 * _SIDE, device=self.bins.device) - _SIDE
            merged.index_add_(0, (old >> min(doublings, 62)) + _SIDE, self.bins)
            self.bins.copy_(merged)
        self.exponent.fill_(wanted)

    def filled(self) -> tuple[Tensor, Tensor]:
        """The edges (n + 1,) of the bins from the first to the last that holds values, and their counts (n,): float64.

        Nothing where all values are 0.
        """
        held = self.bins.nonzero().reshape(-1)
        if not held.numel():
            return torch.zeros(1, dtype=torch.float64), torch.zeros(0, dtype=torch.float64)
        first, last = int(held[0]), int(held[-1])
        edges = torch.arange(first - _SIDE, last + 2 - _SIDE, dtype=torch.float64) * self.width
        return edges, self.bins[first : last + 1].cpu().double()
