"""Calls of functions that want numbers: `int(x)`, `len(x)`, `math.sqrt(x)`, `table.get(i)`.

Each answers NotImplemented where Python itself is to make the call.
"""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Callable, Hashable
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType, WrapperDescriptorType
from typing import TYPE_CHECKING, Any

import torch

from graphwright.capture.calls.facts import dtype_of, take_dtype
from graphwright.capture.containers.loop_lists import OfRun
from graphwright.capture.containers.open_iterables import OpenRange
from graphwright.capture.containers.tables import of_run
from graphwright.capture.flow.deciding import held, recorder_of, told_by
from graphwright.capture.numbers.broadcasting import broadcast_shapes, widest
from graphwright.capture.outside.overheard import hears, stand
from graphwright.capture.proxies.growing import is_growing
from graphwright.capture.proxies.proxy import Proxy
from graphwright.capture.proxies.run_text import RunText
from graphwright.capture.python.messages import is_known
from graphwright.capture.state.examples import NeedsRealValues
from graphwright.capture.state.running import running, stopping
from graphwright.capture.state.symbols import UNKNOWN, is_symbolic, symbol_of
from graphwright.ir import Argument
from graphwright.source import user_frame
from graphwright.values import leaves

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import Capture


_OF_METHODS = frozenset({abs, pow, round})  # what they give of a tensor is what its class says: one of its own


def number(recorder: Capture, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`int(x)`, `float(x)`, `round(x)`, `math.sqrt(x)`: a number computed from one or more."""
    if any(map(is_growing, args)):  # `math.prod(found)`, which goes over it
        return NotImplemented
    if function in _OF_METHODS and any(isinstance(arg, torch.Tensor) for arg in args):
        return NotImplemented
    args = tuple(map(recorder.value, args))
    own = _OWN.get(function)
    if own is not None and len(args) == 1 and (told := told_by(args[0], own)) is not args[0]:
        return told
    return NotImplemented if is_known(args) else recorder.numbers.computed(function, args, kwargs)


_OWN: dict[Any, str] = {int: "__int__", float: "__float__"}


def number_method(
    recorder: Capture,
    function: MethodDescriptorType | WrapperDescriptorType,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """`int.__mul__(n, 2)`: the operator, if both are what it takes."""
    kind = function.__objclass__
    if kwargs or kind not in (int, float, bool) or is_known(args) or not all(isinstance(arg, kind) for arg in args):
        return NotImplemented
    method = getattr(args[0] if is_symbolic(args[0]) else kind, function.__name__)
    return method(*args[1:]) if is_symbolic(args[0]) else getattr(operator, function.__name__, method)(*args)


def plain_numbers(values: Any) -> Any:
    """Arguments for a function that takes plain numbers only: those of the run are asked for."""
    if is_symbolic(values):
        return values.__class__(values)
    if type(values) in (tuple, list):
        return type(values)([plain_numbers(value) for value in values])
    return {key: plain_numbers(value) for key, value in values.items()} if type(values) is dict else values


def tensor_of_range(
    recorder: Capture, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """`torch.tensor(range(n))`."""
    typed, numbers = recorder.typed, args[0] if len(args) == 1 else None
    if typed is None or not isinstance(numbers, OpenRange) or numbers.example() is None:
        return NotImplemented
    return typed.record(
        "call_function", function, lambda given, **options: function(given.example(), **options), args, kwargs
    )


def tensor_of_class(
    recorder: Capture, function: type[torch.Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """`torch.Tensor(2, n)`, `torch.LongTensor([n])`, `torch.Tensor(x)`: sizes and whatever is in it, items, a view."""
    is_typed = type(function) is _TYPED
    if kwargs or not (function is torch.Tensor or (is_typed and function.__module__ == "torch")):
        return NotImplemented
    given = args[0] if len(args) == 1 else None
    if isinstance(given, torch.Tensor) and recorder.typed is not None:
        if is_typed:
            take_dtype(recorder.typed, given, None, recorder.where() or "")
            if dtype_of(given) != function.dtype:
                return NotImplemented  # an error
        return recorder.torch_function(torch.Tensor.view_as, (given, given), {})
    dtype = {"dtype": function.dtype} if is_typed else {}
    given = of_run(given)
    holds_open = type(given) in (list, tuple) and any(map(_is_open, leaves(given)))
    if holds_open or isinstance(given, OfRun):
        if is_typed:
            return recorder.torch_function(torch.tensor, (given,), dtype)
        empty = recorder.torch_function(torch.empty, (0,), {})  # of the default class
        return recorder.torch_function(torch.Tensor.new_tensor, (empty, given), {})
    sizes = given if type(given) is torch.Size else args
    if not any(map(is_symbolic, sizes)):
        return NotImplemented
    return recorder.torch_function(torch.empty, (tuple(sizes),), dtype)


_TYPED = type(torch.FloatTensor)


def _is_open(leaf: Argument) -> bool:
    return is_symbolic(leaf) or isinstance(leaf, torch.Tensor)


def variable(recorder: Capture, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`Variable(x)`, as programs were written before torch 0.4: `x.detach()`."""
    given, requires_grad = (*args, *[kwargs[name] for name in ("data", "requires_grad") if name in kwargs], False)[:2]
    if not isinstance(given, torch.Tensor) or len(args) + len(kwargs) > 2 or not {*kwargs} <= {"data", "requires_grad"}:
        return NotImplemented
    made = recorder.torch_function(torch.Tensor.detach, (given,), {})
    return recorder.torch_function(torch.Tensor.requires_grad_, (made,), {}) if requires_grad else made


def complex_number(
    recorder: Capture, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """`complex(x)`: a number that only a run knows, of a class whose numbers are no symbols."""
    typed = recorder.typed
    if typed is None or not any(isinstance(arg, torch.Tensor) or is_symbolic(arg) for arg in (*args, *kwargs.values())):
        return NotImplemented
    if not typed.examples.is_real:
        raise stopping(NeedsRealValues("a complex number is made of the data of a tensor"))
    return typed.record("call_function", complex, complex, args, kwargs, gives_data=True)


def length(recorder: Capture, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`len(x)`."""
    if args and (type(args[0]) is RunText or is_growing(args[0])):
        return args[0].length()
    if not is_known(args):
        return recorder.numbers.length(args[0])
    is_own = len(args) == 1 and type(getattr(type(args[0]), "__len__", None)) is FunctionType
    told = told_by(args[0], "__len__") if is_own else args[0]
    return NotImplemented if told is args[0] else told


def truth(recorder: Capture, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`bool(x)`."""
    if args and is_growing(args[0]):
        return held(args[0])
    args = tuple(map(held, args))
    return NotImplemented if is_known(args) else recorder.numbers.truth(args[0])


def _broadcasting(function: Callable[..., torch.Size]) -> Callable[..., torch.Size]:
    """`torch.broadcast_shapes(x.shape, y.shape)`, by whomever it is called: torch's own distributions call it, too."""

    @functools.wraps(function)
    def broadcast(*shapes: Any) -> torch.Size:
        recorder = running()
        capture = None if recorder is None else hears(recorder)
        if capture is None or capture.typed is None or not all(type(shape) in (tuple, torch.Size) for shape in shapes):
            return function(*shapes)
        frame = user_frame(sys._getframe(1))
        is_torchs = frame is not None and frame.f_globals.get("__name__", "").startswith("torch.")
        shape = widest(capture, shapes) if is_torchs else broadcast_shapes(capture, shapes)
        return function(*shapes) if shape is None else shape

    return broadcast


for _module in (torch, torch.functional):
    stand(vars(_module), "broadcast_shapes", torch.broadcast_shapes, _broadcasting(torch.broadcast_shapes))


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


def chosen(values: Any, index: Hashable) -> Any:
    """`[1, 2, 4][i]`, `"abc"[i]`: an item of plain numbers of one kind, or of a text; NotImplemented of others."""
    recorder = recorder_of(index)
    symbol = symbol_of(index)
    if recorder is None or recorder.typed is None or symbol is None or symbol.kind is not int:
        return NotImplemented
    kinds = {type(value) for value in values} if type(values) in (list, tuple) else {type(values)}
    kind = next(iter(kinds), None)
    if len(kinds) != 1 or kind not in (int, float, bool, str) or (kind is str) is not (type(values) is str):
        return NotImplemented
    hint: Any = UNKNOWN
    if symbol.has_value:
        try:
            hint = values[symbol.hint]
        except IndexError as error:
            recorder.typed.attempts.failed(error, [index])
    node = recorder.node("call_function", operator.getitem, (values, recorder.argument(index)), {}, "", "item")
    return RunText(recorder, node, hint) if kind is str else recorder.numbers.of_node(node, hint, kind)
