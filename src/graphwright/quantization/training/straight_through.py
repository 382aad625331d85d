"""Rounding that lets gradients through: where a value is within the grid, its gradient is that of what is rounded.

Source: Bengio et al., arXiv:1308.3432.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from graphwright.quantization.affine import Grid, dequantize_by, quantize_by


class _Rounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, grid: Grid) -> Tensor:
        q = quantize_by(x, grid)
        if ctx.needs_input_grad[0]:
            ctx.save_for_backward(_is_within(x, grid))
        return dequantize_by(q, grid).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, None]:
        return (gradient * ctx.saved_tensors[0] if ctx.saved_tensors else None), None


def _is_within(x: Tensor, grid: Grid) -> Tensor:
    steps = (x / grid.of(grid.scale, x)).round_().add_(grid.of(grid.zero_point, x))
    return (steps >= grid.quant_min) & (steps <= grid.quant_max)


def round_to_grid(x: Tensor, grid: Grid) -> Tensor:
    """Give the values of a grid next to those of a tensor; what lies outside of the grid gets no gradient.

    >>> from graphwright.quantization import Scheme, grid_of_range
    >>> grid = grid_of_range(torch.tensor(-1.0), torch.tensor(1.0), Scheme(torch.int8, is_symmetric=True, bits=2))
    >>> x = torch.tensor([-9.0, -0.4, 0.8], requires_grad=True)
    >>> y = round_to_grid(x, grid)
    >>> y.sum().backward()
    >>> y.tolist(), x.grad
    ([-2.0, 0.0, 1.0], tensor([0., 1., 1.]))
    """
    rounded: Tensor = _Rounded.apply(x, grid)  # type: ignore[no-untyped-call]
    return rounded
