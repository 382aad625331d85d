"""Values rounded in each call, as `quantize` and `dequantize` will round them, in a range that training finds."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graphwright.quantization.affine import Grid, grid_of_range
from graphwright.quantization.algorithms.learned_steps import learned_fake_quantize
from graphwright.quantization.grids import grid_for, range_of
from graphwright.quantization.observers.min_max import MovingAverageObserver
from graphwright.quantization.schemes import Scheme
from graphwright.quantization.training.straight_through import round_to_grid

_LEAST_SCALE = 1e-12


class FakeQuantize(MovingAverageObserver):
    """Rounds values to the grid of the range that batches have on the average; that moves in training only.

    values: the names of its values in the program that `convert` starts from. rounds: whether it rounds at all.
    is_observing, is_rounding: switches. Before the first batch, values go through as they are.

    >>> rounding = FakeQuantize(Scheme())
    >>> rounding(torch.tensor([0.0, 0.1, 2.55])), rounding.eval()(torch.tensor([0.123, 9.0]))
    (tensor([0.0000, 0.1000, 2.5500]), tensor([0.1200, 2.5500]))
    """

    def __init__(self, scheme: Scheme, name: str = "a value", constant: float = 0.01) -> None:
        super().__init__(name, constant)
        self.scheme = scheme
        self.values: tuple[str, ...] = ()
        self.rounds = self.is_observing = self.is_rounding = True

    def forward(self, x: Tensor) -> Tensor:
        """See values, in training, and round them."""
        if self.training and self.is_observing:
            self.observe(x)
        return self.rounded(x) if self.rounds and self.is_rounding and int(self.count) else x

    def rounded(self, x: Tensor) -> Tensor:
        """Round values to the grid."""
        return round_to_grid(x, self.grid())

    def grid(self) -> Grid:
        """The grid that `convert` gives to the value, too."""
        low, high = self.range(self.scheme)
        found = grid_for(range_of(low, high, 0.0), self.scheme)
        scale, zero_point = torch.tensor(found.scale), torch.tensor(found.zero_point, dtype=torch.int32)
        return Grid(scale.to(low.device), zero_point.to(low.device), *self.scheme.bounds, self.scheme.dtype)


class LearnedFakeQuantize(FakeQuantize):
    """Rounds values by a scale that is a parameter, and learned as others are; the first batch says where it starts.

    Source: Esser et al., arXiv:1902.08153.
    """

    zero_point: Tensor

    def __init__(self, scheme: Scheme, name: str = "a value") -> None:
        super().__init__(scheme, name)
        self.scale = nn.Parameter(torch.ones(()))
        self.register_buffer("zero_point", torch.zeros((), dtype=torch.int32))

    def _see(self, x: Tensor, low: Tensor, high: Tensor) -> None:
        super()._see(x, low, high)
        if not int(self.count):
            grid = grid_of_range(low, high, self.scheme)
            self.scale.copy_(grid.scale)
            self.zero_point.copy_(grid.zero_point)

    def rounded(self, x: Tensor) -> Tensor:
        """Round values to the grid of the scale."""
        scale = self.scale.clamp(min=_LEAST_SCALE)
        return learned_fake_quantize(x, scale, self.zero_point, *self.scheme.bounds)

    def grid(self) -> Grid:
        """The grid of the scale as it is."""
        scale = self.scale.detach().clamp(min=_LEAST_SCALE)
        return Grid(scale, self.zero_point, *self.scheme.bounds, self.scheme.dtype)

    def _range(self, scheme: Scheme) -> tuple[Tensor, Tensor]:
        grid = self.grid()
        return (grid.quant_min - grid.zero_point) * grid.scale, (grid.quant_max - grid.zero_point) * grid.scale
