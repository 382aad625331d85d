"""A scale as a parameter of training.

Source: Esser et al., "Learned Step Size Quantization", arXiv:1902.08153, section 2.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor


def learned_fake_quantize(x: Tensor, scale: Tensor, zero_point: Tensor | int, quant_min: int, quant_max: int) -> Tensor:
    """Give the values of a grid next to those of a tensor, with gradients for the tensor and for the scale.

    scale: of a shape that broadcasts to that of x, such as () or (out, 1, 1, 1), above 0; zero_point: a whole number
    for each scale, not learned. The gradient of x is that of the result where x lies on the grid's range, else 0; the
    gradient of the scale is as in the paper, and is divided by `sqrt(values to a scale * quant_max)`, so that scales
    learn at the pace of weights.

    >>> x, scale = torch.tensor([0.4, 5.0], requires_grad=True), torch.tensor(1.0, requires_grad=True)
    >>> y = learned_fake_quantize(x, scale, 0, -2, 1)
    >>> y.sum().backward()
    >>> y.detach(), x.grad, scale.grad
    (tensor([0., 1.]), tensor([1., 0.]), tensor(0.4243))
    """
    found: Tensor = _LearnedFakeQuantize.apply(x, scale, zero_point, quant_min, quant_max)  # type: ignore[no-untyped-call]
    return found


def _values_to(x: Tensor, shape: tuple[int, ...]) -> float:
    """How many values share a scale."""
    return x.numel() / max(1, math.prod(shape))


class _LearnedFakeQuantize(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor, zero_point: Tensor | int, quant_min: int, quant_max: int) -> Tensor:
        ctx.save_for_backward(x, scale)
        ctx.least, ctx.most = quant_min - zero_point, quant_max - zero_point
        ctx.pace = 1 / math.sqrt(max(1.0, _values_to(x, tuple(scale.shape)) * quant_max))
        return (x / scale).round_().clamp_(ctx.least, ctx.most) * scale

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = gradients
        x, scale = ctx.saved_tensors
        steps = x / scale
        inside = (steps >= ctx.least) & (steps <= ctx.most)
        of_x = gradient * inside if ctx.needs_input_grad[0] else None
        of_scale = None
        if ctx.needs_input_grad[1]:
            slope = steps.round().clamp(ctx.least, ctx.most) - steps * inside
            of_scale = (gradient * slope).sum_to_size(scale.shape) * ctx.pace
        return of_x, of_scale, None, None, None
