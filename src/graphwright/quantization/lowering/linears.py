"""The kernels of quantized linear layers, with the activation behind them, up to the integers of the result."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from graphwright.engines import ACTIVATIONS, Calls, Kernel, activated, as_vectors, itself
from graphwright.quantization.layer_functions import (
    dequantized_weight,
    quantized_linear,
    range_of_call,
    rounded_in_call,
    unpack_int4,
)
from graphwright.quantization.lowering.computing import (
    as_floats,
    as_integers,
    ended,
    has_exact_onednn,
    reason_against,
    values_like,
)
from graphwright.quantization.lowering.integers import Steps

_onednn, _mkl, _aten = torch.ops.onednn, torch.ops.mkl, torch.ops.aten
COPIES = frozenset({"float weight", "MKL, float weight"})  # kernels that hold the weight in floats
_INSIDE = ("relu", "relu6", "gelu", "gelu_tanh", "hardswish", "silu", "tanh")  # of the kernel of oneDNN


@dataclass(frozen=True, slots=True)
class Linear:
    """Linear layers of quantized weights that read the same, mostly one, and what follows.

    weights, scales, biases: their paths. inputs, outputs: the sizes of vectors. groups: the scales of each row of the
    weight. bits: of an integer of the weight. range_of: "float" for inputs as they are; "tensor" and "token" become
    integers in the call. input: what the integers that it reads stand for, None where it reads floats. output: the
    integers that it gives, None for floats.
    """

    weights: tuple[str, ...]
    scales: tuple[str, ...]
    biases: tuple[str, ...]
    shape: tuple[int, ...]
    outputs: int
    groups: int
    bits: int
    range_of: str
    input: Steps | None
    activation: str | None = None
    output: Steps | None = None

    @property
    def key(self) -> str:
        """What the time of the layer depends on."""
        weight = f"int{self.bits}" + (f" in {self.groups} groups" if self.groups > 1 else "")
        bias = "bias" if self.biases else "no bias"
        source = f"per {self.range_of}" if self.range_of != "float" else str(self.input or "float")
        ends = f"{source} -> {self.output or 'float'}"
        return f"{weight} linear {list(self.shape)} -> {self.outputs}, {bias}, {self.activation}, {ends}"

    @property
    def keeps_layout(self) -> bool:
        """Rows stay rows."""
        return True

    @property
    def inputs(self) -> int:
        """The size of the vectors that it reads."""
        return self.shape[-1]

    @property
    def rows(self) -> int:
        """How many vectors the layer reads."""
        return torch.Size(self.shape[:-1]).numel()

    def kernels(self, is_exact: bool = False) -> dict[str, Kernel]:
        """As the program has it, with a weight in floats, and with integers as far as there are some."""
        kernels: dict[str, Kernel] = {"torch": _reference, "float weight": _float_weight}
        if torch.backends.mkl.is_available():
            kernels["MKL, float weight"] = _mkl_float
        is_computed = self.range_of != "float" and self.input is None
        if self.groups == 1 and (is_computed or (self.input is not None and self.range_of == "float")):
            kernels["integers"] = _integers_in_call if is_computed else integer_rows
            is_byte = self.input is None or self.input.is_byte
            if has_exact_onednn() and is_byte:
                kernels["oneDNN int8"] = _onednn_in_call if is_computed else onednn_rows
        if (
            self.input is None and self.range_of == "float" and not self.inputs % 32
        ):  # with others it reads past the end
            kernels["half inputs"] = _half_groups if self.groups > 1 or self.bits == 4 else _half_inputs
        return kernels

    def example(self) -> list[Tensor]:
        """A random input."""
        return [values_like(self.shape, self.input)]

    def reason_against(self, given: Any, expected: Any, tolerance: float) -> str:
        """Say why a result is none."""
        return reason_against(given, expected)


def _packed(calls: Calls, site: Linear, make: Callable[..., Any], what: str, *settings: Any) -> Any:
    """What is made of the tensors of layers, which are joined first: "w", "s" and "b" for weights, scales, biases."""
    groups = [{"w": site.weights, "s": site.scales, "b": site.biases}[one] for one in what]
    groups = [group for group in groups if group]
    sources = tuple([path for group in groups for path in group])
    if len(site.weights) == 1:
        return calls.packed(make, sources, *settings)
    return calls.packed(_of_several, sources, make, len(site.weights), *settings)


def _of_several(*args: Any) -> Any:
    """Make something of tensors after joining each so many."""
    tensors = [each for each in args if isinstance(each, Tensor)]
    make, count, *settings = args[len(tensors) :]
    joined = [torch.cat(tensors[i : i + count]) for i in range(0, len(tensors), count)]
    return make(*joined, *settings)


def _bias(calls: Calls, site: Linear) -> Any:
    return _packed(calls, site, itself, "b") if site.biases else None


def _reference(calls: Calls, site: Linear, x: Any) -> Any:
    x = x if site.input is None else as_floats(calls, x, site.input, quickly=False)
    weight, scale = _packed(calls, site, itself, "w"), _packed(calls, site, itself, "s")
    value = calls.call(quantized_linear, x, weight, scale, _bias(calls, site), site.range_of)
    return ended(calls, value, None, site.activation, site.output, quickly=False)


# ---- in floats, with a weight that was made once


def _read(calls: Calls, site: Linear, x: Any) -> Any:
    if site.input is not None:
        x = as_floats(calls, x, site.input, quickly=True)
    return x if site.range_of == "float" else calls.call(rounded_in_call, x, site.range_of)


def _float_weight(calls: Calls, site: Linear, x: Any) -> Any:
    weight = _packed(calls, site, dequantized_weight, "ws")
    value = calls.call(F.linear, _read(calls, site, x), weight, _bias(calls, site))
    return ended(calls, value, None, site.activation, site.output, quickly=True)


def _for_mkl(weight: Tensor, scale: Tensor, rows: int) -> Tensor:
    return _mkl._mkl_reorder_linear_weight(dequantized_weight(weight, scale), rows)  # type: ignore[no-any-return]


def _mkl_float(calls: Calls, site: Linear, x: Any) -> Any:
    whole = _packed(calls, site, dequantized_weight, "ws")
    packed = _packed(calls, site, _for_mkl, "ws", site.rows)
    value = calls.call(_mkl._mkl_linear.default, _read(calls, site, x), packed, whole, _bias(calls, site), site.rows)
    return ended(calls, value, None, site.activation, site.output, quickly=True)


# ---- integers, computed before


def no_zero_points(scale: Tensor) -> Tensor:
    """Zero points of a symmetric weight."""
    return torch.zeros_like(scale, dtype=torch.int64)


def _whole(weight: Tensor) -> Tensor:
    """The weight (out, in) as int8, of a convolution of pixels, too."""
    return unpack_int4(weight) if weight.dtype is torch.uint8 else weight.flatten(1)


def scales_in_a_row(scale: Tensor) -> Tensor:
    """The scales of a weight, as kernels want them."""
    return scale.reshape(-1).contiguous()


def _for_onednn(weight: Tensor, shape: Any) -> Tensor:
    return _onednn.qlinear_prepack(_whole(weight), list(shape))  # type: ignore[no-any-return]


def _flat_shape(site: Linear) -> tuple[int, ...]:
    return site.rows, site.inputs


def _inside(site: Linear) -> tuple[bool, tuple[str, list[float], str]]:
    """Whether the kernel ends the layer, and how it is told the activation."""
    is_byte = site.output is None or site.output.is_byte
    if not is_byte or site.activation not in (None, *_INSIDE):
        return False, ("none", [], "")
    if site.activation is None:
        return True, ("none", [], "")
    activation = ACTIVATIONS[site.activation]
    return True, (activation.attribute, list(activation.scalars), activation.algorithm)


def onednn_rows(calls: Calls, site: Linear, x: Any) -> Any:
    assert site.input is not None
    weight = _packed(calls, site, _for_onednn, "w", _flat_shape(site))
    scale, zeros = _packed(calls, site, scales_in_a_row, "s"), _packed(calls, site, no_zero_points, "s")
    is_inside, post = _inside(site)
    output = site.output if is_inside else None
    given = (1.0, 0, torch.float32) if output is None else (output.scale, output.zero_point, output.dtype)
    value = calls.call(
        _onednn.qlinear_pointwise.default, x, site.input.scale, site.input.zero_point, weight, scale, zeros,
        _bias(calls, site), *given, *post,
    )  # fmt: skip
    return value if is_inside else ended(calls, value, None, site.activation, site.output, quickly=True)


def turned(weight: Tensor) -> Tensor:
    """A weight (out, in) as a view (in, out)."""
    return _whole(weight).contiguous().t()


def _in_a_row(calls: Calls, site: Linear, x: Any) -> Any:
    """The vectors of a value as rows, however many there are in a call."""
    return x if len(site.shape) == 2 else calls.call(torch.reshape, x, (-1, site.inputs))


def _product(calls: Calls, site: Linear, x: Any) -> Any:
    """The product of integers, exact, with the rows in a row."""
    return _product_of(calls, site, _in_a_row(calls, site, x))


def _product_of(calls: Calls, site: Linear, rows: Any) -> Any:
    return calls.call(torch._int_mm, rows, _packed(calls, site, turned, "w"))


def _shaped(calls: Calls, site: Linear, value: Any, x: Any) -> Any:
    return value if len(site.shape) == 2 else calls.call(as_vectors, value, x)


def _factor(scale: Tensor, step: float) -> Tensor:
    return scale.reshape(-1) * step


def _offset(*args: Any) -> Tensor:
    """What is added to the product: the bias, without what the zero point has brought in."""
    weight, scale, *bias, input = args
    moved: Tensor = _whole(weight).sum(1, dtype=torch.float32) * scale.reshape(-1) * (-input.scale * input.zero_point)
    return moved.add_(bias[0]) if bias else moved


def integer_rows(calls: Calls, site: Linear, x: Any) -> Any:
    assert site.input is not None
    factor = _packed(calls, site, _factor, "s", site.input.scale)
    offset = _packed(calls, site, _offset, "wsb", site.input)
    value = calls.call(torch.addcmul, offset, calls.call(torch.Tensor.float, _product(calls, site, x)), factor)
    value = activated(calls, site.activation, value)
    value = value if site.output is None else as_integers(calls, value, site.output, quickly=True)
    return _shaped(calls, site, value, x)


# ---- integers, whose range is found in the call


def bytes_of_call(x: Tensor, scale: Tensor, zero_point: Tensor) -> Tensor:
    """Vectors as bytes of a range that was found in the call."""
    return x.div(scale).add_(zero_point + 0.5).clamp_(0, 255).short().byte()  # short cuts what is after the point


def _rows(calls: Calls, site: Linear, x: Any) -> tuple[Any, Any, Any]:
    """The rows as bytes, their scales, and their zero points."""
    x = _in_a_row(calls, site, x)
    pair = calls.call(range_of_call, x, site.range_of)
    scale, zero_point = (calls.call(operator.getitem, pair, i) for i in (0, 1))
    return calls.call(bytes_of_call, x, scale, zero_point), scale, zero_point


def sums_of_rows(weight: Tensor, scale: Tensor) -> Tensor:
    """What zero points of inputs are multiplied with."""
    return -_whole(weight).sum(1, dtype=torch.float32) * scale.reshape(-1)


def moved_and_scaled(
    product: Tensor, scale: Tensor, zero_point: Tensor, factor: Tensor | None, sums: Tensor, bias: Tensor | None
) -> Tensor:
    """What a product of bytes stands for: `(product * factor + zero_point * sums) * scale + bias`."""
    value = product if factor is None else product.float().mul_(factor)
    value = value.addcmul_(zero_point, sums)
    return value.mul_(scale) if bias is None else torch.addcmul(bias, value, scale)


def _integers_in_call(calls: Calls, site: Linear, x: Any) -> Any:
    rows, scale, zero_point = _rows(calls, site, x)
    product, factor = _product_of(calls, site, rows), _packed(calls, site, scales_in_a_row, "s")
    return _ended_rows(calls, site, product, scale, zero_point, factor, x)


def _onednn_in_call(calls: Calls, site: Linear, x: Any) -> Any:
    rows, scale, zero_point = _rows(calls, site, x)
    weight = _packed(calls, site, _for_onednn, "w", _flat_shape(site))
    scales, zeros = _packed(calls, site, scales_in_a_row, "s"), _packed(calls, site, no_zero_points, "s")
    value = calls.call(
        _onednn.qlinear_pointwise.default,
        rows,
        1.0,
        0,
        weight,
        scales,
        zeros,
        None,
        1.0,
        0,
        torch.float32,
        "none",
        [],
        "",
    )
    return _ended_rows(calls, site, value, scale, zero_point, None, x)


def _ended_rows(calls: Calls, site: Linear, value: Any, scale: Any, zero_point: Any, factor: Any, x: Any) -> Any:
    sums = _packed(calls, site, sums_of_rows, "ws")
    value = calls.call(moved_and_scaled, value, scale, zero_point, factor, sums, _bias(calls, site))
    return _shaped(calls, site, ended(calls, value, None, site.activation, site.output, quickly=True), x)


# ---- weights alone, with inputs in half precision: these kernels are slow with others


def _half_rows(calls: Calls, site: Linear, x: Any) -> Any:
    return calls.call(torch.Tensor.bfloat16, _in_a_row(calls, site, x))


def _ended_half(calls: Calls, site: Linear, value: Any, x: Any) -> Any:
    if site.biases:
        value = calls.call(torch.Tensor.add_, value, _bias(calls, site))
    return _shaped(calls, site, ended(calls, value, None, site.activation, site.output, quickly=True), x)


def _half_ones(scale: Tensor) -> Tensor:
    return torch.ones_like(scales_in_a_row(scale), dtype=torch.bfloat16)


def _half_inputs(calls: Calls, site: Linear, x: Any) -> Any:
    """The scales come after, in single precision: to round them as the kernel wants them is to lose as much again."""
    weight, ones = _packed(calls, site, itself, "w"), _packed(calls, site, _half_ones, "s")
    value = calls.call(_aten._weight_int8pack_mm.default, _half_rows(calls, site, x), weight, ones)
    value = calls.call(torch.mul, value, _packed(calls, site, scales_in_a_row, "s"))
    return _ended_half(calls, site, value, x)


def _of_groups(weight: Tensor) -> Tensor:
    """A weight of 4 bits as its kernel wants it."""
    stored = _whole(weight).to(torch.int32) + 8
    return _aten._convert_weight_to_int4pack_for_cpu.default(stored, 1)  # type: ignore[no-any-return]


def _scales_of_groups(scale: Tensor) -> Tensor:
    """Scales (out, groups) as (groups, out, 2), each with the value of the integer in the middle, 0."""
    scale = scale.reshape(scale.shape[0], -1)
    return torch.stack((scale, torch.zeros_like(scale)), -1).transpose(0, 1).contiguous().bfloat16()


def _half_groups(calls: Calls, site: Linear, x: Any) -> Any:
    weight, scale = _packed(calls, site, _of_groups, "w"), _packed(calls, site, _scales_of_groups, "s")
    size = site.inputs // site.groups
    value = calls.call(_aten._weight_int4pack_mm_for_cpu.default, _half_rows(calls, site, x), weight, size, scale)
    return _ended_half(calls, site, calls.call(torch.Tensor.float, value), x)
