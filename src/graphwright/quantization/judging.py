"""How much each layer alone loses by integers: its output in float against that of its quantized form."""

from __future__ import annotations

import math
from collections.abc import Mapping

from torch import Tensor, nn

from graphwright.ir import Node
from graphwright.quantization.affine import dequantize, quantize
from graphwright.quantization.decide import Decision
from graphwright.quantization.grids import ValueGrid
from graphwright.quantization.watching import Batches, See, run_batches, watching
from graphwright.runtime import GraphModule

__all__ = ["sqnr", "sqnr_of_layers"]


def sqnr(expected: Tensor, given: Tensor) -> float:
    """The signal to noise ratio of a quantized tensor in dB: 10 log10 of the power of the signal to that of the error.

    >>> import torch
    >>> round(sqnr(torch.tensor([1.0, 1.0]), torch.tensor([1.1, 0.9])), 3)
    20.0
    """
    signal = expected.double().square().sum().item()
    noise = (expected.double() - given.double()).square().sum().item()
    return 10 * math.log10(max(signal, 1e-300) / max(noise, 1e-300))


class _Powers:
    """Adds up the power of a signal and of its error."""

    def __init__(self) -> None:
        self.signal = self.noise = 0.0

    def see(self, expected: Tensor, given: Tensor) -> None:
        self.signal += expected.double().square().sum().item()
        self.noise += (expected.double() - given.double()).square().sum().item()

    @property
    def sqnr(self) -> float:
        return 10 * math.log10(max(self.signal, 1e-300) / max(self.noise, 1e-300))


def sqnr_of_layers(
    gm: GraphModule,
    decisions: Mapping[Node, Decision],
    layers: Mapping[Node, nn.Module],
    grids: Mapping[Node, ValueGrid],
    batches: Batches,
) -> dict[Node, float]:
    """The signal to noise ratio in dB of each layer that is quantized, fed with float inputs of the first batches."""
    powers = {node: _Powers() for node in layers}
    functions = {
        node: _seeing(layer, grids.get(_edge(decisions[node])), powers[node]) for node, layer in layers.items()
    }
    with watching(gm, functions):
        run_batches(gm, list(batches)[:2])
    return {node: each.sqnr for node, each in powers.items() if each.signal}


def _edge(decision: Decision) -> Node:
    return decision.edges[0] if decision.edges else decision.site.node


def _seeing(layer: nn.Module, grid: ValueGrid | None, powers: _Powers) -> See:
    def see(x: Tensor, y: Tensor) -> None:
        if grid is not None and x.is_floating_point():
            x = dequantize(quantize(x, grid.scale, grid.zero_point, grid.dtype), grid.scale, grid.zero_point)
        powers.see(y, layer(x))

    return see
