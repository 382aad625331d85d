"""`quantize` and `dequantize` of `graphwright.quantization` as QuantizeLinear and DequantizeLinear."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import onnx_ir as ir
import torch
from onnxscript import opset18

from graphwright.onnx.torch_private import record

__all__ = ["translations_of_integers"]


def _constant(value: Any) -> Any:
    """A value that is written into the model."""
    return record(ir.Node("", "Constant", [], [ir.AttrTensor("value", ir.tensor(value))])).outputs[0]


def _numpy_dtype(dtype: Any) -> Any:
    if isinstance(dtype, torch.dtype):
        return numpy.uint8 if dtype is torch.uint8 else numpy.int8
    return numpy.uint8 if int(dtype) == int(ir.DataType.UINT8) else numpy.int8


def _write_quantize(x: Any, scale: float, zero_point: int, dtype: Any) -> Any:
    zero = numpy.array(zero_point, _numpy_dtype(dtype))
    return opset18.QuantizeLinear(x, _constant(numpy.array(scale, numpy.float32)), _constant(zero))


def _write_dequantize(x: Any, scale: float, zero_point: int) -> Any:
    zero = numpy.array(zero_point, _numpy_dtype(x.dtype))
    return opset18.DequantizeLinear(x, _constant(numpy.array(scale, numpy.float32)), _constant(zero))


def _write_dequantize_per_axis(x: Any, scale: Any, axis: int) -> Any:
    """A scale for each index of an axis; or for groups of the values of each row, as a product."""
    if len(scale.shape) == 1:
        if type(scale.shape[0]) is not int:  # rows that were looked up
            return opset18.DequantizeLinear(x, scale, axis=axis)
        zeros = numpy.zeros(scale.shape[0], _numpy_dtype(x.dtype))
        return opset18.DequantizeLinear(x, scale, _constant(zeros), axis=axis)
    groups, size = scale.shape[1], x.shape[-1]
    floats: Any = opset18.Cast(x, to=int(ir.DataType.FLOAT))
    values: Any = opset18.Reshape(floats, _constant(numpy.array([-1, groups, size // groups])))
    scales: Any = opset18.Unsqueeze(scale, _constant(numpy.array([-1])))
    return opset18.Reshape(opset18.Mul(values, scales), _constant(numpy.array([-1, *x.shape[1:]])))


def translations_of_integers() -> dict[Any, Callable[..., Any]]:
    """How torch.onnx translates the operators of quantization; nothing where no program can have them yet."""
    operators = torch.ops.graphwright
    if not hasattr(operators, "quantize"):
        return {}
    return {
        operators.quantize.default: _write_quantize,
        operators.dequantize.default: _write_dequantize,
        operators.dequantize_per_axis.default: _write_dequantize_per_axis,
    }
