"""Recurrent layers and cells with weights of integers, in the place of those of torch.nn: buffers of the same names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from graphwright.ops import ModuleOfFunction
from graphwright.quantization.affine import quantize_by
from graphwright.quantization.observers.weight_grid import weight_grid
from graphwright.quantization.recurrent_functions import (
    quantized_gru,
    quantized_gru_cell,
    quantized_lstm,
    quantized_lstm_cell,
)
from graphwright.quantization.schemes import PerAxis, PerGroup, PerToken, QConfig, Scheme


class QuantizedRecurrent(ModuleOfFunction):
    """What all quantized recurrent layers and cells have.

    Weights of int8 with a scale for each row, of which each gate has as many as the state has values, and biases in
    float: buffers by the names that they have in torch.nn, and those of the scales end with `_scale`. activation:
    "float" takes inputs and states as they are; "tensor" and "token" round them before each product.
    """

    settings: ClassVar[tuple[str, ...]] = ()  # what the function is passed besides
    compute: ClassVar[Callable[..., Any]]

    def __init__(self, tensors: Mapping[str, Tensor | None], activation: str, settings: Mapping[str, Any]) -> None:
        super().__init__()
        for name, tensor in tensors.items():
            self.register_buffer(name, tensor)
        self.activation = activation
        for name in self.settings:
            setattr(self, name, settings[name])

    @classmethod
    def from_float(cls, module: nn.Module, config: QConfig) -> QuantizedRecurrent:
        """Round the weights of a layer or cell, and copy its biases and settings."""
        scheme, made = config.weight, dict[str, Tensor | None]()
        assert scheme is not None
        for name, tensor in module._parameters.items():
            if tensor is None or name.startswith("bias"):
                made[name] = None if tensor is None else tensor.detach().clone()
                continue
            with torch.no_grad():
                grid = weight_grid(tensor.detach(), scheme)
                scale = grid.scale.detach().float()
                made[name] = quantize_by(tensor.detach(), grid)
                made[f"{name}_scale"] = scale.clone() if scale.dim() else scale.repeat(tensor.shape[0])
        settings = {name: getattr(module, name) for name in cls.settings}
        return cls(made, _activation(config), settings).train(module.training)

    def forward(self, input: Tensor, hx: Any = None) -> Any:
        """Compute the layer."""
        settings = {name: getattr(self, name) for name in self.settings}
        return type(self).compute(input, hx, activation=self.activation, **settings, **self._buffers)

    def function(self) -> tuple[Callable[..., Any], Mapping[str, str], Mapping[str, str]]:
        """The function, with all of the tensors by their names."""
        settings = ("activation", *self.settings)
        return type(self).compute, {name: name for name in self._buffers}, {name: name for name in settings}

    def extra_repr(self) -> str:
        """Say sizes, settings and what becomes of inputs."""
        weight = next(tensor for name, tensor in self._buffers.items() if name.startswith("weight_ih"))
        assert weight is not None
        said = [f"{name}={getattr(self, name)}" for name in self.settings]
        activation = [] if self.activation == "float" else [f"input per {self.activation}"]
        return ", ".join([f"{weight.shape[1]} -> {weight.shape[0]} gates", *said, *activation, "int8"])


def _activation(config: QConfig) -> str:
    if config.activation is None:
        return "float"
    return "token" if isinstance(config.activation.granularity, PerToken) else "tensor"


_SETTINGS = ("num_layers", "bidirectional", "batch_first")


class QuantizedLSTM(QuantizedRecurrent):
    """An nn.LSTM with weights of int8.

    >>> from graphwright.quantization import weight_only_int8
    >>> lstm = nn.LSTM(4, 8, bidirectional=True).eval()
    >>> layer = QuantizedLSTM.from_float(lstm, weight_only_int8())
    >>> x = torch.ones(3, 1, 4)
    >>> layer.weight_ih_l0_reverse.dtype, bool((layer(x)[0] - lstm(x)[0]).abs().max() < 0.02)
    (torch.int8, True)
    """

    settings = _SETTINGS
    compute = staticmethod(quantized_lstm)


class QuantizedGRU(QuantizedRecurrent):
    """An nn.GRU with weights of int8, see `QuantizedLSTM`."""

    settings = _SETTINGS
    compute = staticmethod(quantized_gru)


class QuantizedLSTMCell(QuantizedRecurrent):
    """An nn.LSTMCell with weights of int8, see `QuantizedLSTM`."""

    compute = staticmethod(quantized_lstm_cell)


class QuantizedGRUCell(QuantizedRecurrent):
    """An nn.GRUCell with weights of int8, see `QuantizedLSTM`."""

    compute = staticmethod(quantized_gru_cell)


# The class that stands for each class of recurrent layers and cells, and what both are called.
RECURRENT_FORMS: dict[type[nn.Module], type[QuantizedRecurrent]] = {
    nn.LSTM: QuantizedLSTM,
    nn.GRU: QuantizedGRU,
    nn.LSTMCell: QuantizedLSTMCell,
    nn.GRUCell: QuantizedGRUCell,
}
RECURRENT_KINDS: dict[type[nn.Module], str] = {
    kind: name
    for (base, form), name in zip(RECURRENT_FORMS.items(), ("lstm", "gru", "lstm_cell", "gru_cell"), strict=True)
    for kind in (base, form)
}


def fitting_recurrent(scheme: Scheme) -> tuple[Scheme, str]:
    """A scheme that fits the weights of recurrent layers, 8 bits with a scale for each row; and why it is another."""
    if scheme.bits == 8 and not isinstance(scheme.granularity, PerGroup):
        per_row = isinstance(scheme.granularity, PerAxis) and scheme.granularity.axis != 0
        return (Scheme(torch.int8, PerAxis(0), True, scheme.observer) if per_row else scheme), ""
    return Scheme(torch.int8, PerAxis(0), True, scheme.observer), "no linear layer: integers of 8 bits"
