"""Giving layers in a row channels of like ranges, without changing what they compute.

Source: Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias Correction", arXiv:1906.04721,
section 4.1.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor

from graphwright.errors import QuantizationError

_LEAST = 1e-8  # channels whose weights are smaller stay as they are


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class LayerWeights:
    """The weight and bias of a layer, with what tells its channels.

    weight (out, in / groups, ...), or (in, out / groups, ...) of a transposed convolution.
    """

    weight: Tensor
    bias: Tensor | None = None
    groups: int = 1
    is_transposed: bool = False

    def input_ranges(self) -> Tensor:
        """The largest magnitude (in,) of each input's weights."""
        return self._channels(of_inputs=True).abs().amax(1)

    def output_ranges(self) -> Tensor:
        """The largest magnitude (out,) of each output's weights."""
        return self._channels(of_inputs=False).abs().amax(1)

    def _channels(self, of_inputs: bool) -> Tensor:
        """The weights (channels, n) of each input or output."""
        weight = self.weight.detach().float()
        if of_inputs == self.is_transposed:
            return weight.flatten(1)
        grouped: Tensor = weight.unflatten(0, (self.groups, -1))  # (groups, mine / groups, other / groups, ...)
        return grouped.transpose(1, 2).flatten(0, 1).flatten(1)

    def _times(self, factors: Tensor, of_inputs: bool) -> Tensor:
        """The weight with each input's or output's multiplied."""
        ones = [1] * (self.weight.dim() - 2)
        if of_inputs == self.is_transposed:
            return self.weight * factors.reshape(-1, 1, *ones)
        grouped: Tensor = self.weight.unflatten(0, (self.groups, -1))
        return (grouped * factors.reshape(self.groups, 1, -1, *ones)).flatten(0, 1)

    def multiply_inputs(self, factors: Tensor) -> LayerWeights:
        """What takes inputs that are smaller by factors (in,), and gives the same."""
        return dataclasses.replace(self, weight=self._times(factors, of_inputs=True))

    def divide_outputs(self, factors: Tensor) -> LayerWeights:
        """What gives outputs that are smaller by factors (out,)."""
        bias = None if self.bias is None else self.bias / factors
        return dataclasses.replace(self, weight=self._times(1 / factors, of_inputs=False), bias=bias)


@torch.no_grad()
def equalize(layers: Sequence[LayerWeights], steps: int = 20, tolerance: float = 1e-3) -> list[LayerWeights]:
    """Scale the channels between layers in a row so that both sides have the same range; return the new layers.

    The output of each layer is read by the next alone, and what lies between, if anything, gives `f(c * x) = c * f(x)`
    for each positive c, as ReLU, LeakyReLU, max and average pooling do, and ReLU6, GELU and SiLU do not.
    Pairs are taken in turn until no factor is farther from 1 than `tolerance`, or for so many steps.
    Raises QuantizationError where a layer has other inputs than the one before has outputs.

    >>> first, second = LayerWeights(torch.tensor([[8.0], [2.0]])), LayerWeights(torch.tensor([[2.0, 2.0]]))
    >>> first, second = equalize([first, second])
    >>> first.weight.flatten(), second.weight.flatten()
    (tensor([4., 2.]), tensor([4., 2.]))
    """
    found = list(layers)
    for _ in range(steps):
        farthest = 0.0
        for i in range(len(found) - 1):
            factors = _factors(found[i], found[i + 1], i)
            found[i], found[i + 1] = found[i].divide_outputs(factors), found[i + 1].multiply_inputs(factors)
            farthest = max(farthest, float((factors - 1).abs().max()))
        if farthest <= tolerance:
            break
    return found


def _factors(first: LayerWeights, second: LayerWeights, position: int) -> Tensor:
    """The square roots of the ratios of ranges: what the first is divided and the second multiplied by."""
    given, taken = first.output_ranges(), second.input_ranges()
    if given.shape != taken.shape:
        raise QuantizationError(
            f"layer {position} of a row has {len(given)} outputs, and the next {len(taken)} inputs",
            fix="equalize layers that read each other's outputs, channel by channel",
        )
    is_used = (given > _LEAST) & (taken > _LEAST)
    return torch.where(is_used, (given / taken.clamp(min=_LEAST)).sqrt(), 1.0).to(first.weight.dtype)
