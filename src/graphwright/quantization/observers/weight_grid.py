"""The grid of a weight, all of whose values are known: by its extremes, or by the least squared error."""

from __future__ import annotations

import torch
from torch import Tensor

from graphwright.errors import QuantizationError
from graphwright.quantization.affine import Grid, grid_of_range
from graphwright.quantization.observers.range_search import grids_of_ranges
from graphwright.quantization.schemes import PerAxis, PerGroup, PerTensor, Scheme

_RATIOS = torch.linspace(1.0, 0.4, 31).tolist()  # of a range that is kept: 8 bits want nearly all, 4 bits 0.6 to 0.9
_BLOCK = 1 << 16  # values searched at once, which then stay in the cache


@torch.no_grad()
def weight_grid(weight: Tensor, scheme: Scheme, importance: Tensor | None = None) -> Grid:
    """Find the grid of a weight: a scale for each channel, for each group, or one.

    weight (out, in, ...) or, for PerAxis(1), (in, out, ...). importance: what the squared error of each value counts,
    as the mean square of the input that it multiplies; of a shape that broadcasts to `weight.flatten(1)`.
    "minmax" and "moving_average" of the scheme cover all values; the other observers shrink the range of each scale to
    that of the least squared error, trying 31 ratios from 1.0 to 0.4.

    Raises QuantizationError for NaN and inf, for what is no weight, and for groups that do not divide its inputs.

    >>> from graphwright.quantization import PerGroup
    >>> weight_grid(torch.randn(8, 64), Scheme(torch.int8, PerGroup(32), True, bits=4)).scale.shape
    torch.Size([8, 2])
    """
    if not weight.is_floating_point() or weight.dim() < 2:
        raise QuantizationError(
            f"a weight of {weight.dtype} and shape {tuple(weight.shape)}",
            fix="quantize weights of two or more dimensions and floating-point numbers",
        )
    if not bool(torch.isfinite(weight).all()):
        raise QuantizationError("a weight with NaN or inf", fix="repair the checkpoint, or leave this layer in float")
    weight = weight.detach().float()
    rows = _rows(weight, scheme)
    if rows.shape[1]:
        low, high = torch.aminmax(rows, dim=1)
    else:
        low = high = rows.new_zeros(len(rows))
    if scheme.observer not in ("minmax", "moving_average"):
        if importance is not None:
            importance = importance.float().expand(weight.flatten(1).shape).reshape(weight.shape)
        ratio = _ratios(rows, low, high, scheme, None if importance is None else _rows(importance, scheme))
        low, high = low * ratio, high * ratio
    shape: tuple[int, ...] = () if isinstance(scheme.granularity, PerTensor) else (-1,)
    if isinstance(scheme.granularity, PerGroup):
        shape = (len(weight), -1)
    return grid_of_range(low.reshape(shape), high.reshape(shape), scheme)


def _rows(weight: Tensor, scheme: Scheme) -> Tensor:
    """The values of each scale in a row: (scales, values)."""
    granularity = scheme.granularity
    if isinstance(granularity, PerTensor):
        return weight.reshape(1, -1)
    if isinstance(granularity, PerAxis):
        return weight.movedim(granularity.axis, 0).flatten(1)
    if isinstance(granularity, PerGroup):
        inputs = weight[0].numel()
        if inputs % granularity.size:
            raise QuantizationError(
                f"{inputs} inputs of a weight are no whole number of groups of {granularity.size}",
                fix="give a group size that divides them, or a scale for each channel: PerAxis(0)",
            )
        return weight.reshape(-1, granularity.size)
    raise QuantizationError("a weight has no tokens", fix="give PerTensor, PerAxis or PerGroup for weights")


def _ratios(rows: Tensor, low: Tensor, high: Tensor, scheme: Scheme, importance: Tensor | None) -> Tensor:
    """What is kept of each row's range for the least squared error."""
    grids = [grids_of_ranges(low * ratio, high * ratio, scheme) for ratio in _RATIOS]
    best, least = torch.ones_like(low), torch.full_like(low, float("inf"))
    step = max(1, _BLOCK // max(1, rows.shape[1]))
    for start in range(0, len(rows), step):
        block = slice(start, start + step)
        weights = None if importance is None else importance[block].sqrt()
        for ratio, grid in zip(_RATIOS, grids, strict=True):
            error = _error(rows[block], grid.scale[block], grid.zero_point[block], scheme)
            loss = torch.linalg.vector_norm(error if weights is None else error.mul_(weights), dim=1)
            best[block] = torch.where(loss < least[block], ratio, best[block])
            least[block] = torch.minimum(loss, least[block])
    return best


def _error(rows: Tensor, scale: Tensor, zero_point: Tensor, scheme: Scheme) -> Tensor:
    """What quantizing changes, with a scale for each row.

    As `fake_quantize_by` but for the last bit, for it multiplies where that divides, and in a fifth of the time.
    """
    scale = scale.unsqueeze(1)
    steps = rows.mul(scale.reciprocal()).round_()
    if scheme.is_symmetric:
        middle = int(zero_point[0])
        steps.clamp_(scheme.quant_min - middle, scheme.quant_max - middle)
    else:
        middles = zero_point.float().unsqueeze(1)
        steps.clamp_(scheme.quant_min - middles, scheme.quant_max - middles)
    return steps.mul_(scale).sub_(rows)
