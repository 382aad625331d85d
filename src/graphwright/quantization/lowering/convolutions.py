"""The kernels of quantized convolutions, with the sum and activation behind them, up to the integers of the result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from graphwright.engines import ACTIVATIONS, Calls, Kernel, as_image, itself
from graphwright.quantization.layer_functions import dequantized_weight, quantized_conv, quantized_conv_transpose
from graphwright.quantization.lowering.computing import (
    as_floats,
    ended,
    has_exact_onednn,
    has_onednn,
    reason_against,
    values_like,
)
from graphwright.quantization.lowering.integers import Steps
from graphwright.quantization.lowering.linears import Linear, integer_rows, no_zero_points, onednn_rows

_onednn, _mkldnn = torch.ops.onednn, torch.ops.mkldnn
_INSIDE = ("relu", "relu6", "hardswish", "silu")  # activations that the kernel of oneDNN computes


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution of a quantized weight, and what follows.

    weight, scale, bias: their paths. output_shape: of the result. input: what the integers that it reads stand for,
    None where it reads floats. is_added: whether a value is added, whose integers `added` is about. output: the
    integers that it gives, None for floats.
    """

    weight: str
    scale: str
    bias: str | None
    shape: tuple[int, ...]
    weight_shape: tuple[int, ...]
    output_shape: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    input: Steps | None
    is_added: bool = False
    added: Steps | None = None
    activation: str | None = None
    output: Steps | None = None

    @property
    def key(self) -> str:
        """What the time of the convolution depends on."""
        numbers = (self.stride, self.padding, self.dilation, self.groups)
        added = f" + {self.added or 'float'}" if self.is_added else ""
        bias = "bias" if self.bias else "no bias"
        ends = f"{self.input or 'float'}{added} -> {self.output or 'float'}"
        return f"int8 conv {self.shape} {self.weight_shape} {numbers}, {bias}, {self.activation}, {ends}"

    @property
    def weights(self) -> tuple[str, ...]:
        """The path of the weight."""
        return (self.weight,)

    @property
    def keeps_layout(self) -> bool:
        """Kernels give images whose channels come last."""
        return False

    @property
    def numbers(self) -> tuple[list[int], list[int], list[int], int]:
        """Stride, padding, dilation and groups."""
        return list(self.stride), list(self.padding), list(self.dilation), self.groups

    def kernels(self, is_exact: bool = False) -> dict[str, Kernel]:
        """As the program has it, with a weight in floats, and in integers."""
        kernels: dict[str, Kernel] = {"torch": _reference, "float weight": _float_weight}
        if has_onednn():
            if len(self.shape) == 4:
                kernels["oneDNN, float weight"] = _onednn_float
            if has_exact_onednn() and self.input is not None and self.input.is_byte and len(self.shape) in (3, 4):
                kernels["oneDNN int8"] = _onednn_int8
        if self.is_plain and self.input is not None:
            kernels["integers"] = _rows_of_integers
            if has_exact_onednn() and self.input.is_byte and not self.is_added:
                kernels["oneDNN int8, as rows"] = _rows_of_onednn
        return kernels

    @property
    def is_plain(self) -> bool:
        """Whether each output is a sum over the channels of one pixel of an image."""
        ones = {*self.weight_shape[2:], *self.stride, self.groups}
        return ones == {1} and not any(self.padding) and len(self.shape) == 4

    @property
    def as_rows(self) -> Linear:
        """The linear layer of pixels that a plain convolution is."""
        count, channels, height, width = self.shape
        rows = (count * height * width, channels)
        output = None if self.is_added else self.output
        activation = None if self.is_added else self.activation
        biases = () if self.bias is None else (self.bias,)
        return Linear(
            (self.weight,), (self.scale,), biases, rows, self.weight_shape[0], 1, 8, "float", self.input,
            activation, output,
        )  # fmt: skip

    def example(self) -> list[Tensor]:
        """A random image, and one to add, where there is one."""
        added = [values_like(self.output_shape, self.added)] if self.is_added else []
        return [values_like(self.shape, self.input), *added]

    def reason_against(self, given: Any, expected: Any, tolerance: float) -> str:
        """Say why a result is none."""
        return reason_against(given, expected)


def _read(calls: Calls, site: Convolution, x: Any, other: Any, quickly: bool) -> tuple[Any, Any]:
    """The floats that a convolution reads, and those to add."""
    x = x if site.input is None else as_floats(calls, x, site.input, quickly)
    if site.is_added and site.added is not None:
        other = as_floats(calls, other, site.added, quickly)
    return x, other


def _bias(calls: Calls, site: Any) -> Any:
    return None if site.bias is None else calls.packed(itself, (site.bias,))


def _reference(calls: Calls, site: Convolution, x: Any, other: Any = None) -> Any:
    x, other = _read(calls, site, x, other, quickly=False)
    weight, scale = (calls.packed(itself, (path,)) for path in (site.weight, site.scale))
    value = calls.call(quantized_conv, x, weight, scale, _bias(calls, site), *_settings(site))
    return ended(calls, value, other, site.activation, site.output, quickly=False)


def _settings(site: Convolution) -> tuple[Any, ...]:
    return site.stride, site.padding, site.dilation, site.groups


# ---- in floats, with a weight that was made once


def _weight(weight: Tensor, scale: Tensor, axis: int = 0) -> Tensor:
    made = dequantized_weight(weight, scale, axis)
    return made.contiguous(memory_format=torch.channels_last) if made.dim() == 4 else made


_CONVOLUTIONS = {3: torch.conv1d, 4: torch.conv2d, 5: torch.conv3d}
_TRANSPOSED = {3: torch.conv_transpose1d, 4: torch.conv_transpose2d, 5: torch.conv_transpose3d}


def _float_weight(calls: Calls, site: Convolution, x: Any, other: Any = None) -> Any:
    x, other = _read(calls, site, x, other, quickly=True)
    weight = calls.packed(_weight, (site.weight, site.scale))
    value = calls.call(_CONVOLUTIONS[len(site.shape)], x, weight, _bias(calls, site), *_settings(site))
    return ended(calls, value, other, site.activation, site.output, quickly=True)


def _packed_float(*args: Any) -> Tensor:
    weight, scale, padding, stride, dilation, groups, shape = args
    whole = dequantized_weight(weight, scale)
    return _mkldnn._reorder_convolution_weight(whole, padding, stride, dilation, groups, shape)  # type: ignore[no-any-return]


def _onednn_float(calls: Calls, site: Convolution, x: Any, other: Any = None) -> Any:
    x, other = _read(calls, site, x, other, quickly=True)
    stride, padding, dilation, groups = site.numbers
    places = tuple(padding), tuple(stride), tuple(dilation)
    weight = calls.packed(_packed_float, (site.weight, site.scale), *places, groups, site.shape)
    inside = site.activation is not None and not site.is_added
    attribute, scalars, algorithm = _inside(site.activation if inside else None)
    value = calls.call(
        _mkldnn._convolution_pointwise.default, x, weight, _bias(calls, site), padding, stride, dilation, groups,
        attribute, scalars, algorithm,
    )  # fmt: skip
    return ended(calls, value, other, None if inside else site.activation, site.output, quickly=True)


def _inside(name: str | None) -> tuple[str, list[float], str]:
    if name is None:
        return "none", [], ""
    activation = ACTIVATIONS[name]
    return activation.attribute, list(activation.scalars), activation.algorithm


# ---- in integers


def _packed_integers(*args: Any) -> Tensor:
    """The weight as oneDNN wants it for inputs of this shape: for another one it would be reordered in each call."""
    weight, scale, input, stride, padding, dilation, groups, shape = args
    return _onednn.qconv_prepack(  # type: ignore[no-any-return]
        weight, scale, input.scale, input.zero_point, list(stride), list(padding), list(dilation), groups, list(shape)
    )


def _onednn_int8(calls: Calls, site: Convolution, x: Any, other: Any = None) -> Any:
    assert site.input is not None
    weight = calls.packed(_packed_integers, (site.weight, site.scale), site.input, *_settings(site), site.shape)
    scale, zeros = calls.packed(itself, (site.scale,)), calls.packed(no_zero_points, (site.scale,))
    read = (x, site.input.scale, site.input.zero_point, weight, scale, zeros)
    numbers = site.numbers
    if _is_sum(site):
        assert site.added is not None or site.output is None
        # The sum is written into the other value: a copy, unless nobody reads that any more (see `finish`).
        other = calls.call(torch.clone, other, memory_format=_format(site))
        added = (1.0, 0) if site.added is None else (site.added.scale, site.added.zero_point)
        return calls.call(
            _onednn.qconv2d_pointwise.binary, *read, other, _bias(calls, site), *numbers, *_given(site.output),
            *added, "sum", 1.0, site.activation or "none", [], "",
        )  # fmt: skip
    is_byte = site.output is None or site.output.is_byte
    inside = not site.is_added and site.activation in (None, *_INSIDE) and is_byte
    attribute, scalars, algorithm = _inside(site.activation if inside else None)
    output = site.output if inside else None
    value = calls.call(
        _onednn.qconv_pointwise.default,
        *read,
        _bias(calls, site),
        *numbers,
        *_given(output),
        attribute,
        scalars,
        algorithm,
    )
    if inside:
        return value
    if site.is_added and site.added is not None:
        other = as_floats(calls, other, site.added, quickly=True)
    return ended(calls, value, other, site.activation, site.output, quickly=True)


# ---- as products of matrices: a pixel of an image whose channels come last is a row


def _rows_of(calls: Calls, x: Any, channels: int) -> Any:
    return calls.call(torch.reshape, calls.call(torch.permute, x, (0, 2, 3, 1)), (-1, channels))


def _rows_of_integers(calls: Calls, site: Convolution, x: Any, other: Any = None) -> Any:
    value = integer_rows(calls, site.as_rows, _rows_of(calls, x, site.shape[1]))
    value = calls.call(as_image, value, x)
    if not site.is_added:
        return value
    other = other if site.added is None else as_floats(calls, other, site.added, quickly=True)
    return ended(calls, value, other, site.activation, site.output, quickly=True)


def _rows_of_onednn(calls: Calls, site: Convolution, x: Any) -> Any:
    return calls.call(as_image, onednn_rows(calls, site.as_rows, _rows_of(calls, x, site.shape[1])), x)


def _is_sum(site: Convolution) -> bool:
    """Tell whether the kernel of oneDNN adds the other value."""
    is_same = (site.added is None) is (site.output is None) and (site.added is None or site.added.is_byte)
    is_byte = site.output is None or site.output.is_byte
    return site.is_added and is_same and is_byte and len(site.shape) == 4 and site.activation in (None, "relu")


def _format(site: Convolution) -> torch.memory_format:
    return torch.channels_last if len(site.shape) == 4 else torch.contiguous_format


def _given(output: Steps | None) -> tuple[float, int, torch.dtype]:
    return (1.0, 0, torch.float32) if output is None else (output.scale, output.zero_point, output.dtype)


# ---- transposed


@dataclass(frozen=True, slots=True)
class TransposedConvolution:
    """A transposed convolution of a quantized weight, and the integers around it; see `Convolution`."""

    weight: str
    scale: str
    bias: str | None
    shape: tuple[int, ...]
    weight_shape: tuple[int, ...]
    settings: tuple[Any, ...]  # stride, padding, output_padding, groups, dilation
    input: Steps | None
    activation: str | None = None
    output: Steps | None = None

    @property
    def key(self) -> str:
        """What the time of the convolution depends on."""
        ends = f"{self.input or 'float'} -> {self.output or 'float'}"
        bias = "bias" if self.bias else "no bias"
        return (
            f"int8 transposed conv {self.shape} {self.weight_shape} {self.settings}, {bias}, {self.activation}, {ends}"
        )

    @property
    def weights(self) -> tuple[str, ...]:
        """The path of the weight."""
        return (self.weight,)

    @property
    def keeps_layout(self) -> bool:
        """Kernels give images whose channels come last."""
        return False

    def kernels(self, is_exact: bool = False) -> dict[str, Kernel]:
        """As the program has it, and with a weight in floats: there is no kernel of integers."""
        return {"torch": _transposed_reference, "float weight": _transposed_float}

    def example(self) -> list[Tensor]:
        """A random image."""
        return [values_like(self.shape, self.input)]

    def reason_against(self, given: Any, expected: Any, tolerance: float) -> str:
        """Say why a result is none."""
        return reason_against(given, expected)


def _transposed_reference(calls: Calls, site: TransposedConvolution, x: Any) -> Any:
    x = x if site.input is None else as_floats(calls, x, site.input, quickly=False)
    weight, scale = (calls.packed(itself, (path,)) for path in (site.weight, site.scale))
    value = calls.call(quantized_conv_transpose, x, weight, scale, _bias(calls, site), *site.settings)
    return ended(calls, value, None, site.activation, site.output, quickly=False)


def _transposed_float(calls: Calls, site: TransposedConvolution, x: Any) -> Any:
    x = x if site.input is None else as_floats(calls, x, site.input, quickly=True)
    weight = calls.packed(_weight, (site.weight, site.scale), 1)
    value = calls.call(_TRANSPOSED[len(site.shape)], x, weight, _bias(calls, site), *site.settings)
    return ended(calls, value, None, site.activation, site.output, quickly=True)
