"""Layers with weights of integers, in the place of those of torch.nn: plain buffers, and one function each."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphwright.errors import QuantizationError
from graphwright.ops import ModuleOfFunction
from graphwright.quantization.affine import Grid, quantize_by
from graphwright.quantization.layer_functions import (
    ACTIVATIONS,
    pack_int4,
    quantized_conv,
    quantized_conv_transpose,
    quantized_embedding,
    quantized_linear,
)

_Form = tuple[Callable[..., Any], Mapping[str, str], Mapping[str, str]]


class QuantizedLayer(ModuleOfFunction):
    """What all quantized layers have: a weight of integers, its scales, and a bias in float or None, all buffers."""

    weight: Tensor
    weight_scale: Tensor
    bias: Tensor | None
    axis: ClassVar[int] = 0  # of the weight, whose indices have a scale each

    def __init__(self, weight: Tensor, weight_scale: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.register_buffer("weight", weight)
        self.register_buffer("weight_scale", weight_scale)
        self.register_buffer("bias", bias)

    @property
    def bits(self) -> int:
        """How many bits an integer of the weight has: 4 where two are in a byte."""
        return 4 if self.weight.dtype is torch.uint8 else 8

    def _described(self, *parts: str) -> str:
        groups = f", {self.weight_scale.shape[1]} groups" if self.weight_scale.dim() == 2 else ""
        return ", ".join([*parts, f"int{self.bits}{groups}"])


def _tensors_of(module: Any, grid: Grid, axis: int) -> tuple[Tensor, Tensor, Tensor | None]:
    """The weight of a layer as integers of a grid, the scales, and the bias."""
    kind = type(module).__name__
    if bool((grid.zero_point != 0).any()):
        raise QuantizationError(f"the weight of a {kind} has a zero point", fix="give the grid of a symmetric scheme")
    if grid.scale.dim() == 1 and grid.axis != axis:
        fix = f"give a grid with a scale for each index of axis {axis}"
        raise QuantizationError(f"the weight of a {kind} has scales along axis {grid.axis}", fix=fix)
    with torch.no_grad():
        weight = quantize_by(module.weight.detach(), grid)
        if grid.quant_min >= -8 and grid.quant_max <= 7 and axis == 0 and weight.dim() == 2 and not weight.shape[1] % 2:
            weight = pack_int4(weight)
        scale = grid.scale.detach().float().clone()
        if scale.dim() == 0:
            scale = scale.repeat(module.weight.shape[axis])
    bias = getattr(module, "bias", None)
    return weight, scale, None if bias is None else bias.detach().clone()


class QuantizedLinear(QuantizedLayer):
    """A linear layer with a weight (out, in) of int8, or (out, in / 2) of uint8 with two integers of 4 bits in each.

    weight_scale: (out,), or (out, groups). activation: "float" takes the input as it is; "tensor" and "token" round it
    to uint8 first, with the range that all of it, or each vector, has in the call.

    >>> from graphwright.quantization import Scheme, PerAxis, grid_of_range
    >>> linear = nn.Linear(4, 2)
    >>> low, high = linear.weight.detach().aminmax(dim=1)
    >>> layer = QuantizedLinear.from_float(linear, grid_of_range(low, high, Scheme(torch.int8, PerAxis(0), True)))
    >>> layer.weight.dtype, bool((layer(torch.ones(1, 4)) - linear(torch.ones(1, 4))).abs().max() < 0.02)
    (torch.int8, True)
    """

    def __init__(
        self,
        weight: Tensor,
        weight_scale: Tensor,
        bias: Tensor | None = None,
        activation: Literal["float", "tensor", "token"] = "float",
    ) -> None:
        if activation not in ACTIVATIONS:
            fix = f"give one of {', '.join(map(repr, ACTIVATIONS))}"
            raise QuantizationError(f"activations cannot be {activation!r}", fix=fix)
        super().__init__(weight, weight_scale, bias)
        self.activation: str = activation

    @property
    def in_features(self) -> int:
        """The size of the vectors that it reads."""
        return self.weight.shape[1] * (2 if self.bits == 4 else 1)

    @property
    def out_features(self) -> int:
        """The size of the vectors that it gives."""
        return self.weight.shape[0]

    @classmethod
    def from_float(
        cls, module: nn.Linear, weight_grid: Grid, activation: Literal["float", "tensor", "token"] = "float"
    ) -> QuantizedLinear:
        """Round the weight of a linear layer to a grid, and copy its bias.

        Raises QuantizationError for a grid with zero points, or with scales along the inputs.
        """
        return cls(*_tensors_of(module, weight_grid, cls.axis), activation).train(module.training)

    def forward(self, input: Tensor) -> Tensor:
        """Compute the layer."""
        return quantized_linear(input, self.weight, self.weight_scale, self.bias, self.activation)

    def function(self) -> _Form:
        """`quantized_linear`."""
        return quantized_linear, _TENSORS, {"activation": "activation"}

    def extra_repr(self) -> str:
        """Say sizes, bits and what becomes of the input."""
        activation = [] if self.activation == "float" else [f"input per {self.activation}"]
        return self._described(f"{self.in_features}, {self.out_features}, bias={self.bias is not None}", *activation)


_TENSORS = {"weight": "weight", "scale": "weight_scale", "bias": "bias"}


class _QuantizedConv(QuantizedLayer):
    """Convolutions of all numbers of dimensions."""

    def __init__(
        self,
        weight: Tensor,
        weight_scale: Tensor,
        bias: Tensor | None,
        stride: tuple[int, ...],
        padding: tuple[int, ...] | str,
        dilation: tuple[int, ...],
        groups: int,
        padding_mode: str = "zeros",
        around: tuple[int, ...] = (),
    ) -> None:
        super().__init__(weight, weight_scale, bias)
        self.stride, self.padding, self.dilation, self.groups = stride, padding, dilation, groups
        self.padding_mode = padding_mode
        self.around = around  # what F.pad is given where padding is not with zeros

    @classmethod
    def from_float(cls, module: Any, weight_grid: Grid) -> _QuantizedConv:
        """Round the weight of a convolution to a grid, and copy its bias and settings.

        Raises QuantizationError for a grid with zero points, or with scales along another axis than that of outputs.
        """
        tensors = _tensors_of(module, weight_grid, cls.axis)
        mode = module.padding_mode
        around = () if mode == "zeros" else tuple(module._reversed_padding_repeated_twice)
        made = cls(*tensors, module.stride, module.padding, module.dilation, module.groups, mode, around)
        return made.train(module.training)

    def forward(self, input: Tensor) -> Tensor:
        """Compute the convolution."""
        if self.padding_mode != "zeros":
            input = F.pad(input, self.around, mode=self.padding_mode)
            return quantized_conv(
                input, self.weight, self.weight_scale, self.bias, self.stride, 0, self.dilation, self.groups
            )
        return quantized_conv(
            input, self.weight, self.weight_scale, self.bias, self.stride, self.padding, self.dilation, self.groups
        )

    def function(self) -> _Form | None:
        """`quantized_conv`, but for padding with other values than 0."""
        names = ("stride", "padding", "dilation", "groups")
        if self.padding_mode != "zeros":
            return None
        return quantized_conv, _TENSORS, dict(zip(names, names, strict=True))

    def extra_repr(self) -> str:
        """Say sizes, settings and bits."""
        sizes = f"{self.weight.shape[1] * self.groups}, {self.weight.shape[0]}, {tuple(self.weight.shape[2:])}"
        settings = f"stride={self.stride}, padding={self.padding}, groups={self.groups}, bias={self.bias is not None}"
        return self._described(sizes, settings)


class QuantizedConv1d(_QuantizedConv):
    """A convolution of one dimension with a weight (out, in / groups, size) of int8; weight_scale (out,)."""


class QuantizedConv2d(_QuantizedConv):
    """A convolution of two dimensions with a weight (out, in / groups, height, width) of int8; weight_scale (out,)."""


class QuantizedConv3d(_QuantizedConv):
    """A convolution of three dimensions with a weight (out, in / groups, ...) of int8; weight_scale (out,)."""


class _QuantizedConvTranspose(QuantizedLayer):
    """Transposed convolutions of all numbers of dimensions; weight_scale (out / groups,)."""

    axis: ClassVar[int] = 1

    def __init__(
        self,
        weight: Tensor,
        weight_scale: Tensor,
        bias: Tensor | None,
        stride: tuple[int, ...],
        padding: tuple[int, ...],
        output_padding: tuple[int, ...],
        groups: int,
        dilation: tuple[int, ...],
    ) -> None:
        super().__init__(weight, weight_scale, bias)
        self.stride, self.padding, self.output_padding = stride, padding, output_padding
        self.groups, self.dilation = groups, dilation

    @classmethod
    def from_float(cls, module: Any, weight_grid: Grid) -> _QuantizedConvTranspose:
        """Round the weight of a transposed convolution to a grid, and copy its bias and settings.

        Raises QuantizationError for a grid with zero points, or with scales along another axis than that of outputs, 1.
        """
        settings = module.stride, module.padding, module.output_padding, module.groups, module.dilation
        return cls(*_tensors_of(module, weight_grid, cls.axis), *settings).train(module.training)

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        """Compute the transposed convolution.

        Raises QuantizationError for `output_size`: padding of the output is a setting.
        """
        if output_size is not None:
            raise QuantizationError("output_size of a quantized layer", fix="set output_padding of the layer instead")
        return quantized_conv_transpose(
            input, self.weight, self.weight_scale, self.bias, self.stride, self.padding, self.output_padding,
            self.groups, self.dilation,
        )  # fmt: skip

    def function(self) -> _Form:
        """`quantized_conv_transpose`."""
        names = ("stride", "padding", "output_padding", "groups", "dilation")
        return quantized_conv_transpose, _TENSORS, dict(zip(names, names, strict=True))

    def extra_repr(self) -> str:
        """Say sizes, settings and bits."""
        sizes = f"{self.weight.shape[0]}, {self.weight.shape[1] * self.groups}, {tuple(self.weight.shape[2:])}"
        settings = f"stride={self.stride}, padding={self.padding}, output_padding={self.output_padding}"
        return self._described(sizes, settings, f"groups={self.groups}, bias={self.bias is not None}")


class QuantizedConvTranspose1d(_QuantizedConvTranspose):
    """A transposed convolution of one dimension with a weight (in, out / groups, size) of int8."""


class QuantizedConvTranspose2d(_QuantizedConvTranspose):
    """A transposed convolution of two dimensions with a weight (in, out / groups, height, width) of int8."""


class QuantizedConvTranspose3d(_QuantizedConvTranspose):
    """A transposed convolution of three dimensions with a weight (in, out / groups, ...) of int8."""


class QuantizedEmbedding(QuantizedLayer):
    """An embedding with a weight (count, size) of int8, or (count, size / 2) of uint8 with two integers in each."""

    def __init__(self, weight: Tensor, weight_scale: Tensor) -> None:
        super().__init__(weight, weight_scale, None)

    @classmethod
    def from_float(cls, module: nn.Embedding, weight_grid: Grid) -> QuantizedEmbedding:
        """Round the weight of an embedding to a grid, with scales for rows or for groups of values of rows.

        Raises QuantizationError for a grid with zero points or scales along columns, and for an embedding with
        `max_norm`, which writes to its weight.
        """
        if module.max_norm is not None:
            raise QuantizationError("an embedding with max_norm", fix="leave this layer in float")
        weight, scale, _ = _tensors_of(module, weight_grid, cls.axis)
        return cls(weight, scale).train(module.training)

    def forward(self, input: Tensor) -> Tensor:
        """Look rows up."""
        return quantized_embedding(input, self.weight, self.weight_scale)

    def function(self) -> _Form:
        """`quantized_embedding`."""
        return quantized_embedding, {"weight": "weight", "scale": "weight_scale"}, {}

    def extra_repr(self) -> str:
        """Say sizes and bits."""
        return self._described(f"{self.weight.shape[0]}, {self.weight.shape[1] * (2 if self.bits == 4 else 1)}")


def with_tensors(module: nn.Module, weight: Tensor, bias: Tensor | None) -> nn.Module:
    """A copy of a float layer or norm with another weight and bias, which no gradient is wanted of."""
    twin = copy.copy(module)
    twin._parameters = {**module._parameters, "weight": nn.Parameter(weight.detach(), requires_grad=False)}
    if bias is not None:
        twin._parameters["bias"] = nn.Parameter(bias.detach(), requires_grad=False)
    return twin


# The class with an integer weight that stands for each class of float layers, and what layers of both are called.
FORMS: dict[type[nn.Module], Any] = {
    nn.Linear: QuantizedLinear,
    nn.Conv1d: QuantizedConv1d,
    nn.Conv2d: QuantizedConv2d,
    nn.Conv3d: QuantizedConv3d,
    nn.ConvTranspose1d: QuantizedConvTranspose1d,
    nn.ConvTranspose2d: QuantizedConvTranspose2d,
    nn.ConvTranspose3d: QuantizedConvTranspose3d,
    nn.Embedding: QuantizedEmbedding,
}
KINDS: dict[type[nn.Module], str] = {
    kind: re.sub("(?<=[a-z])(?=[A-Z])", "_", base.__name__).lower()
    for base, form in FORMS.items()
    for kind in (base, form)
}
