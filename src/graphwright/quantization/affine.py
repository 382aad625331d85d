"""What a quantized value stands for: `(q - zero_point) * scale`, and back by rounding half to even.

Rounding is written down here once. `quantize` and `dequantize` are what programs call; both are operators of torch,
`torch.ops.graphwright.quantize` and the like, so that captures of other systems keep them whole.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from graphwright.errors import QuantizationError
from graphwright.ops import has_no_side_effect
from graphwright.quantization.schemes import PerAxis, PerGroup, PerTensor, Scheme

_LEAST_SCALE = 1e-12  # what divides by a scale stays finite
_BOUNDS = {torch.uint8: (0, 255), torch.int8: (-128, 127)}

_LIBRARY = torch.library.Library("graphwright", "DEF")
_LIBRARY.define("quantize(Tensor x, float scale, int zero_point, ScalarType dtype) -> Tensor")
_LIBRARY.define("dequantize(Tensor x, float scale, int zero_point) -> Tensor")
_LIBRARY.define("dequantize_per_axis(Tensor x, Tensor scale, int axis) -> Tensor")


def refuse_gradient(x: Tensor) -> None:
    """Raise QuantizationError where a gradient is wanted of a value that is to be rounded: it would lack a part."""
    if x.requires_grad and torch.is_grad_enabled():
        raise QuantizationError(
            "a gradient is wanted of a value that is rounded to integers, and these have none",
            fix="run it under torch.no_grad(), or on inputs that require no gradient; to train, prepare(training=True)",
        )


def _quantize(x: Tensor, scale: float, zero_point: int, dtype: torch.dtype) -> Tensor:
    refuse_gradient(x)
    low, high = _BOUNDS[dtype]
    return x.div(scale).round_().add_(zero_point).clamp_(low, high).to(dtype)


def _dequantize(x: Tensor, scale: float, zero_point: int) -> Tensor:
    return x.to(torch.float32).sub_(zero_point).mul_(scale)


def _dequantize_per_axis(x: Tensor, scale: Tensor, axis: int) -> Tensor:
    """axis: that of `scale`'s values, each of which is for as many values in a row as there are to each."""
    if scale.dim() == 1:
        return x.to(scale.dtype).mul_(scale.reshape([-1 if i == axis else 1 for i in range(x.dim())]))
    rows, groups = scale.shape  # along the last axis, for each index of the first
    return (x.to(scale.dtype).reshape(rows, groups, -1) * scale.unsqueeze(-1)).reshape(x.shape)


def _implement(name: str, function: Callable[..., Any], like: Callable[..., Any]) -> None:
    _LIBRARY.impl(name, function, "CompositeExplicitAutograd")
    _LIBRARY.impl(name, like, "Meta")


_implement("quantize", _quantize, lambda x, scale, zero_point, dtype: torch.empty_like(x, dtype=dtype))
_implement("dequantize", _dequantize, lambda x, scale, zero_point: torch.empty_like(x, dtype=torch.float32))
_implement("dequantize_per_axis", _dequantize_per_axis, lambda x, scale, axis: torch.empty_like(x, dtype=scale.dtype))


@has_no_side_effect
def quantize(x: Tensor, scale: float, zero_point: int, dtype: torch.dtype = torch.uint8) -> Tensor:
    """Write a tensor as integers: `x / scale + zero_point`, rounded half to even, within the dtype.

    Raises QuantizationError where a gradient is wanted of it, as integers have none.

    >>> quantize(torch.tensor([-1.0, 0.0, 0.25, 0.75, 400.0]), 0.5, 3)
    tensor([  1,   3,   3,   5, 255], dtype=torch.uint8)
    """
    return torch.ops.graphwright.quantize(x, scale, zero_point, dtype)  # type: ignore[no-any-return]


@has_no_side_effect
def dequantize(x: Tensor, scale: float, zero_point: int) -> Tensor:
    """Give what integers stand for: `(x - zero_point) * scale`, in single precision.

    >>> dequantize(torch.tensor([1, 3, 5], dtype=torch.uint8), 0.5, 3)
    tensor([-1.,  0.,  1.])
    """
    return torch.ops.graphwright.dequantize(x, scale, zero_point)  # type: ignore[no-any-return]


# ---- grids


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """The values that integers can stand for.

    scale, zero_point: one number each; or as many as the axis has indices; or (out, groups), each for a group of values
    along the inputs of a weight.
    """

    scale: Tensor
    zero_point: Tensor
    quant_min: int
    quant_max: int
    dtype: torch.dtype
    axis: int | None = None

    @property
    def is_grouped(self) -> bool:
        """Whether scales belong to groups."""
        return self.scale.dim() == 2

    def of(self, values: Tensor, like: Tensor) -> Tensor:
        """Scales or zero points as a tensor that goes with the values of a tensor."""
        if values.dim() == 0:
            return values
        if values.dim() == 1:
            return values.reshape([-1 if i == self.axis else 1 for i in range(like.dim())])
        rows, groups = values.shape
        return values.unsqueeze(-1).expand(rows, groups, like.numel() // (rows * groups)).reshape(like.shape)


def grid_of_range(low: Tensor, high: Tensor, scheme: Scheme) -> Grid:
    """The grid of a scheme for values between two bounds, or between as many as there are scales.

    The range is made to hold 0, which every grid has exactly.

    >>> grid = grid_of_range(torch.tensor(-1.0), torch.tensor(4.1), Scheme(torch.uint8))
    >>> round(grid.scale.item(), 6), grid.zero_point.item()
    (0.02, 50)
    """
    low, high = low.detach().float().clamp(max=0.0), high.detach().float().clamp(min=0.0)
    if not bool(torch.isfinite(high - low).all()):
        raise QuantizationError("a range that is not finite", fix="look for NaN and inf in what was observed")
    least, most = scheme.bounds
    if scheme.is_symmetric:
        middle = (least + most + 1) // 2
        scale = torch.maximum(-low / (middle - least), high / (most - middle)).clamp(min=_LEAST_SCALE)
        zero_point = torch.full_like(scale, middle, dtype=torch.int32)
    else:
        scale = ((high - low) / (most - least)).clamp(min=_LEAST_SCALE)
        zero_point = (least - low / scale).round().clamp(least, most).to(torch.int32)
    axis = scheme.granularity.axis if isinstance(scheme.granularity, PerAxis) else None
    axis = 0 if isinstance(scheme.granularity, PerGroup) else axis
    if isinstance(scheme.granularity, PerTensor) and scale.dim():
        raise QuantizationError("several ranges for one scale", fix="give one number each")
    return Grid(scale, zero_point, least, most, scheme.dtype, axis)


def quantize_by(x: Tensor, grid: Grid) -> Tensor:
    """Write a tensor as integers of a grid."""
    scale, zero_point = grid.of(grid.scale, x), grid.of(grid.zero_point, x)
    return (x / scale).round_().add_(zero_point).clamp_(grid.quant_min, grid.quant_max).to(grid.dtype)


def dequantize_by(q: Tensor, grid: Grid) -> Tensor:
    """Give what integers of a grid stand for."""
    return (q.to(grid.scale.dtype) - grid.of(grid.zero_point, q)) * grid.of(grid.scale, q)


def fake_quantize_by(x: Tensor, grid: Grid) -> Tensor:
    """Give the values of a grid next to those of a tensor.

    >>> grid = grid_of_range(torch.tensor(-1.0), torch.tensor(1.0), Scheme(torch.int8, is_symmetric=True, bits=2))
    >>> fake_quantize_by(torch.tensor([-3.0, -0.4, 0.3, 0.8]), grid)
    tensor([-2.,  0.,  0.,  1.])
    """
    return dequantize_by(quantize_by(x, grid), grid)
