"""Operators of ATen in the spelling that runtimes know: what they fuse, and what they have a kernel for."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy
import onnx_ir as ir
import torch
from onnxscript import opset18

from graphwright.onnx.torch_private import constant, translation_of


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


def translations_for_runtimes() -> dict[Any, Callable[..., Any]]:
    """How torch.onnx translates these operators."""
    return {torch.ops.aten.gelu.default: _write_gelu, torch.ops.aten.mean.dim: _write_mean}
