"""Where a program writes values as integers, and what these stand for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from graphwright.engines import arguments_of
from graphwright.ir import Node
from graphwright.quantization.affine import dequantize, quantize

_OPS = torch.ops.graphwright
_QUANTIZE = (quantize, _OPS.quantize, _OPS.quantize.default)
_DEQUANTIZE = (dequantize, _OPS.dequantize, _OPS.dequantize.default)


@dataclass(frozen=True, slots=True)
class Steps:
    """What integers of one tensor stand for: `(q - zero_point) * scale`."""

    scale: float
    zero_point: int
    dtype: torch.dtype

    @property
    def is_byte(self) -> bool:
        """Whether they are unsigned."""
        return self.dtype is torch.uint8

    def __str__(self) -> str:
        """What kernels take longer for: the dtype, and whether there is a zero point to subtract."""
        return f"{'uint8' if self.is_byte else 'int8'}{'' if self.zero_point else ' from 0'}"


def is_quantize(node: Any) -> bool:
    """Tell whether a node writes a value as integers."""
    return type(node) is Node and node.op == "call_function" and any(node.target is one for one in _QUANTIZE)


def is_dequantize(node: Any) -> bool:
    """Tell whether a node gives what integers stand for."""
    return type(node) is Node and node.op == "call_function" and any(node.target is one for one in _DEQUANTIZE)


def quantized(node: Node) -> tuple[Node, Steps] | None:
    """What a node writes as integers, and which; None where it is no such node, or its numbers are computed."""
    given = arguments_of(node, ("x", "scale", "zero_point", "dtype"))
    dtype = torch.uint8 if given["dtype"] is None else given["dtype"]
    return _of(given, dtype)


def dequantized(node: Node, dtype: Any) -> tuple[Node, Steps] | None:
    """The integers of which a node gives what they stand for, and what that is; dtype: that of the integers."""
    return _of(arguments_of(node, ("x", "scale", "zero_point")), dtype)


def _of(given: dict[str, Any], dtype: Any) -> tuple[Node, Steps] | None:
    scale, zero_point = given["scale"], given["zero_point"]
    if type(given["x"]) is not Node or type(scale) not in (int, float) or type(zero_point) is not int:
        return None
    return (given["x"], Steps(float(scale), zero_point, dtype)) if dtype in (torch.uint8, torch.int8) else None
