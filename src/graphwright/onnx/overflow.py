"""Sessions of ONNX Runtime whose sums of integers do not overflow, on processors without VNNI, too.

There its products of unsigned and signed bytes are added in pairs of 16 bits, which saturate; those of unsigned bytes
alone are not. Its own option for that, `session.x64quantprecision`, fails with more than one layer (1.32).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import onnx_ir as ir
import onnxruntime  # type: ignore[import-untyped]

from graphwright.runtime import sums_bytes_exactly

ROUNDS_NO_ACTIVATIONS = ("session.qdq_matmulnbits_accuracy_level", "1")  # else it does, where weights are integers
_PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")


def open_session(path: Path, options: Any) -> Any:
    """Open a model in a file, which is edited: its weights become uint8 where those of int8 would overflow."""
    if not sums_bytes_exactly():
        _make_weights_unsigned(path)
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _make_weights_unsigned(path: Path) -> None:
    model = ir.load(path)
    graph, made = model.graph, dict[str | None, ir.Value]()
    for node in list(graph):
        weight, scale = node.inputs[:2] if node.op_type == "DequantizeLinear" else (None, None)
        if weight is None or scale is None or weight.const_value is None or not weight.is_initializer():
            continue
        users = [user for value in node.outputs for user, _ in value.uses()]
        if weight.const_value.dtype != ir.DataType.INT8 or any(user.op_type not in _PRODUCTS for user in users):
            continue
        if weight.name not in made:
            integers = (weight.const_value.numpy().astype(numpy.int16) + 128).astype(numpy.uint8)
            made[weight.name] = _initializer(graph, f"{weight.name} from 128", integers)
        zeros = numpy.full([] if scale.shape is None else scale.shape.numpy(), 128, numpy.uint8)
        node.replace_input_with(0, made[weight.name])
        node.replace_input_with(2, _initializer(graph, f"zeros of {node.outputs[0].name}", zeros))
    if made:
        ir.save(model, path)


def _initializer(graph: Any, name: str, array: Any) -> ir.Value:
    tensor = ir.tensor(array, name=name)
    value = ir.Value(name=name, shape=ir.Shape(array.shape), type=ir.TensorType(tensor.dtype), const_value=tensor)
    graph.register_initializer(value)
    return value
