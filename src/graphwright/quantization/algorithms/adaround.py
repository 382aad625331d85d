"""Rounding up or down, learned by descent.

Source: Nagel et al., "Up or Down? Adaptive Rounding for Post-Training Quantization", arXiv:2004.10568, section 3.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from graphwright.quantization.affine import Grid
from graphwright.quantization.algorithms.rounded import (
    Rounded,
    as_matrices,
    better_of,
    output_errors,
    refuse_other_axes,
    round_to_nearest,
)
from graphwright.quantization.schemes import Scheme

_STRETCH = 1.1, -0.1  # a sigmoid between these, clamped to 0 and 1, reaches both
_WARM = 0.2  # the share of steps before values are pushed to whole steps
_SHARPNESS = 20.0, 2.0  # of that push, at first and at last


@torch.no_grad()
def adaround(
    weight: Tensor, hessian: Tensor, scheme: Scheme, *, steps: int = 200, rate: float = 0.5, push: float = 30.0
) -> Rounded:
    """Choose for each value whether it is rounded down or up, so that the outputs change least.

    weight (out, in, ...); hessian (n, n), or (groups, n, n) of a convolution in groups, as `InputMoments` has it: with
    it each step descends on the error over all inputs, at the cost of one product of the weight with the Hessian.
    rate: of Adam. push: how much being between two integers counts, in errors of rounding to nearest.
    An output whose error would be larger than that of rounding to nearest is rounded to nearest.

    >>> from graphwright.quantization import PerAxis
    >>> rows = torch.randn(64, 16) @ torch.randn(16, 16)
    >>> weight, scheme = torch.randn(8, 16), Scheme(torch.int8, PerAxis(0), True, bits=4)
    >>> hessian = rows.T @ rows / 64
    >>> adaround(weight, hessian, scheme).error < round_to_nearest(weight, hessian, scheme).error
    True
    """
    refuse_other_axes(scheme, "AdaRound")
    nearest = round_to_nearest(weight, hessian, scheme)
    grid = nearest.grid
    matrices, products = as_matrices(weight, hessian)
    scale = grid.of(grid.scale, weight).expand(weight.shape).reshape(matrices.shape)
    exact = matrices / scale
    rows = as_matrices(nearest.weight - weight.detach().float(), hessian)[0]
    norm = (rows @ products).mul_(rows).sum().clamp_(min=1e-30)
    variable = _start(exact - exact.floor())
    optimizer = torch.optim.Adam([variable], lr=rate)
    for step in range(steps):
        up, slope = _rectified(variable)
        error = (_clamped(exact.floor() + up, grid, weight) - exact).mul_(scale)
        variable.grad = (error @ products).mul_(scale).mul_(2 / norm)
        if step >= _WARM * steps:
            progress = (step / steps - _WARM) / (1 - _WARM)
            variable.grad += push / variable.numel() * _between(up, _sharpness(progress))
        variable.grad *= slope
        optimizer.step()
    integers = _clamped(exact.floor() + (_rectified(variable)[0] >= 0.5), grid, weight)
    found = (integers * scale).reshape(weight.shape)
    return better_of(Rounded(found, grid, output_errors(weight, found, hessian)), nearest)


def _clamped(steps: Tensor, grid: Grid, weight: Tensor) -> Tensor:
    zero_point = grid.of(grid.zero_point, weight).expand(weight.shape).reshape(steps.shape)
    return steps.clamp(grid.quant_min - zero_point, grid.quant_max - zero_point)


def _start(share: Tensor) -> Tensor:
    """The variable for which nothing is rounded yet."""
    high, low = _STRETCH
    return torch.logit((share - low) / (high - low))


def _rectified(variable: Tensor) -> tuple[Tensor, Tensor]:
    """How far each value is rounded up, from 0 to 1, and how that changes with the variable."""
    high, low = _STRETCH
    sigmoid = torch.sigmoid(variable)
    stretched = sigmoid * (high - low) + low
    slope = sigmoid * (1 - sigmoid) * (high - low)
    return stretched.clamp(0, 1), slope.masked_fill_((stretched < 0) | (stretched > 1), 0.0)


def _sharpness(progress: float) -> float:
    first, last = _SHARPNESS
    return last + (first - last) * 0.5 * (1 + math.cos(math.pi * progress))


def _between(up: Tensor, sharpness: float) -> Tensor:
    """The slope of `1 - |2 up - 1| ** sharpness`, which is 0 at both ends and pushes there."""
    centred = 2 * up - 1
    return -2 * sharpness * centred.abs() ** (sharpness - 1) * centred.sign()
