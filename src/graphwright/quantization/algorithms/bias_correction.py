"""Taking the mean error of outputs from the bias.

Rounding errors of a channel's weights do not cancel out: they shift its output, the more the fewer inputs it has.

Source: Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias Correction", arXiv:1906.04721,
section 4.2.
"""

from __future__ import annotations

import torch
from torch import Tensor

from graphwright.errors import QuantizationError

__all__ = ["OutputError", "correct_bias", "mean_error_of_weight"]


class OutputError:
    """The mean error of each channel of a layer's outputs, over batches.

    axis: of the channels, 1 for convolutions and -1 for linear layers. Both outputs are those of the same float inputs
    of the model; those of the quantized layer have in them what the layers before it do wrong, which is then made up
    for as well, if layers are corrected in the order of the program.

    >>> error = OutputError("fc1", axis=-1)
    >>> error.observe(torch.tensor([[1.0, 2.0]]), torch.tensor([[1.5, 2.0]]))
    >>> error.mean
    tensor([0.5000, 0.0000])
    """

    def __init__(self, name: str = "a layer", axis: int = 1) -> None:
        self.name = name
        self.axis = axis
        self.count = 0
        self._sum: Tensor | None = None
        self._power = 0.0
        self._wrong = 0.0

    @torch.no_grad()
    def observe(self, outputs: Tensor, quantized: Tensor) -> None:
        """Add the outputs of a batch, and what the quantized layer gives instead."""
        difference = (quantized.detach().double() - outputs.detach().double()).movedim(self.axis, 0).flatten(1)
        total = difference.sum(1)
        self._sum = total if self._sum is None else self._sum + total
        self.count += difference.shape[1]
        self._power += float(outputs.detach().double().square().sum())
        self._wrong += float(difference.square().sum())

    @property
    def mean(self) -> Tensor:
        """Of each channel, (channels,) in float32."""
        if self._sum is None or not self.count:
            raise QuantizationError(
                f"nothing is known of the outputs of {self.name}", fix="calibrate with batches that reach it"
            )
        return (self._sum / self.count).float()

    @property
    def sqnr(self) -> float:
        """The power of the outputs above that of their error, in dB; inf where there is no error."""
        ratio = torch.tensor(self._power, dtype=torch.float64) / torch.tensor(self._wrong, dtype=torch.float64)
        return float(10 * ratio.log10())


def correct_bias(bias: Tensor | None, mean_error: Tensor) -> Tensor:
    """The bias (out,) that takes the mean error (out,) from the outputs; where there was none, it is made.

    >>> correct_bias(torch.tensor([1.0, 1.0]), torch.tensor([0.5, -0.25]))
    tensor([0.5000, 1.2500])
    """
    return -mean_error if bias is None else bias.detach() - mean_error.to(bias.dtype)


@torch.no_grad()
def mean_error_of_weight(weight: Tensor, rounded: Tensor, mean_inputs: Tensor) -> Tensor:
    """The mean error (out,) of outputs that a rounded weight makes, from the mean of its inputs alone.

    weight, rounded (out, in, ...); mean_inputs (n,), or (groups, n) of a convolution in groups, as `InputMoments` has
    them. The inputs are taken to be exact.

    >>> mean_error_of_weight(torch.tensor([[1.0, 2.0]]), torch.tensor([[1.5, 2.0]]), torch.tensor([4.0, 1.0]))
    tensor([2.])
    """
    means = mean_inputs.float().reshape(-1, 1, mean_inputs.shape[-1])  # (groups, 1, n)
    difference = rounded.detach().float() - weight.detach().float()
    return (difference.reshape(len(means), -1, means.shape[-1]) * means).sum(-1).reshape(-1)
