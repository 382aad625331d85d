"""`torch.broadcast_shapes` of sizes of the program, where Python would ask for each of them.

It is one node. Where torch itself calls it, as its distributions do, which go on to compare what it gives, the sizes
are those of the shapes, under guards of which are equal and which are 1.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from graphwright.capture.state.symbols import as_number, symbol_of
from graphwright.values import leaves

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import TypedCapture

_BROADCAST: Callable[..., torch.Size] = torch.broadcast_shapes  # not what stands for it while programs are captured


def broadcast_shapes(recorder: TypedCapture, shapes: tuple[Any, ...]) -> torch.Size | None:
    """The shape that shapes of the program broadcast to; None where all are plain, or hang on data."""
    if not _are_sizes(shapes):
        return None
    example = _BROADCAST(*[torch.Size(map(_plain, shape)) for shape in shapes])
    arguments = tuple([tuple(map(recorder.argument, shape)) for shape in shapes])
    node = recorder.node("call_function", _BROADCAST, arguments, {})
    sizes = []
    for i, size in enumerate(example):
        item = recorder.node("call_function", operator.getitem, (node, i), {}, "size")
        sizes.append(as_number(recorder.numbers.input_symbol(item, size)))
    return torch.Size(sizes)


def widest(recorder: TypedCapture, shapes: tuple[Any, ...]) -> torch.Size | None:
    """The shape that shapes of the program broadcast to as those of the example do; None where these do not."""
    if not _are_sizes(shapes):
        return None
    try:
        count = len(_BROADCAST(*[torch.Size(map(_plain, shape)) for shape in shapes]))
    except RuntimeError:
        return None
    sizes: list[Any] = [1] * count
    for shape in shapes:
        for i in range(-len(shape), 0):
            sizes[i] = _wider(recorder, sizes[i], shape[i])
    return torch.Size(sizes)


def _are_sizes(shapes: tuple[Any, ...]) -> bool:
    """Tell whether there are numbers of the program among these, all of which the example has."""
    symbols = [symbol for leaf in leaves(shapes) if (symbol := symbol_of(leaf)) is not None]
    return bool(symbols) and all(symbol.has_value for symbol in symbols)


def _wider(recorder: TypedCapture, one: Any, other: Any) -> Any:
    """That of two sizes which the other broadcasts to."""
    if _plain(one) == _plain(other):
        wide, is_so = one, one == other
    else:
        narrow, wide = (one, other) if _plain(one) == 1 else (other, one)
        is_so = narrow == 1
    symbol = symbol_of(is_so)
    if symbol is not None:
        recorder.questions.guards.guard(symbol)
    return wide


def _plain(size: int) -> int:
    symbol = symbol_of(size)
    return size if symbol is None else int(symbol.hint)
