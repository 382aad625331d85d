"""Operators of ATen in the spelling that runtimes know, what they fuse or have a kernel for, and attention."""

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


def translations_for_runtimes() -> dict[Any, Callable[..., Any]]:
    """How torch.onnx translates these operators."""
    return {
        torch.ops.aten.gelu.default: _write_gelu,
        torch.ops.aten.mean.dim: _write_mean,
        torch.ops.aten.scaled_dot_product_attention.default: _write_attention,
    }
