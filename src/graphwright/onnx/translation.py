"""`If` and `Loop` of ONNX for the operators that stand for branches and loops, `//` as Python has it, and experts.

Some operators of ATen are written as runtimes fuse them, and attention as torch computes it.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy
import onnx_ir as ir
import torch
from onnxscript import opset18

from graphwright.onnx.module_functions import DOMAIN
from graphwright.onnx.quantize_linear import translations_of_integers
from graphwright.onnx.torch_private import (
    call_operator,
    constant,
    if_operator,
    loop_operator,
    record,
    recurrent_operator,
    translation_of,
)


def _write_if(
    pred: ir.Value, true: ir.Function, false: ir.Function, operands: Sequence[Any], sizes: Any
) -> Sequence[ir.Value]:
    branches = []
    for body in (true, false):
        nodes: list[ir.Node] = []
        inputs = [_as_value(value, nodes) for value in operands]
        call = ir.Node(body.domain, body.name, inputs, num_outputs=len(body.outputs))
        _name(call, body)
        branches.append(ir.Graph((), call.outputs, nodes=[*nodes, call], name=body.name))
    attributes = [
        ir.AttrGraph(name, graph) for name, graph in zip(("then_branch", "else_branch"), branches, strict=True)
    ]
    node = record(ir.Node("", "If", [pred], attributes, num_outputs=len(true.outputs)))
    return node.outputs  # type: ignore[no-any-return]


def _write_loop(
    body: ir.Function, trips: Any, going: ir.Value, state: Sequence[ir.Value], operands: Sequence[Any], ends: bool
) -> Sequence[ir.Value]:
    outside: list[ir.Node] = []
    limit = None if trips is None else _as_value(trips, outside)
    for each in outside:
        record(each)
    given = list(body.inputs)[: 1 + len(state)]
    number, *carried = [
        ir.Value(name=f"{value.name}_{body.name}", shape=value.shape, type=value.type) for value in given
    ]
    number.shape, number.type = ir.Shape(()), ir.TensorType(ir.DataType.INT64)
    still = ir.Value(name=f"going_{body.name}", shape=ir.Shape(()), type=ir.TensorType(ir.DataType.BOOL))
    nodes: list[ir.Node] = []
    inputs = [number, *carried, *[_as_value(value, nodes) for value in operands]]
    call = ir.Node(body.domain, body.name, inputs, num_outputs=len(body.outputs))
    _name(call, body)
    graph = ir.Graph((number, still, *carried), call.outputs, nodes=[*nodes, call], name=body.name)
    attributes = [ir.AttrGraph("body", graph)]
    node = record(ir.Node("", "Loop", [limit, going, *state], attributes, num_outputs=len(body.outputs) - 1))
    return node.outputs  # type: ignore[no-any-return]


def _write_recurrent(name: str, input: Any, state: Sequence[Any], weights: Sequence[Any], *options: Any) -> Any:
    return translation_of(f"aten::{name}.input")(input, state if len(state) > 1 else state[0], weights, *options)


def _write_call(name: str, body: ir.Function, operands: Sequence[Any]) -> Sequence[ir.Value]:
    body.domain = DOMAIN
    body.name = f"{name}__{body.name}" if not body.name.startswith(name) else body.name
    nodes: list[ir.Node] = []
    inputs = [_as_value(value, nodes) for value in operands]
    for each in nodes:
        record(each)
    return record(ir.Node(DOMAIN, body.name, inputs, num_outputs=len(body.outputs))).outputs  # type: ignore[no-any-return]


def _name(call: ir.Node, body: ir.Function) -> None:
    """Name what a body gives: ONNX Runtime refuses two values of one name, in whatever graphs they are."""
    for inner, value in zip(body.outputs, call.outputs, strict=True):
        value.name, value.shape, value.type = f"{inner.name}_of_{body.name}", inner.shape, inner.type


def _as_value(value: Any, nodes: list[ir.Node]) -> ir.Value:
    """A value as one of ONNX, by a constant where it is a number."""
    if not isinstance(value, bool | int | float):
        return value  # type: ignore[no-any-return]
    dtype = numpy.bool_ if isinstance(value, bool) else numpy.int64 if isinstance(value, int) else numpy.float64
    node = ir.Node("", "Constant", [], [ir.AttrTensor("value", ir.tensor(numpy.array(value, dtype)))])
    nodes.append(node)
    return node.outputs[0]


def _write_floor_division(self: Any, other: Any) -> Any:
    """`//` of sizes: ONNX divides towards 0, and sizes rounded up are `-(-size // 3)`."""
    return opset18.Div(opset18.Sub(self, opset18.Mod(self, other)), other)


# ---- operators of ATen: in the spelling that runtimes fuse or have a kernel for, and with torch's results


def _write_gelu(x: Any, approximate: str = "none") -> Any:
    """`x * (1 + erf(x / sqrt(2))) * 0.5`, in this order: ONNX Runtime makes one operator of it, and not of others."""
    if approximate != "none" or x.dtype != ir.DataType.FLOAT:
        return translation_of("aten::gelu")(x, approximate)
    root, one, half = (constant(numpy.array(each, numpy.float32)) for each in (math.sqrt(2), 1.0, 0.5))
    erf: Any = opset18.Erf(opset18.Div(x, root))
    return opset18.Mul(opset18.Mul(x, opset18.Add(erf, one)), half)


def _write_mean(x: Any, dim: Any, keepdim: bool = False, dtype: Any = None) -> Any:
    """The mean of each channel of images as GlobalAveragePool, which there is for bytes and for blocks of channels."""
    is_plain = x.dtype == ir.DataType.FLOAT and dtype is None and len(x.shape) == 4
    if not is_plain or not isinstance(dim, list | tuple) or sorted(each % 4 for each in dim) != [2, 3]:
        return translation_of("aten::mean.dim")(x, dim, keepdim, -1 if dtype is None else dtype)
    means: Any = opset18.GlobalAveragePool(x)
    return means if keepdim else opset18.Squeeze(means, constant(numpy.array([2, 3])))


def _write_attention(query: Any, key: Any, value: Any, attn_mask: Any = None, *options: Any, **named: Any) -> Any:
    """Attention, of which a query that sees no key gets zeros: a softmax gives NaN then, or the mean of all values."""
    attended = translation_of("aten::scaled_dot_product_attention")(query, key, value, attn_mask, *options, **named)
    if attn_mask is None:
        return attended
    seen: Any = attn_mask
    if attn_mask.dtype != ir.DataType.BOOL:
        infinite: Any = opset18.CastLike(constant(numpy.array(-math.inf, numpy.float32)), attn_mask)
        seen = opset18.Greater(attn_mask, infinite)
    seen = opset18.Cast(seen, to=ir.DataType.FLOAT)
    seen = opset18.ReduceMax(seen, constant(numpy.array([-1])))
    seen = opset18.Cast(seen, to=ir.DataType.BOOL)
    zero: Any = opset18.CastLike(constant(numpy.array(0.0, numpy.float32)), attended)
    return opset18.Where(seen, attended, zero)


def _write_roll(x: Any, shifts: Any, dims: Sequence[int] = ()) -> Any:
    """What is shifted by numbers that are found out when the model runs, too, as windows of attention are."""
    shifts = shifts if isinstance(shifts, list | tuple) else [shifts]
    if not dims or all(isinstance(each, int) for each in shifts):
        return translation_of("aten::roll")(x, shifts, dims)
    one, first, last = (constant(numpy.array([each])) for each in (1, 0, numpy.iinfo(numpy.int64).max))
    for shift, dim in zip(shifts, dims, strict=True):
        axis = constant(numpy.array([dim]))
        given = constant(numpy.array([shift])) if isinstance(shift, int) else opset18.Reshape(shift, one)
        size = opset18.Gather(opset18.Shape(x), axis)
        start = opset18.Mod(opset18.Neg(given), opset18.Max(size, one))
        x = opset18.Concat(opset18.Slice(x, start, last, axis), opset18.Slice(x, first, start, axis), axis=dim)
    return x


def _write_grouped_product(rows: Any, weights: Any, ends: Any) -> Any:
    """Rows that are sorted by their expert, times the weight of that: `ends` says where the rows of each end."""
    count, _, columns = weights.shape
    whole: Any = opset18.Cast(ends, to=int(ir.DataType.INT64))
    stops = opset18.Split(whole, num_outputs=count) if count > 1 else [whole]
    first = constant(numpy.array([0]))
    products: list[Any] = []
    for number, (start, stop) in enumerate(zip([first, *stops[:-1]], stops, strict=True)):
        weight = opset18.Gather(weights, constant(numpy.array(number)))
        products.append(opset18.MatMul(opset18.Slice(rows, start, stop, first), weight))
    left = opset18.Max(opset18.Sub(opset18.Shape(rows, end=1), stops[-1]), first)  # rows of no expert
    shape = opset18.Concat(left, constant(numpy.array([columns])), axis=0)
    zero: Any = opset18.CastLike(constant(numpy.array(0.0, numpy.float32)), rows)
    return opset18.Concat(*products, opset18.Expand(zero, shape), axis=0)


def _of_libraries() -> dict[Any, Callable[..., Any]]:
    """Operators of other libraries that are loaded: the experts of Hugging Face's models."""
    grouped = getattr(torch.ops.transformers, "grouped_mm_fallback", None)
    return {} if grouped is None else {grouped.default: _write_grouped_product}


def translations(bodies: dict[Any, ir.Function]) -> dict[Any, Callable[..., Any]]:
    """How torch.onnx translates our operators; the functions that it made of their bodies are put into `bodies`."""

    def noting(write: Callable[..., Any]) -> Callable[..., Any]:
        def written(*args: Any) -> Any:
            result = write(*args)
            bodies.update({arg.identifier(): arg for arg in args if isinstance(arg, ir.Function)})
            return result

        return written

    written = {each: noting(write) for each, write in _WRITERS.items()}
    return {
        **written,
        torch.ops.aten.gelu.default: _write_gelu,
        torch.ops.aten.mean.dim: _write_mean,
        torch.ops.aten.roll.default: _write_roll,
        torch.ops.aten.scaled_dot_product_attention.default: _write_attention,
        **translations_of_integers(),
        **_of_libraries(),
        operator.floordiv: _write_floor_division,
    }


_WRITERS: dict[Any, Callable[..., Any]] = {
    if_operator: _write_if,
    loop_operator: _write_loop,
    recurrent_operator: _write_recurrent,
    call_operator: _write_call,
}
