"""What quantized layers compute, as functions of plain tensors: weights become floats again, and so does the product.

These say what a program means. Kernels that compute the same in integers take their place in `lower`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from graphwright.errors import QuantizationError
from graphwright.ops import has_no_side_effect
from graphwright.quantization.affine import refuse_gradient

ACTIVATIONS = ("float", "tensor", "token")
_LEAST_SCALE = 1e-12

_CONVOLUTIONS = {3: torch.conv1d, 4: torch.conv2d, 5: torch.conv3d}
_TRANSPOSED = {3: torch.conv_transpose1d, 4: torch.conv_transpose2d, 5: torch.conv_transpose3d}


# ---- weights


def pack_int4(weight: Tensor) -> Tensor:
    """Put integers from -8 to 7 two in a byte along the last dimension: (out, in) int8 -> (out, in / 2) uint8.

    The first of two is in the low half; what is stored is the value + 8.

    Raises QuantizationError where the last dimension is odd.

    >>> pack_int4(torch.tensor([[-8, 7], [0, 1]], dtype=torch.int8))
    tensor([[240],
            [152]], dtype=torch.uint8)
    """
    if weight.shape[-1] % 2:
        fix = "quantize this layer to 8 bits"
        raise QuantizationError(f"{weight.shape[-1]} values of 4 bits fill no whole number of bytes", fix=fix)
    stored = (weight + 8).to(torch.uint8)
    return stored[..., 0::2] | (stored[..., 1::2] << 4)


def unpack_int4(packed: Tensor) -> Tensor:
    """Take integers from -8 to 7 out of bytes that have two: (out, in / 2) uint8 -> (out, in) int8.

    >>> unpack_int4(torch.tensor([[240], [152]], dtype=torch.uint8))
    tensor([[-8,  7],
            [ 0,  1]], dtype=torch.int8)
    """
    high = packed // 16
    return torch.stack((packed - high * 16, high), -1).flatten(-2).to(torch.int8) - 8


def dequantized_weight(weight: Tensor, scale: Tensor, axis: int = 0) -> Tensor:
    """The weight that integers stand for: int8, or uint8 with two of 4 bits in each.

    scale: as many as the axis of the weight has indices; or (out, groups), each for as many inputs in a row.
    """
    whole = unpack_int4(weight) if weight.dtype is torch.uint8 else weight
    return torch.ops.graphwright.dequantize_per_axis(whole, scale, axis)  # type: ignore[no-any-return]


# ---- inputs whose range is found in each call


def range_of_call(input: Tensor, activation: str) -> tuple[Tensor, Tensor]:
    """The scale and the zero point, both in float, that give a tensor or each of its vectors the range of uint8.

    activation: "tensor", or "token" for the vectors along the last dimension.
    """
    if activation == "token":
        low, high = input.amin(-1, keepdim=True), input.amax(-1, keepdim=True)
    else:
        low, high = (input.min(), input.max()) if input.numel() else (input.sum(), input.sum())
    low, high = low.clamp_(max=0.0), high.clamp_(min=0.0)
    scale = high.sub_(low).div_(255).clamp_(min=_LEAST_SCALE)
    return scale, low.neg_().div_(scale).round_().clamp_(0, 255)


def rounded_in_call(input: Tensor, activation: str) -> Tensor:
    """A tensor as it is after it was written as uint8, with the range that it has.

    >>> rounded_in_call(torch.tensor([[0.0, 0.5, 255.0], [0.0, 0.25, 0.5]]), "tensor").round().int()
    tensor([[  0,   0, 255],
            [  0,   0,   0]], dtype=torch.int32)
    """
    if activation not in ACTIVATIONS:
        fix = f"give one of {', '.join(map(repr, ACTIVATIONS))}"
        raise QuantizationError(f"activations cannot be {activation!r}", fix=fix)
    if activation == "float":
        return input
    refuse_gradient(input)
    scale, zero_point = range_of_call(input, activation)
    return ((input / scale).round().add(zero_point).clamp(0, 255) - zero_point) * scale


# ---- layers


@has_no_side_effect
def quantized_linear(
    input: Tensor, weight: Tensor, scale: Tensor, bias: Tensor | None = None, activation: str = "float"
) -> Tensor:
    """Compute a linear layer of a quantized weight.

    weight (out, in) int8, or (out, in / 2) uint8 with two integers of 4 bits in each. scale (out,) or (out, groups).
    activation: "float" takes the input as it is; "tensor" and "token" round it first, with one range for all of it or
    one for each vector.

    >>> weight, scale = torch.tensor([[1, 2], [3, -4]], dtype=torch.int8), torch.tensor([0.5, 0.25])
    >>> quantized_linear(torch.tensor([[1.0, 1.0]]), weight, scale)
    tensor([[ 1.5000, -0.2500]])
    """
    return F.linear(rounded_in_call(input, activation), dequantized_weight(weight, scale), bias)


@has_no_side_effect
def quantized_conv(
    input: Tensor,
    weight: Tensor,
    scale: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | str | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Tensor:
    """Compute a convolution of one, two or three dimensions, of a weight (out, in / groups, ...) int8; scale (out,).

    >>> weight, scale = torch.tensor([[[1, 2]]], dtype=torch.int8), torch.tensor([0.5])
    >>> quantized_conv(torch.tensor([[[1.0, 1.0, 2.0]]]), weight, scale)
    tensor([[[1.5000, 2.5000]]])
    """
    function = _CONVOLUTIONS[weight.dim()]
    return function(input, dequantized_weight(weight, scale), bias, stride, padding, dilation, groups)


@has_no_side_effect
def quantized_conv_transpose(
    input: Tensor,
    weight: Tensor,
    scale: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    output_padding: int | Sequence[int] = 0,
    groups: int = 1,
    dilation: int | Sequence[int] = 1,
) -> Tensor:
    """Compute a transposed convolution of a weight (in, out / groups, ...) int8; scale (out / groups,)."""
    function = _TRANSPOSED[weight.dim()]
    whole = dequantized_weight(weight, scale, 1)
    return function(input, whole, bias, stride, padding, output_padding, groups, dilation)


@has_no_side_effect
def quantized_embedding(input: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    """Look rows up in a weight (count, size) int8, or (count, size / 2) uint8 with two integers of 4 bits in each.

    scale (count,) or (count, groups).

    >>> weight, scale = torch.tensor([[1, 2], [3, -4]], dtype=torch.int8), torch.tensor([0.5, 0.25])
    >>> quantized_embedding(torch.tensor([1, 0]), weight, scale)
    tensor([[ 0.7500, -1.0000],
            [ 0.5000,  1.0000]])
    """
    rows = dequantized_weight(weight[input.flatten()], scale[input.flatten()])
    return rows.reshape(*input.shape, rows.shape[-1])
