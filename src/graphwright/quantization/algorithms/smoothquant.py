"""Moving the range of inputs into the weights that they meet, as far as it helps.

Source: Xiao et al., "SmoothQuant: Accurate and Efficient Post-Training Quantization for Large Language Models",
arXiv:2211.10438, section 4. There alpha is one number for a model; here it is searched for each place, because moving
too much hurts: the weights are quantized as well.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor

from graphwright.quantization.affine import Grid, fake_quantize_by, grid_of_range
from graphwright.quantization.algorithms.input_factors import scale_inputs
from graphwright.quantization.algorithms.input_rows import some_rows
from graphwright.quantization.observers.by_name import observer_of
from graphwright.quantization.observers.weight_grid import weight_grid
from graphwright.quantization.schemes import PerAxis, PerToken, Scheme

_ALPHAS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
_ROWS = 512  # from which errors are estimated


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Smoothing:
    """Factors (in,) by which inputs are to be divided and weights multiplied; `scale_inputs` does the latter.

    alpha: how much of the inputs' range is moved; None where nothing is, and all factors are 1. errors: the mean
    square of the outputs' error for each alpha that was tried.
    """

    factors: Tensor
    alpha: float | None
    errors: dict[float | None, float]

    @property
    def gain(self) -> float:
        """How many times smaller the error is than without; 1 where nothing is moved."""
        return self.errors[None] / max(self.errors[self.alpha], 1e-30) if self.alpha is not None else 1.0


@torch.no_grad()
def smooth(
    weights: Sequence[Tensor],
    inputs: Tensor,
    activation: Scheme,
    weight_scheme: Scheme,
    alphas: Sequence[float] = _ALPHAS,
) -> Smoothing:
    """Search the factors for the layers that read one value, so that their outputs have the least error together.

    weights (out, in) each; inputs (rows, in), which all of them multiply. Both are quantized as the schemes say. Not
    moving anything is among what is tried, so the error never grows on these inputs.

    >>> inputs = torch.randn(64, 16) * torch.logspace(-1, 1, 16)
    >>> weight_scheme = Scheme(torch.int8, PerAxis(0), True)
    >>> smooth([torch.randn(8, 16)], inputs, Scheme(observer="minmax"), weight_scheme).gain > 1.5
    True
    """
    inputs = inputs.detach().float()
    joined = torch.cat([weight.detach().float() for weight in weights])
    largest_input, largest_weight = inputs.abs().amax(0), joined.abs().amax(0)
    rows = some_rows(inputs, _ROWS)
    wanted = rows @ joined.T
    errors: dict[float | None, float] = {}
    found: dict[float | None, Tensor] = {}
    for alpha in (None, *alphas):
        factors = _factors(largest_input, largest_weight, alpha)
        scaled = [scale_inputs(weight.detach().float(), factors) for weight in weights]
        quantized = torch.cat([fake_quantize_by(weight, weight_grid(weight, weight_scheme)) for weight in scaled])
        seen = _fake_quantize_inputs(rows / factors, inputs / factors, activation)
        errors[alpha] = float((seen @ quantized.T).sub_(wanted).square_().mean())
        found[alpha] = factors
    best = min(errors, key=lambda alpha: errors[alpha])
    return Smoothing(found[best], best, errors)


def _factors(largest_input: Tensor, largest_weight: Tensor, alpha: float | None) -> Tensor:
    """One for each input; 1 where it or its weights are always 0."""
    if alpha is None:
        return torch.ones_like(largest_input)
    factors = largest_input**alpha / largest_weight.clamp(min=1e-30) ** (1 - alpha)
    is_used = (largest_input > 1e-8) & (largest_weight > 1e-8)
    return torch.where(is_used, factors, 1.0).clamp(1e-5, 1e5)


def _fake_quantize_inputs(rows: Tensor, inputs: Tensor, scheme: Scheme) -> Tensor:
    """Quantize some rows with the range that all inputs have."""
    if isinstance(scheme.granularity, PerToken):
        per_row = dataclasses.replace(scheme, granularity=PerAxis(0))
        return fake_quantize_by(rows, grid_of_range(rows.amin(1), rows.amax(1), per_row))
    return fake_quantize_by(rows, _grid_of(inputs, scheme))


def _grid_of(inputs: Tensor, scheme: Scheme) -> Grid:
    if scheme.is_dynamic:
        return grid_of_range(inputs.amin(), inputs.amax(), scheme)
    observer = observer_of(scheme)
    observer.observe(inputs)
    return grid_of_range(*observer.range(scheme), scheme)
