"""onnxscript's optimizer, which sees of the weights of a model no more than their shapes: each stays what it is."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator

import onnx_ir as ir
import onnxscript.optimizer
from onnxscript.rewriter.onnx_fusions import fuse

__all__ = ["optimized"]


def optimized(model: ir.Model, weights: Collection[str], inline: bool = True) -> ir.Model:
    """A model that does the same with fewer nodes; initializers of these names are there as before.

    Nothing is computed of them ahead of time, and two of equal values stay two: runtimes do both when they load a
    model. Raises what onnxscript's passes raise; the given model is as it was then.
    """
    other = model.clone()
    with _unread([value for name, value in other.graph.initializers.items() if name in weights]):
        onnxscript.optimizer.optimize_ir(other, inline=inline)
        fuse(other)
    return other


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
