"""Calls of functions that want numbers: `int(x)`, `len(x)`, `math.sqrt(x)`, `table.get(i)`.

Each answers NotImplemented where Python itself is to make the call.
"""

from __future__ import annotations

from collections.abc import Callable
from types import BuiltinFunctionType
from typing import TYPE_CHECKING, Any

import torch

from graphwright.capture.flow.deciding import held, recorder_of
from graphwright.capture.numbers.broadcasting import broadcast_shapes
from graphwright.capture.proxies.growing import is_growing
from graphwright.capture.proxies.proxy import Proxy
from graphwright.capture.proxies.texts import RunText
from graphwright.capture.python.messages import is_known
from graphwright.capture.state.symbols import UNKNOWN

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import Capture

__all__ = ["divided", "extreme", "length", "looked_up", "number", "shape_of_all", "truth"]


def number(recorder: Capture, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`int(x)`, `float(x)`, `round(x)`, `math.sqrt(x)`: a number computed from one or more."""
    if any(map(is_growing, args)):  # `math.prod(found)`, which goes over it
        return NotImplemented
    args = tuple(map(held, args))
    return NotImplemented if is_known(args) else recorder.numbers.computed(function, args, kwargs)


def divided(recorder: Capture, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`divmod(a, b)`, which the numbers themselves do."""
    return NotImplemented if is_known(args) else divmod(args[0], args[1])


def length(recorder: Capture, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`len(x)`."""
    if args and (type(args[0]) is RunText or is_growing(args[0])):
        return args[0].length()
    return NotImplemented if is_known(args) else recorder.numbers.length(args[0])


def truth(recorder: Capture, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`bool(x)`."""
    if args and is_growing(args[0]):
        return held(args[0])
    args = tuple(map(held, args))
    return NotImplemented if is_known(args) else recorder.numbers.truth(args[0])


def extreme(recorder: Capture, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`max(a, b)` and `min(a, b)` of numbers."""
    if is_known(args):
        return NotImplemented
    if len(args) > 1 and not kwargs:
        return recorder.numbers.computed(function, args, kwargs)
    return function(*args, **kwargs)


def shape_of_all(recorder: Capture, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`torch.broadcast_shapes(x.shape, y.shape)`."""
    if recorder.typed is None or kwargs or not all(type(arg) in (tuple, torch.Size) for arg in args):
        return NotImplemented
    shape = broadcast_shapes(recorder.typed, args)
    return NotImplemented if shape is None else shape


def looked_up(recorder: Capture, function: BuiltinFunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`table.get(key, default)` with a key of the program, whose hash is another one when it runs."""
    if not args:
        return NotImplemented
    table: Any = function.__self__
    key, default = args[0], args[1] if len(args) > 1 else None
    if isinstance(key, Proxy):
        return key.tracer.create_proxy("call_method", "get", (table, key, default), {})
    if recorder_of(key) is None:
        return NotImplemented
    kinds = {type(value) for value in (*table.values(), default)}
    if len(kinds) > 1 or not kinds & {int, float, bool}:
        return NotImplemented
    node = recorder.node("call_method", "get", (table, recorder.argument(key), default), {}, "get")
    return recorder.numbers.of_node(node, UNKNOWN, kinds.pop())
