"""Layers whose weights are rounded in each call: instances of the classes that they stand for, with the same state."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphwright.passes import scale_and_shift
from graphwright.quantization.layer_functions import rounded_in_call
from graphwright.quantization.observers.weight_grid import weight_grid
from graphwright.quantization.schemes import Scheme
from graphwright.quantization.training.straight_through import round_to_grid


class FakeQuantizedLayer(nn.Module):
    """What such layers have besides those of torch.nn; made by `take_over`, never by a constructor.

    weight_scheme: how the weight will be written. is_rounding: a switch. activation: "float", or "tensor" or "token"
    where the range of inputs is found in each call. norms: the batch norm behind the layer, if there is one that
    `convert` folds into it: the weight is rounded as it will be then, with the statistics that there are now.
    """

    weight: Tensor
    weight_scheme: Scheme
    activation: str
    norms: tuple[nn.Module, ...]
    is_rounding: bool

    def rounded_weight(self) -> Tensor:
        """The weight next to that of the layer that integers can say."""
        if not self.is_rounding:
            return self.weight
        factor = self._factor()
        weight = self.weight if factor is None else self.weight * factor
        rounded = round_to_grid(weight, weight_grid(weight, self.weight_scheme))
        return rounded if factor is None else rounded / factor

    def rounded_input(self, x: Tensor) -> Tensor:
        """The input, rounded where its range is found in each call."""
        if not self.is_rounding or self.activation == "float":
            return x
        return x + (rounded_in_call(x.detach(), self.activation) - x.detach())

    def _factor(self) -> Tensor | None:
        """What the batch norm behind multiplies each channel with, in the shape of the weight; without gradient."""
        if not self.norms:
            return None
        scale, _ = scale_and_shift(self.norms[0])  # type: ignore[arg-type]
        scale = torch.where(scale == 0, torch.ones_like(scale), scale)
        if isinstance(self, nn.modules.conv._ConvTransposeNd):  # (in, out / groups, ...), groups of inputs in a row
            rows = scale.reshape(self.groups, 1, -1).expand(-1, self.in_channels // self.groups, -1).flatten(0, 1)
            return rows.reshape(*rows.shape, *[1] * (self.weight.dim() - 2)).to(self.weight.dtype)
        return scale.reshape(-1, *[1] * (self.weight.dim() - 1)).to(self.weight.dtype)


class FakeQuantizedLinear(FakeQuantizedLayer, nn.Linear):
    """A linear layer whose weight is rounded in each call."""

    def forward(self, input: Tensor) -> Tensor:
        """Compute the layer with its rounded weight."""
        return F.linear(self.rounded_input(input), self.rounded_weight(), self.bias)


class _Convolution(FakeQuantizedLayer):
    def forward(self, input: Tensor) -> Tensor:
        """Compute the layer with its rounded weight."""
        layer: Any = self
        return layer._conv_forward(input, self.rounded_weight(), layer.bias)  # type: ignore[no-any-return]


class FakeQuantizedConv1d(_Convolution, nn.Conv1d):
    """A convolution of one dimension whose weight is rounded in each call."""


class FakeQuantizedConv2d(_Convolution, nn.Conv2d):
    """A convolution of two dimensions whose weight is rounded in each call."""


class FakeQuantizedConv3d(_Convolution, nn.Conv3d):
    """A convolution of three dimensions whose weight is rounded in each call."""


class _TransposedConvolution(FakeQuantizedLayer):
    def _transposed(self, function: Any, input: Tensor) -> Any:
        layer: Any = self
        return function(
            input, self.rounded_weight(), layer.bias, layer.stride, layer.padding, layer.output_padding, layer.groups,
            layer.dilation,
        )  # fmt: skip


class FakeQuantizedConvTranspose1d(_TransposedConvolution, nn.ConvTranspose1d):
    """A transposed convolution of one dimension whose weight is rounded in each call."""

    def forward(self, input: Tensor) -> Tensor:  # type: ignore[override]
        """Compute the layer with its rounded weight."""
        return self._transposed(F.conv_transpose1d, input)  # type: ignore[no-any-return]


class FakeQuantizedConvTranspose2d(_TransposedConvolution, nn.ConvTranspose2d):
    """A transposed convolution of two dimensions whose weight is rounded in each call."""

    def forward(self, input: Tensor) -> Tensor:  # type: ignore[override]
        """Compute the layer with its rounded weight."""
        return self._transposed(F.conv_transpose2d, input)  # type: ignore[no-any-return]


class FakeQuantizedConvTranspose3d(_TransposedConvolution, nn.ConvTranspose3d):
    """A transposed convolution of three dimensions whose weight is rounded in each call."""

    def forward(self, input: Tensor) -> Tensor:  # type: ignore[override]
        """Compute the layer with its rounded weight."""
        return self._transposed(F.conv_transpose3d, input)  # type: ignore[no-any-return]


class FakeQuantizedEmbedding(FakeQuantizedLayer, nn.Embedding):
    """An embedding whose weight is rounded in each call."""

    def forward(self, input: Tensor) -> Tensor:
        """Look rows of the rounded weight up."""
        return F.embedding(
            input, self.rounded_weight(), self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq,
            self.sparse,
        )  # fmt: skip


FORMS: dict[type[nn.Module], type[nn.Module]] = {
    nn.Linear: FakeQuantizedLinear,
    nn.Conv1d: FakeQuantizedConv1d,
    nn.Conv2d: FakeQuantizedConv2d,
    nn.Conv3d: FakeQuantizedConv3d,
    nn.ConvTranspose1d: FakeQuantizedConvTranspose1d,
    nn.ConvTranspose2d: FakeQuantizedConvTranspose2d,
    nn.ConvTranspose3d: FakeQuantizedConvTranspose3d,
    nn.Embedding: FakeQuantizedEmbedding,
}
_PLAIN = {form: kind for kind, form in FORMS.items()}
_OWN = ("weight_scheme", "activation", "norms", "is_rounding")


def take_over(layer: nn.Module, scheme: Scheme, activation: str, norms: tuple[nn.Module, ...]) -> None:
    """Have a layer round its weight from now on: it stays the module that it is, of a class below its own."""
    layer.__class__ = FORMS[type(layer)]
    layer.__dict__.update(weight_scheme=scheme, activation=activation, norms=norms, is_rounding=True)


def give_back(layer: FakeQuantizedLayer) -> None:
    """Have a layer be of its own class again."""
    for name in _OWN:
        del layer.__dict__[name]
    layer.__class__ = _PLAIN[type(layer)]  # type: ignore[assignment]
