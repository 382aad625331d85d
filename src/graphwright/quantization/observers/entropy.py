"""The range that keeps most of the distribution, by the divergence of Kullback and Leibler."""

from __future__ import annotations

import torch
from torch import Tensor

from graphwright.quantization.affine import Grid
from graphwright.quantization.observers.bins import BinnedObserver
from graphwright.quantization.observers.range_search import grids_of_ranges, search_range
from graphwright.quantization.schemes import Scheme

_LEAST_PROBABILITY = 1e-9  # of a bin that the quantized distribution lost: its logarithm stays finite


class EntropyObserver(BinnedObserver):
    """The range whose integers tell most of how values are distributed.

    The distribution of the bins, with what is cut off counted in the outermost ones that are kept, is compared with
    what integers leave of it: the bins that one integer stands for have the mean of those that hold values. Values
    that are exactly 0 are left out, for each grid has 0. A range has at least as many bins as there are integers: with
    fewer, nothing that is kept would change, and the comparison would say nothing.

    Source: Migacz, "8-bit Inference with TensorRT", GTC 2017.
    """

    def _range(self, scheme: Scheme) -> tuple[Tensor, Tensor]:
        edges, counts = self.filled()
        if not counts.numel():
            return self.lowest, self.highest
        held = counts > 0
        middles, counts = ((edges[1:] + edges[:-1]) / 2)[held], counts[held]
        fewest = min(self.width * (scheme.quant_max - scheme.quant_min + 1), float(self.highest - self.lowest))
        lowest, highest = min(float(self.lowest), 0.0), max(float(self.highest), 0.0)

        def loss(lows: Tensor, highs: Tensor) -> Tensor:
            divergences = _divergences(middles, counts, grids_of_ranges(lows, highs, scheme))
            return divergences.where(highs - lows >= fewest, float("inf"))

        return search_range(loss, lowest, highest, scheme)


def _divergences(middles: Tensor, counts: Tensor, grid: Grid) -> Tensor:
    """How far the distribution over integers is from that over bins, for each of several scales: natural logarithm."""
    scale, zero_point = grid.scale.double().cpu(), grid.zero_point.long().cpu()
    found = [
        _divergence(middles / scale[i] + zero_point[i], counts, grid.quant_min, grid.quant_max)
        for i in range(scale.numel())
    ]
    return torch.stack(found)


def _divergence(steps: Tensor, counts: Tensor, quant_min: int, quant_max: int) -> Tensor:
    """steps: of the bins' middles, in ascending order; counts: how many values each bin holds."""
    integers = steps.round().long()
    inside = (integers >= quant_min) & (integers <= quant_max)
    kept = counts[inside]
    if not kept.numel():
        return torch.tensor(float("inf"), dtype=torch.float64)
    reference = kept.clone()
    reference[0] += counts[integers < quant_min].sum()
    reference[-1] += counts[integers > quant_max].sum()
    index = integers[inside] - quant_min
    levels = quant_max - quant_min + 1
    mean = torch.bincount(index, kept, levels) / torch.bincount(index, minlength=levels).clamp(min=1)
    quantized = mean[index] / kept.sum()
    reference /= reference.sum()
    return (reference * (reference / quantized.clamp(min=_LEAST_PROBABILITY)).log()).sum()
