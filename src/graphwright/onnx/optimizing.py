"""onnxscript's optimizer, which sees of the weights of a model no more than their shapes: each stays what it is."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Collection, Iterator
from typing import Any

import onnx_ir as ir
import onnxscript.optimizer
from onnx_ir.passes.common import LiftConstantsToInitializersPass
from onnxscript.rewriter.onnx_fusions import fuse


def optimized(model: ir.Model, weights: Collection[str], inline: bool = True) -> ir.Model:
    """A model that does the same with fewer nodes; initializers of these names are there as before.

    Nothing is computed of them ahead of time, and two of equal values stay two: runtimes do both when they load a
    model. Raises what onnxscript's passes raise; the given model is as it was then.
    """
    other = model.clone()
    nearly = {name for name, value in other.graph.initializers.items() if _is_nearly_whole(value.const_value)}
    with (
        _unread([value for name, value in other.graph.initializers.items() if name in weights or name in nearly]),
        _held_constants(other),
    ):
        onnxscript.optimizer.optimize_ir(other, inline=inline)
        fuse(other)
    LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(other)  # those that were held
    return other


@contextlib.contextmanager
def _held_constants(model: ir.Model) -> Iterator[None]:
    """Have no rule read the constants that are nearly a whole number.

    The rules of onnxscript take 1e-10 for 0 and 1.000001 for 1: they would leave out what is added to a logarithm.
    """
    for node in _nodes(model):
        if node.op_type == "Constant" and _is_nearly_whole(ir.convenience.get_const_tensor(node.outputs[0])):
            node.op_type, node.outputs[0].const_value = _HELD, None
    try:
        yield
    finally:
        for node in _nodes(model):
            if node.op_type == _HELD:
                node.op_type = "Constant"


_HELD = "HeldConstant"


def _nodes(model: ir.Model) -> Iterator[ir.Node]:
    holders: list[Any] = [model.graph, *model.functions.values()]
    for graph in holders:
        yield from graph.all_nodes()


def _is_nearly_whole(tensor: ir.TensorProtocol | None) -> bool:
    if tensor is None or tensor.size != 1 or not tensor.dtype.is_floating_point():
        return False
    number = float(tensor.numpy().item())
    if not math.isfinite(number) or number == round(number):
        return False
    return math.isclose(number, round(number), rel_tol=1e-5, abs_tol=1e-8)


@contextlib.contextmanager
def _unread(values: list[ir.Value]) -> Iterator[None]:
    held = [value.const_value for value in values]
    for value in values:
        value.const_value = None
    try:
        yield
    finally:
        for value, tensor in zip(values, held, strict=True):
            value.const_value = tensor
