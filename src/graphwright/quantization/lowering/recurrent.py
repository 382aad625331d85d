"""The kernels of quantized recurrent layers and cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from graphwright.engines import Calls, Kernel, as_vectors, itself
from graphwright.quantization.layer_functions import dequantized_weight, range_of_call, rounded_in_call
from graphwright.quantization.lowering.computing import has_exact_onednn, reason_against, values_like
from graphwright.quantization.lowering.linears import (
    bytes_of_call,
    moved_and_scaled,
    no_zero_points,
    scales_in_a_row,
    sums_of_rows,
    turned,
)
from graphwright.quantization.recurrent_functions import (
    Product,
    Run,
    State,
    directions,
    fused,
    in_steps,
    of_cell,
    stacked,
)

_onednn = torch.ops.onednn


@dataclass(frozen=True, slots=True)
class Recurrent:
    """Recurrent layers in a row, or a cell, of quantized weights.

    function: what the program calls. kind: "lstm" or "gru". tensors: the path of each by its name. shape, states: of
    what it reads. activation: "float" for inputs as they are; "tensor" and "token" become integers in each step.
    """

    function: Any
    kind: str
    is_cell: bool
    tensors: tuple[tuple[str, str], ...]
    shape: tuple[int, ...]
    states: tuple[tuple[int, ...], ...]
    rows: int  # of its weights
    num_layers: int
    bidirectional: bool
    batch_first: bool
    activation: str

    @property
    def key(self) -> str:
        """What the time of the layers depends on."""
        what = f"int8 {self.kind}{' cell' if self.is_cell else f', {self.num_layers} layers'}"
        both = ", both directions" if self.bidirectional else ""
        first = ", batch first" if self.batch_first else ""
        names = ", ".join(dict.fromkeys(name.split("_l0")[0] for name, _ in self.tensors if "scale" not in name))
        source = "float" if self.activation == "float" else f"per {self.activation}"
        return f"{what}{both}{first} {list(self.shape)} -> {self.rows}, {len(self.states)} states, {names}, {source}"

    @property
    def weights(self) -> tuple[str, ...]:
        """The paths of the weights."""
        return tuple([path for name, path in self.tensors if name.startswith("weight") and not name.endswith("_scale")])

    @property
    def keeps_layout(self) -> bool:
        """Rows stay rows."""
        return True

    def kernels(self, is_exact: bool = False) -> dict[str, Kernel]:
        """As the program has it, with weights in floats, and with integers."""
        kernels: dict[str, Kernel] = {"torch": _reference, "float weight": _float_weights}
        if self.activation != "float":
            kernels["integers"] = _integers
            if has_exact_onednn():
                kernels["oneDNN int8"] = _onednn_int8
        return kernels

    def example(self) -> list[Tensor]:
        """A random input, and states, where they are given."""
        return [values_like(self.shape, None), *[torch.rand(shape).mul_(2).sub_(1) for shape in self.states]]

    def reason_against(self, given: Any, expected: Any, tolerance: float) -> str:
        """Say why a result is none."""
        pairs = zip(_tensors_of(given), _tensors_of(expected), strict=True)
        return next(filter(None, (reason_against(*pair) for pair in pairs)), "")


def _tensors_of(value: Any) -> list[Tensor]:
    return [value] if isinstance(value, Tensor) else [tensor for each in value for tensor in _tensors_of(each)]


def _hx(states: tuple[Any, ...]) -> Any:
    return None if not states else states[0] if len(states) == 1 else states


def _reference(calls: Calls, site: Recurrent, x: Any, *states: Any) -> Any:
    tensors = {name: calls.packed(itself, (path,)) for name, path in site.tensors}
    given = {"activation": site.activation}
    if not site.is_cell:
        given |= {name: getattr(site, name) for name in ("num_layers", "bidirectional", "batch_first")}
    return calls.call(site.function, x, _hx(states), **given, **tensors)


# ---- with what was made of the weights once


def _with(calls: Calls, site: Recurrent, make: Any, function: Any, x: Any, states: tuple[Any, ...]) -> Any:
    """Call a function of layers with what is made of each weight, and the biases, in the order of nn.LSTM."""
    paths = dict(site.tensors)
    layers = []
    for suffix in ("",) if site.is_cell else directions(site.num_layers, site.bidirectional):
        end = f"_{suffix}" if suffix else ""
        names = [f"weight_{name}{end}" for name in ("ih", "hh", "hr")]
        weights = [calls.packed(make, (paths[name], paths[f"{name}_scale"])) for name in names if name in paths]
        biases = [f"bias_{name}{end}" for name in ("ih", "hh")]
        layers.append([weights, [calls.packed(itself, (paths[name],)) for name in biases if name in paths]])
    settings = (site.num_layers, site.bidirectional, site.batch_first)
    return calls.call(function, x, _hx(states), site.kind, site.is_cell, settings, site.activation, layers)


_Layers = Sequence[Sequence[Sequence[Any]]]  # of each layer in each direction: its weights, and its biases


def _run_all(input: Tensor, hx: Any, is_cell: bool, settings: tuple[int, bool, bool], run: Run) -> Any:
    if is_cell:
        return of_cell(input, hx, lambda x, start: stacked(x, start, 1, False, False, run))
    return stacked(input, hx, *settings, run)


def _float_weights(calls: Calls, site: Recurrent, x: Any, *states: Any) -> Any:
    return _with(calls, site, dequantized_weight, recurrent_of_floats, x, states)


def recurrent_of_floats(
    input: Tensor, hx: Any, kind: str, is_cell: bool, settings: tuple[int, bool, bool], activation: str, layers: _Layers
) -> Any:
    """Compute layers whose weights are floats."""
    by_suffix = dict(zip(directions(*settings[:2]), layers, strict=True))

    def product(weight: Tensor, bias: Tensor | None) -> Product:
        return lambda x: F.linear(rounded_in_call(x, activation), weight, bias)

    def run(suffix: str, x: Tensor, start: State | None) -> tuple[Tensor, State]:
        weights, biases = by_suffix[suffix]
        if activation == "float":
            return fused(kind, x, start, [*weights[:2], *biases, *weights[2:]], suffix)
        return _steps(kind, x, start, [weight.shape[0] for weight in weights], weights, biases, suffix, product)

    return _run_all(input, hx, is_cell, settings, run)


def _steps(
    kind: str,
    x: Tensor,
    start: State | None,
    rows: Sequence[int],
    weights: Sequence[Any],
    biases: Sequence[Any],
    suffix: str,
    product: Any,
) -> tuple[Tensor, State]:
    """One layer in one direction, by products; rows: of its weights."""
    if start is None:
        sizes = [rows[-1] if len(rows) > 2 else rows[1] // 4, rows[1] // 4] if kind == "lstm" else [rows[1] // 3]
        start = tuple([x.new_zeros(x.shape[1], size) for size in sizes])
    of_inputs, of_states = biases or (None, None)
    project = product(weights[2], None) if len(weights) > 2 else None
    return in_steps(kind, product(weights[0], of_inputs)(x), start, product(weights[1], of_states), project, suffix)


# ---- in integers


def _for_int_mm(weight: Tensor, scale: Tensor) -> tuple[int, Tensor, Tensor, Tensor]:
    return weight.shape[0], turned(weight), scales_in_a_row(scale), sums_of_rows(weight, scale)


def _integers(calls: Calls, site: Recurrent, x: Any, *states: Any) -> Any:
    return _with(calls, site, _for_int_mm, recurrent_of_integers, x, states)


def recurrent_of_integers(
    input: Tensor, hx: Any, kind: str, is_cell: bool, settings: tuple[int, bool, bool], activation: str, layers: _Layers
) -> Any:
    """Compute layers by exact products of integers."""

    def product(packed: Any, bias: Tensor | None) -> Product:
        _, weight, factor, sums = packed

        def multiplied(x: Tensor) -> Tensor:
            rows = x.reshape(-1, x.shape[-1])
            scale, zero_point = range_of_call(rows, activation)
            value = torch._int_mm(bytes_of_call(rows, scale, zero_point), weight)
            return as_vectors(moved_and_scaled(value, scale, zero_point, factor, sums, bias), x)

        return multiplied

    return _by_products(input, hx, kind, is_cell, settings, layers, product)


def _by_products(
    input: Tensor, hx: Any, kind: str, is_cell: bool, settings: tuple[int, bool, bool], layers: _Layers, product: Any
) -> Any:
    by_suffix = dict(zip(directions(*settings[:2]), layers, strict=True))

    def run(suffix: str, x: Tensor, start: State | None) -> tuple[Tensor, State]:
        weights, biases = by_suffix[suffix]
        return _steps(kind, x, start, [packed[0] for packed in weights], weights, biases, suffix, product)

    return _run_all(input, hx, is_cell, settings, run)


def _for_onednn(weight: Tensor, scale: Tensor) -> tuple[int, Tensor, Tensor, Tensor, Tensor]:
    packed = _onednn.qlinear_prepack(weight, None)
    return weight.shape[0], packed, scales_in_a_row(scale), no_zero_points(scale), sums_of_rows(weight, scale)


def _onednn_int8(calls: Calls, site: Recurrent, x: Any, *states: Any) -> Any:
    return _with(calls, site, _for_onednn, recurrent_of_onednn, x, states)


def recurrent_of_onednn(
    input: Tensor, hx: Any, kind: str, is_cell: bool, settings: tuple[int, bool, bool], activation: str, layers: _Layers
) -> Any:
    """Compute layers by the kernel of oneDNN."""

    def product(packed: Any, bias: Tensor | None) -> Product:
        _, weight, scales, zeros, sums = packed

        def multiplied(x: Tensor) -> Tensor:
            rows = x.reshape(-1, x.shape[-1])
            scale, zero_point = range_of_call(rows, activation)
            value = _onednn.qlinear_pointwise.default(
                bytes_of_call(rows, scale, zero_point), 1.0, 0, weight, scales, zeros, None, 1.0, 0, torch.float32,
                "none", [], "",
            )  # fmt: skip
            return as_vectors(moved_and_scaled(value, scale, zero_point, None, sums, bias), x)

        return multiplied

    return _by_products(input, hx, kind, is_cell, settings, layers, product)
