"""The range that holds all but a few values."""

from __future__ import annotations

import torch
from torch import Tensor

from graphwright.errors import QuantizationError
from graphwright.quantization.observers.bins import BinnedObserver
from graphwright.quantization.schemes import Scheme


class PercentileObserver(BinnedObserver):
    """The range that holds a share of the values: as many are cut off below as above.

    share: of the values, above 0.5 and at most 1. For a symmetric scheme it is the share of magnitudes. Within a
    bin, values are taken to be spread evenly: the bounds are right within `width`.

    >>> from graphwright.quantization import Scheme
    >>> observer = PercentileObserver("fc1.input", share=0.9)
    >>> observer.observe(torch.linspace(-10.0, 10.0, 2001))
    >>> [round(bound.item(), 1) for bound in observer.range(Scheme())]
    [-9.0, 9.0]
    """

    def __init__(self, name: str = "a value", share: float = 0.9999) -> None:
        super().__init__(name)
        if not 0.5 < share <= 1.0:
            raise QuantizationError(f"a range with {share!r} of the values", fix="give a number in (0.5, 1]")
        self.share = share

    def _range(self, scheme: Scheme) -> tuple[Tensor, Tensor]:
        edges, counts = self.filled()
        if not counts.numel():
            return self.lowest, self.highest
        if scheme.is_symmetric:
            most = max(-float(self.lowest), float(self.highest))
            bound = min(self._quantile(*_magnitudes(edges, counts), self.share), most)
            return torch.tensor(max(-bound, float(self.lowest))), torch.tensor(min(bound, float(self.highest)))
        cut = (1.0 - self.share) / 2
        low, high = self._quantile(edges, counts, cut), self._quantile(edges, counts, 1.0 - cut)
        return torch.tensor(max(low, float(self.lowest))), torch.tensor(min(high, float(self.highest)))

    def _quantile(self, edges: Tensor, counts: Tensor, share: float) -> float:
        """The value below which a share of all values lie, the zeros among them."""
        below_zero = float(counts[edges[1:] <= 0].sum())
        zeros = float(self.zeros)
        rank = share * (float(counts.sum()) + zeros)
        if below_zero < rank <= below_zero + zeros:
            return 0.0
        if rank > below_zero + zeros:
            rank -= zeros
        ends = counts.cumsum(0)
        at = min(int(torch.searchsorted(ends, rank)), counts.numel() - 1)
        inside = (rank - float(ends[at] - counts[at])) / max(float(counts[at]), 1.0)
        return float(edges[at]) + inside * self.width


def _magnitudes(edges: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """The bins of the magnitudes; 0 is an edge, so each bin below it has its like above."""
    width = float(edges[1] - edges[0])
    index = (edges[:-1] / width).round().long()
    index = torch.where(index < 0, -1 - index, index)
    folded = torch.zeros(int(index.max()) + 1, dtype=torch.float64).index_add_(0, index, counts)
    return torch.arange(folded.numel() + 1, dtype=torch.float64) * width, folded
