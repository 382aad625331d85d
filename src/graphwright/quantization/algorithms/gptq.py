"""Rounding one input after another, each making up for the errors of those before.

Source: Frantar et al., "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained Transformers",
arXiv:2210.17323, algorithm 1.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor

from graphwright.errors import QuantizationError
from graphwright.quantization.affine import Grid, fake_quantize_by
from graphwright.quantization.algorithms.rounded import (
    Rounded,
    as_matrices,
    better_of,
    output_errors,
    refuse_other_axes,
    round_to_nearest,
)
from graphwright.quantization.observers.weight_grid import weight_grid
from graphwright.quantization.schemes import PerAxis, PerGroup, Scheme

_BLOCK = 128  # inputs whose errors are handed on to all the rest at once, which is one product of matrices


@torch.no_grad()
def gptq(weight: Tensor, hessian: Tensor, scheme: Scheme, *, is_ordered: bool = True, damping: float = 0.01) -> Rounded:
    """Round a weight so that the outputs change least, for the inputs that the Hessian was made of.

    weight (out, in, ...); hessian (n, n), or (groups, n, n) of a convolution in groups, as `InputMoments` has it.
    is_ordered: begin with the inputs of the largest squares; then the scales of groups are those of the weight as it
    was, otherwise each group's scale is found when its turn comes. Groups are of neighbours either way. damping: what
    is added to the diagonal of the Hessian, as a share of its mean.
    An output whose error would be larger than that of rounding to nearest is rounded to nearest.

    >>> rows = torch.randn(64, 16) @ torch.randn(16, 16)
    >>> weight, scheme = torch.randn(8, 16), Scheme(torch.int8, PerAxis(0), True, bits=4)
    >>> hessian = rows.T @ rows / 64
    >>> gptq(weight, hessian, scheme).error < round_to_nearest(weight, hessian, scheme).error
    True
    """
    refuse_other_axes(scheme, "GPTQ")
    nearest = round_to_nearest(weight, hessian, scheme)
    matrices, products = as_matrices(weight, hessian)
    inputs = matrices.shape[-1]
    order = torch.arange(inputs, device=weight.device)
    if is_ordered:
        order = products.diagonal(dim1=1, dim2=2).sum(0).argsort(descending=True, stable=True)
    factor = _inverse_factor(products[:, order][:, :, order], damping)
    columns = matrices.mT[:, order].contiguous()  # (groups, n, out): the weights of an input lie together
    size = scheme.granularity.size if isinstance(scheme.granularity, PerGroup) else inputs
    if size == inputs or is_ordered:
        grid, parts = nearest.grid, _parts(nearest.grid)
        rounded = _round_columns(columns, factor, _BLOCK, lambda at: parts[int(order[at]) // size])
    else:
        turns = _Turns(columns, size, scheme)
        rounded = _round_columns(columns, factor, size * max(1, _BLOCK // size), turns.grid_of)
        grid = turns.grid()
    found = rounded[:, order.argsort()].mT.reshape(weight.shape)
    return better_of(Rounded(found, grid, output_errors(weight, found, hessian)), nearest)


def _inverse_factor(hessian: Tensor, damping: float) -> Tensor:
    """The upper triangle U of `U.T @ U = inverse(hessian)`, by one factorization of the Hessian from its end."""
    mean = hessian.diagonal(dim1=1, dim2=2).mean(-1)
    mean = torch.where(mean > 0, mean, 1.0)[:, None, None]
    unit = torch.eye(hessian.shape[-1], device=hessian.device).expand_as(hessian)
    while damping < 1e6:
        lower, failed = torch.linalg.cholesky_ex((hessian + damping * mean * unit).flip(-1, -2))
        if not bool(failed.any()):
            factor: Tensor = torch.linalg.solve_triangular(lower.flip(-1, -2), unit, upper=True)
            return factor
        damping = max(10 * damping, 1e-4)  # single precision, and inputs that are multiples of each other
    raise QuantizationError("a Hessian with NaN or inf", fix="look for what makes it in the inputs of the layer")


def _round_columns(columns: Tensor, factor: Tensor, block: int, grid_of: Callable[[int], Grid]) -> Tensor:
    """Round (groups, n, out), which is written to; `grid_of` is asked for each of the n in turn."""
    rounded = torch.empty_like(columns)
    for start in range(0, columns.shape[1], block):
        stop = min(start + block, columns.shape[1])
        errors = torch.empty_like(columns[:, start:stop])
        for at in range(start, stop):
            column = columns[:, at]
            rounded[:, at] = fake_quantize_by(column.reshape(-1), grid_of(at)).view_as(column)
            error = (column - rounded[:, at]) / factor[:, at, at, None]
            columns[:, at + 1 : stop] -= factor[:, at, at + 1 : stop, None] * error[:, None]
            errors[:, at - start] = error
        columns[:, stop:] -= factor[:, start:stop, stop:].mT @ errors
    return rounded


def _parts(grid: Grid) -> list[Grid]:
    """The grid of each group of inputs."""
    if not grid.is_grouped:
        return [grid]
    scales, zero_points = grid.scale.unbind(1), grid.zero_point.unbind(1)
    return [
        dataclasses.replace(grid, scale=scale, zero_point=zero_point)
        for scale, zero_point in zip(scales, zero_points, strict=True)
    ]


class _Turns:
    """The grids of groups, each found from what the weights have become when its turn comes."""

    def __init__(self, columns: Tensor, size: int, scheme: Scheme) -> None:
        self._columns = columns
        self._size = size
        self._scheme = dataclasses.replace(scheme, granularity=PerAxis(0))
        self._grids: list[Grid] = []

    def grid_of(self, at: int) -> Grid:
        if at % self._size == 0:
            rows = self._columns[:, at : at + self._size].mT.reshape(-1, self._size)
            self._grids.append(weight_grid(rows, self._scheme))
        return self._grids[-1]

    def grid(self) -> Grid:
        scale = torch.stack([grid.scale for grid in self._grids], 1)
        zero_point = torch.stack([grid.zero_point for grid in self._grids], 1)
        return dataclasses.replace(self._grids[0], scale=scale, zero_point=zero_point)
