"""How much each layer alone loses by integers: its output in float against that of its quantized form."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from graphwright.ir import Node
from graphwright.quantization.decide import Decision
from graphwright.quantization.grids import ValueGrid, grid_of_input
from graphwright.quantization.improving.watching import Batches, Sampled, See, run_until_enough, watching
from graphwright.runtime import GraphModule

_EXACT = 300.0  # dB: there is no error


def sqnr(expected: Tensor, given: Tensor) -> float:
    """The signal to noise ratio of a quantized tensor in dB: 10 log10 of the power of the signal to that of the error.

    It is 300 where there is no error, and at most.

    >>> import torch
    >>> round(sqnr(torch.tensor([1.0, 1.0]), torch.tensor([1.1, 0.9])), 3)
    20.0
    """
    loss = Loss()
    loss.see(expected, given)
    return loss.sqnr


class Loss(Sampled):
    """What was seen of the outputs of a layer: the power of the signal and of its error."""

    def __init__(self) -> None:
        super().__init__()
        self._signal = self._noise = 0.0

    def see(self, expected: Tensor, given: Tensor) -> None:
        """Add an output of the layer, and what its quantized form gives."""
        self._signal += expected.double().square().sum().item()
        self._noise += (expected.double() - given.double()).square().sum().item()
        self.count += expected.numel()

    @property
    def sqnr(self) -> float:
        """The signal to noise ratio in dB; _EXACT at most, and where there is no error."""
        if not self._noise:
            return _EXACT
        return min(10 * math.log10(max(self._signal, 1e-300) / self._noise), _EXACT)


def channel_of(y: Tensor, kind: str) -> int:
    """The dimension of the channels of what a layer of a kind gives: before those of space."""
    return y.dim() - 1 - (int(kind[-2]) if kind.startswith("conv") else 0)


def losses_of_layers(
    gm: GraphModule,
    decisions: Mapping[Node, Decision],
    layers: Mapping[Node, nn.Module],
    grids: Mapping[Node, ValueGrid],
    batches: Batches,
) -> dict[Node, Loss]:
    """What each layer that is quantized loses by that alone, fed with float inputs of the first batches."""
    losses = {node: Loss() for node in layers}
    functions = {
        node: _seeing(layer, grid_of_input(decisions[node], grids), losses[node])
        for node, layer in layers.items()
        if not any(isinstance(arg, Node | tuple) for arg in node.args[1:])  # states, which recurrent layers read
        and not node.kwargs  # without states of the program's
    }
    with watching(gm, functions):
        run_until_enough(gm, batches, losses.values())
    return {node: each for node, each in losses.items() if each.count}


def _seeing(layer: nn.Module, grid: ValueGrid | None, loss: Loss) -> See:
    def see(x: Tensor, y: Any) -> None:
        given = layer(x if grid is None else grid.rounded(x))
        is_several = isinstance(y, tuple)  # the outputs of recurrent layers, and their states
        loss.see(y[0] if is_several else y, given[0] if is_several else given)

    return see
