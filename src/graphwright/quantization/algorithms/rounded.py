"""A weight on a grid, and the error that it makes in outputs."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from graphwright.errors import QuantizationError
from graphwright.quantization.affine import Grid, fake_quantize_by
from graphwright.quantization.observers.weight_grid import weight_grid
from graphwright.quantization.schemes import PerAxis, Scheme


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Rounded:
    """A weight all of whose values lie on a grid.

    weight: of the shape it had, as floats; `quantize_by(weight, grid)` are the integers. errors (out,): the mean square
    of the error of each output, for the inputs that the Hessian was made of.
    """

    weight: Tensor
    grid: Grid
    errors: Tensor

    @property
    def error(self) -> float:
        """The mean square of the error of all outputs."""
        return float(self.errors.mean())


def as_matrices(weight: Tensor, hessian: Tensor) -> tuple[Tensor, Tensor]:
    """A weight (out, in, ...) as (groups, out / groups, n), and a Hessian (n, n) or (groups, n, n) as the latter."""
    hessian = hessian.float()
    hessian = hessian if hessian.dim() == 3 else hessian.unsqueeze(0)
    groups, inputs = hessian.shape[0], weight[0].numel()
    if hessian.shape[1:] != (inputs, inputs) or len(weight) % groups:
        raise QuantizationError(
            f"a weight of shape {tuple(weight.shape)} with inputs whose Hessian has shape {tuple(hessian.shape)}",
            fix="give the moments of this layer's inputs, as rows that its weight multiplies",
        )
    return weight.detach().float().reshape(groups, -1, inputs), hessian


def output_errors(weight: Tensor, changed: Tensor, hessian: Tensor) -> Tensor:
    """The mean square of the error (out,) of each output when a weight changes."""
    difference, hessian = as_matrices(changed - weight, hessian)
    return (difference @ hessian).mul_(difference).sum(-1).clamp_(min=0.0).reshape(-1)


def round_to_nearest(weight: Tensor, hessian: Tensor, scheme: Scheme) -> Rounded:
    """Round each value of a weight by itself, on the grid of `weight_grid`.

    >>> scheme = Scheme(torch.int8, PerAxis(0), True)
    >>> round_to_nearest(torch.randn(4, 8), torch.eye(8), scheme).error < 1e-3
    True
    """
    weight = weight.detach().float()
    grid = weight_grid(weight, scheme)
    rounded = fake_quantize_by(weight, grid)
    return Rounded(rounded, grid, output_errors(weight, rounded, hessian))


def better_of(first: Rounded, second: Rounded) -> Rounded:
    """Take each output from the one whose error is smaller there, or all from one where the grid has one scale."""
    if first.grid.scale.dim() == 0 or first.grid.axis != 0:
        return first if first.error <= second.error else second
    takes_first = first.errors <= second.errors

    def choose(one: Tensor, other: Tensor) -> Tensor:
        return torch.where(takes_first.reshape(-1, *[1] * (one.dim() - 1)), one, other)

    scale = choose(first.grid.scale, second.grid.scale)
    zero_point = choose(first.grid.zero_point, second.grid.zero_point)
    grid = dataclasses.replace(first.grid, scale=scale, zero_point=zero_point)
    return Rounded(choose(first.weight, second.weight), grid, choose(first.errors, second.errors))


def refuse_other_axes(scheme: Scheme, algorithm: str) -> None:
    """Refuse scales of a weight that belong to its inputs."""
    if isinstance(scheme.granularity, PerAxis) and scheme.granularity.axis != 0:
        raise QuantizationError(
            f"{algorithm} rounds the values of one output together, which share no scale by {scheme.granularity}",
            fix="give PerAxis(0), PerGroup or PerTensor, or round this weight to nearest",
        )
