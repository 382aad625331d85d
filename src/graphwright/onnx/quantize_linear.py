"""`quantize` and `dequantize` of `graphwright.quantization` as QuantizeLinear and DequantizeLinear.

Linear layers between them are Gemm with a bias of int32, on rows: runtimes have a kernel of integers for that alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import onnx_ir as ir
import torch
from onnxscript import opset18

from graphwright.onnx.torch_private import constant, translation_of


def _numpy_dtype(dtype: Any) -> Any:
    if isinstance(dtype, torch.dtype):
        return numpy.uint8 if dtype is torch.uint8 else numpy.int8
    return numpy.uint8 if int(dtype) == int(ir.DataType.UINT8) else numpy.int8


def _write_quantize(x: Any, scale: float, zero_point: int, dtype: Any) -> Any:
    zero = numpy.array(zero_point, _numpy_dtype(dtype))
    return opset18.QuantizeLinear(x, constant(numpy.array(scale, numpy.float32)), constant(zero))


def _write_dequantize(x: Any, scale: float, zero_point: int) -> Any:
    zero = numpy.array(zero_point, _numpy_dtype(x.dtype))
    return opset18.DequantizeLinear(x, constant(numpy.array(scale, numpy.float32)), constant(zero))


def _write_dequantize_per_axis(x: Any, scale: Any, axis: int) -> Any:
    """A scale for each index of an axis; or for groups of the values of each row, as a product."""
    if len(scale.shape) == 1:
        if type(scale.shape[0]) is not int:  # rows that were looked up
            return opset18.DequantizeLinear(x, scale, axis=axis)
        zeros = numpy.zeros(scale.shape[0], _numpy_dtype(x.dtype))
        return opset18.DequantizeLinear(x, scale, constant(zeros), axis=axis)
    groups, size = scale.shape[1], x.shape[-1]
    floats: Any = opset18.Cast(x, to=int(ir.DataType.FLOAT))
    values: Any = opset18.Reshape(floats, constant(numpy.array([-1, groups, size // groups])))
    scales: Any = opset18.Unsqueeze(scale, constant(numpy.array([-1])))
    return opset18.Reshape(opset18.Mul(values, scales), constant(numpy.array([-1, *x.shape[1:]])))


def _write_linear(x: Any, weight: Any, bias: Any = None) -> Any:
    """A linear layer of bytes, whose inputs are on one grid and whose weight has one scale a row; or any other.

    TensorRT, whose integers are signed, wants biases in float, and has kernels for other products, too.
    """
    source, of_weight = _read_behind(x), _read_behind(weight)
    scale = None if of_weight is None else of_weight[1].shape
    if source is None or source[0].dtype != ir.DataType.UINT8 or scale is None or len(scale) != 1:
        return translation_of("aten::linear")(x, weight, bias)
    assert of_weight is not None
    rows = x if len(x.shape) == 2 else opset18.Reshape(x, constant(numpy.array([-1, x.shape[-1]])))
    if bias is not None:
        step: Any = opset18.Mul(of_weight[1], source[1])
        zeros = constant(numpy.zeros(weight.shape[0], numpy.int32))
        steps: Any = opset18.Clip(opset18.Round(opset18.Div(bias, step)), *map(constant, _BOUNDS))
        bias = opset18.DequantizeLinear(opset18.Cast(steps, to=int(ir.DataType.INT32)), step, zeros, axis=0)
    value: Any = opset18.Gemm(rows, weight, bias, transB=1)
    if len(x.shape) == 2:
        return value
    # The sizes of the integers are known without the floats being computed.
    sizes: Any = opset18.Concat(opset18.Shape(source[0], end=-1), constant(numpy.array([weight.shape[0]])), axis=0)
    return opset18.Reshape(value, sizes)


_BOUNDS = numpy.array(-(2.0**31), numpy.float32), numpy.array(2.0**31 - 128, numpy.float32)  # of int32, as floats


def _read_behind(value: Any) -> tuple[Any, Any] | None:
    """The integers and the scale of a value that a DequantizeLinear gives; None for others."""
    node = value.producer()
    return (node.inputs[0], node.inputs[1]) if node is not None and node.op_type == "DequantizeLinear" else None


def translations_of_integers() -> dict[Any, Callable[..., Any]]:
    """How torch.onnx translates the operators of quantization; nothing where no program can have them yet."""
    operators = torch.ops.graphwright
    if not hasattr(operators, "quantize"):
        return {}
    return {
        operators.quantize.default: _write_quantize,
        operators.dequantize.default: _write_dequantize,
        operators.dequantize_per_axis.default: _write_dequantize_per_axis,
        torch.ops.aten.linear.default: _write_linear,
    }
