"""How far results are off of others: the largest difference, and signal to noise."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Numerics:
    """How far some values are off: the largest difference, and the sums of the squares of values and differences."""

    largest: float
    signal: float
    noise: float

    @property
    def decibels(self) -> float:
        """Signal to noise, in dB; infinite where there is no difference."""
        if self.noise == 0:
            return math.inf
        return 10 * math.log10(self.signal / self.noise) if self.signal else -math.inf

    def __add__(self, other: Numerics) -> Numerics:
        return Numerics(max(self.largest, other.largest), self.signal + other.signal, self.noise + other.noise)

    def __str__(self) -> str:
        return "exact" if self.noise == 0 else f"{self.largest:.1e}, {self.decibels:.0f} dB"


def numerics(pairs: Iterable[tuple[Tensor, Tensor]]) -> Numerics:
    """Compare values with those that are expected, given first.

    >>> print(numerics([(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0]))]))
    exact
    >>> print(numerics([(torch.tensor([3.0, 4.0]), torch.tensor([3.0, 4.05]))]))
    5.0e-02, 40 dB
    """
    found = Numerics(0.0, 0.0, 0.0)
    for expected, given in pairs:
        one, other = expected.detach().to(torch.float64), given.detach().to(torch.float64)
        if not one.numel():
            continue
        difference = one - other
        found += Numerics(difference.abs().max().item(), one.square().sum().item(), difference.square().sum().item())
    return found
