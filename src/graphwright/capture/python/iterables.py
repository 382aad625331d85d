"""Calls of functions that go over values: `list(x)`, `any(x)`, `sum(x)`, `zip(x, y)`, `map(f, x)`, `sorted(x)`.

Each answers NotImplemented where Python itself is to make the call. Those that call functions of the program in turn
get `call` first, which does so.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Reversible
from types import GeneratorType, MethodType
from typing import TYPE_CHECKING, Any

import torch

from graphwright.capture.containers.kept_containers import KeptDict, KeptSequence
from graphwright.capture.containers.loop_dicts import LoopDict
from graphwright.capture.containers.loop_holders import Holder
from graphwright.capture.containers.loop_lists import LoopList, LoopQueue, LoopTuple, OfRun
from graphwright.capture.containers.loop_sets import LoopSet
from graphwright.capture.containers.open_iterables import (
    OpenEnumerate,
    OpenRange,
    OpenReversed,
    OpenZip,
    Rows,
    iterable_of,
)
from graphwright.capture.containers.orderings import ordering
from graphwright.capture.containers.rows import numbers, of_unknown, rows
from graphwright.capture.containers.tables import index_of
from graphwright.capture.flow.deciding import both, either, recorder_of
from graphwright.capture.proxies.proxy import Proxy
from graphwright.capture.python.comprehensions import listed
from graphwright.capture.python.membership import holds_symbolic
from graphwright.capture.state.protocol import with_examples
from graphwright.capture.state.symbols import UNKNOWN
from graphwright.capture.state.tensor_proxy import TensorProxy

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import Capture

Caller = Callable[..., Any]


def table_listed(
    call: Caller, recorder: Capture, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """`sorted(table)` and any other that goes over a dict or set of the run: it goes over the list of its keys.

    What goes over a list in an attribute goes over it as one of the run.
    """
    if args and isinstance(args[0], KeptSequence):
        return call(function, args[0].as_of_run(), *args[1:], **kwargs)
    if not args or type(args[0]) not in (LoopDict, LoopSet, KeptDict):
        return NotImplemented
    table = args[0].as_of_run() if type(args[0]) is KeptDict else args[0]
    return call(function, table.listed(), *args[1:], **_key_of_table(args[0], table, kwargs))


def _key_of_table(asked: Any, table: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """The keywords of `max(table, key=table.get)`: what is asked about is there."""
    key, kind = kwargs.get("key"), type(asked)
    if type(key) is MethodType and key.__self__ is asked and key.__func__ is kind.get:
        return {**kwargs, "key": functools.partial(type(table).__getitem__, table)}
    return kwargs


def copied(recorder: Capture, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`copy.copy(values)` of a container of the run."""
    return args[0].copy() if len(args) == 1 and isinstance(args[0], Holder) else NotImplemented


def made_list(recorder: Capture, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`list(values)` and `tuple(values)`."""
    if len(args) != 1:
        return NotImplemented
    values: Any = args[0]
    if type(values) is TensorProxy or isinstance(values, Proxy):
        values = rows(recorder, values)
    if isinstance(values, OpenReversed) and (turned := values.listed(recorder)) is not None:
        values = turned
    if isinstance(values, OpenRange) and recorder.examples.are_there and function is list:
        values = numbers(with_examples(recorder), values)
    if not isinstance(values, OfRun):
        return NotImplemented
    return values if values is not args[0] and function is list else values.listed(function)


# ---- any, all, sum


def found(recorder: Capture, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`any(values)` and `all(values)` of a list whose length only a run knows, or of a tensor."""
    if len(args) != 1 or not (type(args[0]) in _LONG or isinstance(args[0], Proxy)):
        return NotImplemented
    node = recorder.node("call_function", function, (recorder.argument(args[0]),), {}, function.__name__)
    hint = function(recorder.to_examples(args[0])) if recorder.examples.is_real else UNKNOWN
    return recorder.numbers.of_node(node, hint, bool)


def every(recorder: Capture, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`all(values)` and `any(values)` of a list with values of the run in it."""
    if not args or not holds_symbolic(args[0]):
        return NotImplemented
    decide = both if function is all else either
    result: Any = function is all
    for value in reversed(args[0]):
        result = decide(value, functools.partial(lambda rest: rest, result))
    return result


def summed(recorder: Capture, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`sum(values)` of a tensor, of tensors, or of a list whose length only a run knows."""
    if not args or not (isinstance(args[0], Proxy | TensorProxy) or _is_list_of_tensors(args[0])):
        return NotImplemented
    if not recorder.examples.are_there:
        return recorder.torch_function(function, args, kwargs)
    made = with_examples(recorder).record("call_function", function, function, args, kwargs)
    has_start = len(args) > 1 or bool(kwargs)
    if type(made) is TensorProxy and not has_start and type(args[0]) not in (list, tuple):
        made.is_mixed = True  # the number 0, of no items
    return made


def _is_list_of_tensors(value: Any) -> bool:
    """Tell whether a value is a list whose length only a run knows, or one of tensors."""
    if isinstance(value, OfRun):
        return True
    return type(value) in (list, tuple) and len(value) > 1 and all(isinstance(item, torch.Tensor) for item in value)


# ---- map, filter, sorted


def mapped(
    call: Caller, recorder: Capture, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """`map(f, values)`: a comprehension; of plain values, what `f` is for them comes through the runtime, too.

    What gets a name may be gone over in parts, and is Python's own.
    """
    is_plain = _is_named(recorder) or all(iterable_of(values) is None for values in args[1:])
    if is_plain and len(args) > 1 and callable(args[0]):
        return map(functools.partial(call, args[0]), *args[1:])
    if len(args) != 2:
        return NotImplemented
    return listed(args[1], "item", False, functools.partial(call, args[0]))


def filtered(
    call: Caller, recorder: Capture, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """`filter(f, values)`: a comprehension, unless it gets a name, as `map` may."""
    if len(args) != 2 or iterable_of(args[1]) is None:
        return NotImplemented
    if _is_named(recorder):
        return filter(args[0] and functools.partial(call, args[0]), args[1])
    return listed(args[1], "item", False, lambda item: item, functools.partial(call, args[0]))


def ordered(
    call: Caller, recorder: Capture, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """`sorted(values)`, `max(values)`, `min(values)` and `values.sort()`."""
    if len(args) == 1 and isinstance(args[0], Proxy):
        return call(function, of_unknown(recorder, args[0].node), **kwargs)
    return ordering(recorder, function, args, kwargs, call)


# ---- range, enumerate, zip, reversed


def _is_named(recorder: Capture) -> bool:
    """Tell whether the program gives a name to what it makes; symbolic tracing has no items for an iterator."""
    return recorder.examples.are_there and bool(recorder.target_name())


def opened(recorder: Capture, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`range(n)`, `enumerate(x)`, `zip(x, y)`, `reversed(x)`: an iterable that only a run knows.

    An iterator that gets a name may be gone over in parts, and once: it is Python's own, of the items of the example.
    """
    if function is range:
        args = tuple([index_of(arg) if type(arg) is TensorProxy else arg for arg in args])
    elif _is_named(recorder):
        return NotImplemented
    for arg in args:
        if recorder_of(arg) is not None or iterable_of(arg) is not None:
            return _OPENED[function](*args, **kwargs)
    return NotImplemented


def _enumerated(iterable: Iterable[Any], start: int = 0) -> Iterable[Any]:
    part = iterable_of(iterable)
    return enumerate(iterable, start) if part is None else OpenEnumerate(part, start)


def _zipped(*iterables: Any, strict: bool = False) -> Iterable[Any]:
    values = [_known_items(iterable) for iterable in iterables]
    parts = [iterable_of(value, may_be_plain=True) for value in values]
    is_open = all(parts) and not all(part.is_plain for part in parts)  # type: ignore[union-attr]
    return OpenZip(parts, strict) if is_open else zip(*values, strict=strict)  # type: ignore[arg-type]


def _known_items(iterable: Iterable[Any]) -> Any:
    """What an iterator of Python's gives, as a list; other values as they are."""
    items: Any = iterable
    return [*items] if isinstance(iterable, _ONCE) else iterable


def _reversed(iterable: Reversible[Any]) -> Iterable[Any]:
    part = iterable_of(iterable)
    return reversed(iterable) if part is None or isinstance(part, Rows) else OpenReversed(part)


_LONG = (LoopList, LoopTuple, LoopQueue, TensorProxy)
_ONCE: tuple[type, ...] = (
    type(reversed([])), reversed, zip, enumerate, map, filter, GeneratorType, type({}.values()), type({}.keys()),
)  # fmt: skip
_OPENED: dict[Callable[..., Any], Callable[..., Iterable[Any]]] = {
    range: OpenRange, enumerate: _enumerated, zip: _zipped, reversed: _reversed,
}  # fmt: skip
