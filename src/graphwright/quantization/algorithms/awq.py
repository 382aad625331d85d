"""Rounding the weights of large inputs more finely, by factors that are searched.

Source: Lin et al., "AWQ: Activation-aware Weight Quantization for LLM Compression and Acceleration", arXiv:2306.00978,
section 3.2.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from graphwright.quantization.affine import fake_quantize_by
from graphwright.quantization.algorithms.input_factors import scale_inputs
from graphwright.quantization.algorithms.rounded import Rounded, output_errors
from graphwright.quantization.observers.weight_grid import weight_grid
from graphwright.quantization.schemes import Scheme

_ALPHAS = tuple(i / 10 for i in range(1, 10))


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ScaledWeight:
    """A weight whose inputs are to be divided by factors, and that is rounded after it was multiplied by them.

    factors (in,); rounded: of `scale_inputs(weight, factors)`. alpha: the power of the inputs' magnitudes that the
    factors are; 0 leaves everything as it is.
    """

    factors: Tensor
    rounded: Rounded
    alpha: float


@torch.no_grad()
def awq(weight: Tensor, hessian: Tensor, scheme: Scheme, alphas: tuple[float, ...] = _ALPHAS) -> ScaledWeight:
    """Search the factors by which a weight is rounded with the least error in its outputs.

    weight (out, in, ...), not of a convolution in groups; hessian (n, n) as `InputMoments` has it. A factor is the root
    mean square of its input, to the power alpha; the best of `alphas` is taken, and 0, which is no factor at all, is
    always among them: the error is at most that of rounding to nearest.
    Whoever makes the inputs must divide them, as the norm before the layer can.

    >>> from graphwright.quantization import PerGroup
    >>> inputs = torch.randn(64, 32) * torch.logspace(-1, 1, 32)
    >>> scheme = Scheme(torch.int8, PerGroup(32), True, bits=4)
    >>> awq(torch.randn(8, 32), inputs.T @ inputs / 64, scheme).alpha > 0
    True
    """
    weight = weight.detach().float()
    kernel = weight[0, 0].numel()
    squares = hessian.float().diagonal().reshape(-1, kernel).mean(1)
    found = [_scaled(weight, hessian, scheme, _factors(squares, alpha), alpha) for alpha in (0.0, *alphas)]
    return min(found, key=lambda scaled: scaled.rounded.error)  # the first of equals, which is without factors


def _factors(squares: Tensor, alpha: float) -> Tensor:
    """Powers of the root mean squares, whose geometric mean is 1; 1 for inputs that are always 0."""
    used = squares > 0
    logs = torch.where(used, squares, 1.0).log() / 2
    centre = logs.sum() / used.sum().clamp(min=1)
    return torch.where(used, ((logs - centre) * alpha).exp(), 1.0)


def _scaled(weight: Tensor, hessian: Tensor, scheme: Scheme, factors: Tensor, alpha: float) -> ScaledWeight:
    scaled = scale_inputs(weight, factors)
    grid = weight_grid(scaled, scheme)
    rounded = fake_quantize_by(scaled, grid)
    errors = output_errors(weight, scale_inputs(rounded, 1 / factors), hessian)
    return ScaledWeight(factors, Rounded(rounded, grid, errors), alpha)
