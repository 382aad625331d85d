"""What each backend computes with integers: tables, not code."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType

import torch

_CONVS = ("conv1d", "conv2d", "conv3d")
_RECURRENT = ("lstm", "gru", "lstm_cell", "gru_cell")
_TRANSPOSED = ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")


@dataclasses.dataclass(frozen=True, slots=True)
class Backend:
    """What a backend computes with integers.

    static, dynamic, weights: the kinds of sites whose inputs have ranges of calibration, ranges of each call, or stay
    in float. activation: the dtype of activations. is_symmetric: all zero points are 0. adds_float: a sum takes the
    output of a convolution before that is rounded. writes_results: convolutions have kernels of integers only where
    these give integers, and so have sums, products and means.
    """

    name: str
    static: frozenset[str]
    dynamic: frozenset[str]
    weights: frozenset[str]
    activation: torch.dtype = torch.uint8
    is_symmetric: bool = False
    adds_float: bool = False
    writes_results: bool = False


x86 = Backend(
    "x86",
    frozenset({*_CONVS, *_TRANSPOSED, "linear", "add", "cat"}),
    frozenset({"linear", *_RECURRENT}),
    frozenset({*_CONVS, *_TRANSPOSED, *_RECURRENT, "linear", "embedding"}),
    adds_float=True,
)
onnxruntime = Backend(
    "onnxruntime",
    frozenset({*_CONVS, *_TRANSPOSED, "linear", "add", "cat"}),
    frozenset({"linear", *_RECURRENT}),
    frozenset({*_CONVS, *_TRANSPOSED, *_RECURRENT, "linear", "embedding"}),
    writes_results=True,
)
openvino = dataclasses.replace(onnxruntime, name="openvino", writes_results=False)
tensorrt = Backend(
    "tensorrt",
    frozenset({*_CONVS, *_TRANSPOSED, "linear", "add", "cat"}),
    frozenset(),
    frozenset({*_CONVS, *_TRANSPOSED, *_RECURRENT, "linear", "embedding"}),
    activation=torch.int8,
    is_symmetric=True,
)

BACKENDS: Mapping[str, Backend] = MappingProxyType({each.name: each for each in (x86, onnxruntime, openvino, tensorrt)})
