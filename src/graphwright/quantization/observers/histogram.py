"""The range of the least squared error.

A bin is taken to hold its values evenly spread. Then the error of a grid is an integral that has a closed form, also
where bins are coarser than the steps of the grid, as they are when one outlier has made the histogram wide.
"""

from __future__ import annotations

import torch
from torch import Tensor

from graphwright.quantization.affine import Grid
from graphwright.quantization.observers.bins import BinnedObserver
from graphwright.quantization.observers.range_search import grids_of_ranges, search_range
from graphwright.quantization.schemes import Scheme


class HistogramObserver(BinnedObserver):
    """The range whose grid makes the least mean squared error: it cuts off outliers for the sake of all other values.

    >>> from graphwright.quantization import Scheme
    >>> observer = HistogramObserver("fc1.input")
    >>> observer.observe(torch.cat([torch.linspace(0, 1, 1_000_000), torch.tensor([60.0])]))
    >>> low, high = observer.range(Scheme())
    >>> bool(high < 30)
    True
    """

    def _range(self, scheme: Scheme) -> tuple[Tensor, Tensor]:
        edges, counts = self.filled()
        if not counts.numel():
            return self.lowest, self.highest
        lowest, highest = min(float(self.lowest), 0.0), max(float(self.highest), 0.0)

        def loss(lows: Tensor, highs: Tensor) -> Tensor:
            return _squared_errors(edges, counts, grids_of_ranges(lows, highs, scheme))

        return search_range(loss, lowest, highest, scheme)

    def mean_squared_error(self, grid: Grid) -> float:
        """What quantizing the values seen by a grid with one scale would cost, in squares of their unit."""
        edges, counts = self.filled()
        if not counts.numel():
            return 0.0
        several = Grid(
            grid.scale.reshape(1), grid.zero_point.reshape(1), grid.quant_min, grid.quant_max, grid.dtype, axis=0
        )
        return float(_squared_errors(edges, counts, several)) / int(self.count)


def _squared_errors(edges: Tensor, counts: Tensor, grid: Grid) -> Tensor:
    """The sum of squared errors for each of several scales.

    The integral of the squared error from one edge to the next is a difference of its antiderivative, whose terms are
    summed by edges here: each edge ends one bin and begins another.
    """
    density = counts / (edges[1] - edges[0])
    weight = torch.zeros_like(edges)
    weight[1:] += density
    weight[:-1] -= density
    scale = grid.scale.double().cpu().unsqueeze(1)
    zero_point = grid.zero_point.double().cpu().unsqueeze(1)
    steps = edges / scale
    covered = steps.clamp(min=grid.quant_min - zero_point, max=grid.quant_max - zero_point)
    whole = covered.round()
    integral = whole / 12 + ((covered - whole) ** 3 + (steps - covered) ** 3) / 3
    return (integral @ weight) * scale.squeeze(1) ** 3
