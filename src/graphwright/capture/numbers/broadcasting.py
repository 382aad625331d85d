"""`torch.broadcast_shapes` of sizes of the program: one node, where Python would ask for each of them."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch

from graphwright.capture.state.symbols import as_number, symbol_of
from graphwright.values import leaves

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import TypedCapture

__all__ = ["broadcast_shapes"]


def broadcast_shapes(recorder: TypedCapture, shapes: tuple[Any, ...]) -> torch.Size | None:
    """The shape that shapes of the program broadcast to; None where all are plain, or hang on data."""
    symbols = [symbol for leaf in leaves(shapes) if (symbol := symbol_of(leaf)) is not None]
    if not symbols or not all(symbol.has_value for symbol in symbols):
        return None
    example = torch.broadcast_shapes(*[torch.Size(map(_plain, shape)) for shape in shapes])
    arguments = tuple([tuple(map(recorder.argument, shape)) for shape in shapes])
    node = recorder.node("call_function", torch.broadcast_shapes, arguments, {})
    sizes = []
    for i, size in enumerate(example):
        item = recorder.node("call_function", operator.getitem, (node, i), {}, "size")
        sizes.append(as_number(recorder.numbers.input_symbol(item, size)))
    return torch.Size(sizes)


def _plain(size: int) -> int:
    symbol = symbol_of(size)
    return size if symbol is None else int(symbol.hint)
