"""Factors that inputs are divided by and weights multiplied by, so that nothing changes but the ranges of both."""

from __future__ import annotations

from torch import Tensor


def scale_inputs(weight: Tensor, factors: Tensor) -> Tensor:
    """Multiply a weight (out, in, ...) by a factor (in,) for each input.

    >>> import torch
    >>> scale_inputs(torch.ones(1, 2), torch.tensor([2.0, 3.0]))
    tensor([[2., 3.]])
    """
    return weight * factors.reshape(1, -1, *[1] * (weight.dim() - 2))


def divide_norm(weight: Tensor, bias: Tensor | None, factors: Tensor) -> tuple[Tensor, Tensor | None]:
    """Divide what a norm gives by factors (in,), by its weight and bias: the new ones.

    Works for norms that multiply and add at last, as LayerNorm, RMSNorm (without bias) and BatchNorm do; what reads
    the norm must be multiplied by the factors, all of it.

    >>> import torch
    >>> divide_norm(torch.ones(2), None, torch.tensor([2.0, 4.0]))
    (tensor([0.5000, 0.2500]), None)
    """
    return weight / factors, None if bias is None else bias / factors
