"""`If` and `Loop` of ONNX for the operators that stand for branches and loops, and `//` as Python has it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy
import onnx_ir as ir
import torch
from onnxscript import opset18

from graphwright.onnx.fused_by_runtimes import translations_for_runtimes
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
        **translations_for_runtimes(),
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
