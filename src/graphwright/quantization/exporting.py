"""`to_onnx`: a quantized program as an ONNX model with QuantizeLinear and DequantizeLinear."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from graphwright.quantization.dialects import example_of, in_dialect
from graphwright.quantization.record import record_in
from graphwright.runtime import GraphModule


def to_onnx(
    gm: GraphModule,
    path: str | os.PathLike[str],
    dialect: str = "ort",
    *,
    args: tuple[Any, ...] | Tensor | None = None,
    kwargs: Mapping[str, Any] | None = None,
    **options: Any,
) -> Any:
    """Write a quantized module, lowered or not, as an ONNX model; gives what `graphwright.onnx.export` does.

    dialect: "ort" for ONNX Runtime, "openvino", or "tensorrt", whose grids have zero points 0: see `in_dialect`. They
    come of the ranges that were seen in calibration, which is not done again. args, kwargs: a call, by default one of
    the sizes that the module was captured with. options: of `graphwright.onnx.export`, such as `input_names`,
    `dynamic_shapes` and `verify`.

    Raises QuantizationError for a module that is not quantized, and as `graphwright.onnx.export` does.
    """
    record_in(gm)
    if args is None and kwargs is None:
        args, kwargs = example_of(gm)
    given = () if args is None else args if isinstance(args, tuple) else (args,)
    onnx = importlib.import_module("graphwright.onnx")
    program = onnx.export(in_dialect(gm, dialect), given, dict(kwargs or {}), **options)
    program.save(path)
    return program
