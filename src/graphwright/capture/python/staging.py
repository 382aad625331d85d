"""What converted functions call: Python's way for plain values, the recorder's for symbolic ones.

The methods of `Runtime` stand for `if`, `and`, `or`, `not`, the ternary, chained comparisons, `assert`, `raise` and
calls. They act on the capture that runs in this thread; without one they do what Python does.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import math
import operator
import sys
from collections.abc import Callable
from types import FunctionType, GeneratorType, MethodType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from graphwright.capture.calls.identity import is_member
from graphwright.capture.calls.opaque import holds_values, record_foreign_call, record_leaf_function
from graphwright.capture.calls.refusals import is_misfit, is_refused_number
from graphwright.capture.containers.heaps import heap_call
from graphwright.capture.containers.loop_dicts import LoopDict
from graphwright.capture.containers.loop_holders import Holder
from graphwright.capture.containers.loop_lists import LoopList, LoopTuple, OfRun
from graphwright.capture.containers.loop_queues import LoopQueue
from graphwright.capture.containers.loop_sets import LoopSet
from graphwright.capture.containers.open_iterables import (
    OpenEnumerate,
    OpenRange,
    OpenReversed,
    OpenZip,
    Rows,
    iterable_of,
)
from graphwright.capture.containers.orderings import is_ordering, ordering
from graphwright.capture.containers.rows import numbers, of_unknown, rows
from graphwright.capture.containers.tables import container_of, method_call
from graphwright.capture.conversion.conversion import convert
from graphwright.capture.flow.caught_errors import shown
from graphwright.capture.flow.deciding import held, recorder_of
from graphwright.capture.flow.plain_attempts import run_plainly
from graphwright.capture.flow.swallowing import watched
from graphwright.capture.numbers.broadcasting import broadcast_shapes
from graphwright.capture.outside.drawing import is_draw, record_draw
from graphwright.capture.outside.outside_modules import call_outside
from graphwright.capture.outside.said import print_elsewhere, warn
from graphwright.capture.proxies.growing import GrowingDict, is_growing
from graphwright.capture.proxies.object_proxy import ObjectMethod, holds_objects, is_foreign, kind_of
from graphwright.capture.proxies.proxy import Proxy
from graphwright.capture.proxies.spellings import is_torch
from graphwright.capture.proxies.uncertain import asked_for_class
from graphwright.capture.python.comprehensions import Comprehensions
from graphwright.capture.source.caches import without_cache
from graphwright.capture.state.parts import Handlers
from graphwright.capture.state.plan import Conversions
from graphwright.capture.state.protocol import with_examples
from graphwright.capture.state.running import refusal, running
from graphwright.capture.state.samples import UNSET
from graphwright.capture.state.symbols import UNKNOWN
from graphwright.capture.state.tensor_proxy import TensorProxy
from graphwright.errors import CaptureError
from graphwright.runtime import Shells
from graphwright.values import leaves

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import Capture

__all__ = [
    "RUNTIME",
    "Text",
    "convert_methods",
    "converted_function",
    "initializer",
    "is_leaf",
]


class Text(str):
    """A message with the numbers of the example; `template` and `values` make it with those of a run."""

    template: str
    values: tuple[Any, ...]

    def __add__(self, other: str) -> str:
        return _of_texts(self, other)

    def __radd__(self, other: str) -> str:
        return _of_texts(other, self)


def _of_texts(*parts: str) -> str:
    """A message made of others."""
    text = Text("".join(map(str, parts)))
    text.template = "".join(
        part.template if type(part) is Text else part.replace("{", "{{").replace("}", "}}") for part in parts
    )
    text.values = tuple(value for part in parts if type(part) is Text for value in part.values)
    return text


class Runtime(Comprehensions):
    """The runtime of converted functions."""

    def contains(self, item: Any, values: Any) -> Any:
        """`item in values`."""
        if isinstance(values, GrowingDict | LoopDict | LoopSet | OfRun):
            return values.has(item)
        if shown(values):
            return recorder_of(values).record("call_function", operator.contains, operator.contains, (values, item), {})
        self.look(values, item)
        if type(values) is TensorProxy:
            return values.recorder.numbers.truth(torch.eq(values, item).any())
        if isinstance(item, Proxy) and type(values) in (dict, set, frozenset):  # whose hash is another one when it runs
            return item.tracer.create_proxy("call_function", operator.contains, (tuple(values), item), {})
        if not isinstance(values, _SEARCHED) or not (recorder_of(item) is not None or _holds_symbolic(values)):
            return item in values
        result: Any = is_member(item, values) if isinstance(values, list | tuple) else NotImplemented
        if result is not NotImplemented:
            return result
        result = False
        for value in reversed([*values]):
            result = self.either(item == value, functools.partial(lambda rest: rest, result))
        return result

    def equal(self, left: Any, right: Any) -> Any:
        """`left == right`, of tuples and lists item by item."""
        are_both = isinstance(left, tuple) and isinstance(right, tuple)
        if not are_both and not (type(left) is list and type(right) is list):
            return left == right
        if is_growing(left) or is_growing(right):
            return left == right
        if len(left) != len(right):
            return False
        if not _holds_symbolic(left) and not _holds_symbolic(right):
            return left == right
        first = self.equal(left[0], right[0])
        return first if len(left) == 1 else self.both(first, lambda: self.equal(left[1:], right[1:]))

    def check(self, test: Any, message: Callable[[], Any] | None = None) -> None:
        """`assert test, message`."""

        def fail() -> None:
            raise self.raising(AssertionError(message()) if message is not None else AssertionError())

        self.branch(test, lambda: None, fail)

    def raising(self, error: Any, cause: Any = None) -> Any:
        """`raise error from cause`: returns what is to be raised, or ends a side of a branch with it."""
        recorder = running()
        if recorder is not None:
            return recorder.questions.raising(error, cause)
        if cause is not None:
            error = error() if isinstance(error, type) else error
            error.__cause__ = cause
        return error

    def attempt(
        self,
        tried: Callable[[], Any],
        handlers: Handlers,
        orelse: Callable[[], Any] | None,
        final: Callable[[], Any] | None,
        names: tuple[str, ...] = (),
        only_raises: bool = False,
    ) -> Any:
        """`try: ... except ...: ... else: ... finally: ...`; returns whether a part said that it is left.

        `only_raises`: all that handlers do in the end is to raise.
        """
        recorder = running()
        if recorder is None:
            return run_plainly(tried, handlers, orelse, names, final)
        return recorder.attempts.run(tried, handlers, orelse, final, names, only_raises)

    def class_of(self, error: Any) -> Any:
        """`error.__class__`, of an error that a handler got."""
        return self.call(type, error) if running() is not None else error.__class__

    def context(self, context: Any) -> Any:
        """What a `with` block enters."""
        return watched(context)

    def suppressed(self, context: Any) -> Any:
        """The classes of errors that `contextlib.suppress` is told of."""
        if type(context) is contextlib.suppress:
            return context._exceptions  # type: ignore[attr-defined]
        fix = "write `try` and `except`"
        raise refusal(CaptureError("another context than contextlib.suppress has its name", fix=fix))

    def text(self, template: str, *values: Any) -> str:
        """An f-string in a message."""
        if not holds_values(values) and not any(map(_is_shown, values)):
            return template.format(*values)
        text = Text(template.format(*[_Shown(value) if _is_shown(value) else value for value in values]))
        text.template, text.values = template, values
        return text

    def call(self, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        """`function(*args, **kwargs)`: converted functions in place of those that asked, nodes for numbers."""
        recorder = running()
        if recorder is None:
            return function(*args, **kwargs)
        function = without_cache(function)
        for found in (method_call, container_of):
            value = found(recorder, function, args, kwargs)
            if value is not NotImplemented:
                return value
        if args and type(args[0]) is TensorProxy and args[0].is_mixed and any(function is f for f in _CLASS_QUESTIONS):
            raise asked_for_class(args[0])
        if len(args) in (1, 2) and shown(args[0]) and function in _ASK_ERRORS:
            return with_examples(recorder).attempts.asked(function, args)
        if function is type and len(args) == 1:
            return kind_of(args[0])
        if (function is len or function is bool) and args and is_growing(args[0]):
            return args[0].length() if function is len else held(args[0])
        is_of_table = bool(args) and isinstance(args[0], LoopDict | LoopSet) and type(function) in _PLAIN_CALLABLES
        if is_of_table and function in _LISTING:
            kwargs = _key_of_table(args[0], kwargs)
            args = (args[0].listed(), *args[1:])
        heap = heap_call(recorder, function, args, kwargs, self.call)
        if heap is not NotImplemented:
            return heap
        if (function is list or function is tuple) and len(args) == 1:
            is_open = type(args[0]) is TensorProxy or isinstance(args[0], Proxy)
            listed = rows(recorder, args[0]) if is_open else args[0]
            if isinstance(listed, OpenReversed) and (turned := listed.listed(recorder)) is not None:
                listed = turned
            if isinstance(listed, OpenRange) and recorder.examples.are_there and function is list:
                listed = numbers(with_examples(recorder), listed)
            if isinstance(listed, OfRun):
                return listed if listed is not args[0] and function is list else listed.listed(function)
        if (function is any or function is all) and len(args) == 1:
            kind = type(args[0])
            if kind in (LoopList, LoopTuple, LoopQueue, TensorProxy) or isinstance(args[0], Proxy):
                return _found(recorder, function, args[0])
        if args and function is sum and (isinstance(args[0], Proxy | TensorProxy) or _is_list_of_tensors(args[0])):
            if not recorder.examples.are_there:
                return recorder.torch_function(function, args, kwargs)
            return with_examples(recorder).record("call_function", function, function, args, kwargs)
        if (function is map or function is filter) and len(args) == 2 and iterable_of(args[1]) is not None:
            if function is map:
                return self.listed(args[1], "item", False, functools.partial(self.call, args[0]))
            return self.listed(args[1], "item", False, lambda item: item, functools.partial(self.call, args[0]))
        if is_ordering(function):
            args = (of_unknown(recorder, args[0].node),) if len(args) == 1 and isinstance(args[0], Proxy) else args
            ordered = ordering(recorder, function, args, kwargs, self.call)
            if ordered is not NotImplemented:
                return ordered
        if not recorder.examples.are_there and _would_look_for_proxies(function, args):
            return recorder.torch_function(function, args, kwargs)  # which would look for proxies in it
        table = getattr(function, "__self__", None) if type(function) is _BUILTIN else None
        if type(table) is dict and function.__name__ == "get":
            found = _looked_up(recorder, table, *args)
            if found is not NotImplemented:
                return found
        if (function is all or function is any) and _holds_symbolic(args[0] if args else None):
            return _every(recorder, function, args, kwargs)
        opened = _ITERABLES.get(function) if type(function) is type else None
        if opened is not None and any(recorder_of(arg) is not None or iterable_of(arg) is not None for arg in args):
            return opened(*args, **kwargs)
        if function is torch.broadcast_shapes and not kwargs and all(type(arg) in (tuple, torch.Size) for arg in args):
            shape = broadcast_shapes(with_examples(recorder), args)
            if shape is not None:
                return shape
        if function is print and recorder.examples.are_there:
            return _printed(recorder, function, args, kwargs)
        numeric = _NUMERIC.get(function) if type(function) in _PLAIN_CALLABLES or _is_check(function) else None
        if numeric is _number or numeric is _truth:
            args = tuple(map(held, args))
        if numeric is not None and any(recorder_of(value) is not None or type(value) is Text for value in args):
            return numeric(recorder, function, args, kwargs)
        if (recorder.plan.leaves and is_leaf(function, recorder.plan.leaves)) or (
            recorder.plan.outlined and _code_of(function) in recorder.plan.outlined
        ):
            return record_leaf_function(with_examples(recorder), function, args, kwargs)
        if is_draw(function):
            return record_draw(with_examples(recorder), function, args, kwargs)
        handler = None if recorder.transforms is None else recorder.transforms.handler(function)
        if handler is not None:
            return handler(*args, **kwargs)
        if isinstance(function, nn.Module):
            function = recorder.shells.shell(function) if recorder.shells is not None else function
            if recorder.shells is None or recorder.shells.path(function) is None:
                codes = recorder.plan.converted
                return call_outside(function, lambda forward: converted_function(forward, codes), args, kwargs)
        if recorder.states and type(function) is MethodType:
            owner = function.__self__
            for state in recorder.states if isinstance(owner, nn.Module) or not is_torch(type(owner)) else ():
                state.watch(owner)
        if recorder.questions.has_optionals:
            recorder.questions.admit_optionals(function, args, kwargs)
        if any(isinstance(arg, Holder) for arg in args):  # what it calls has to be told of it, too
            recorder.questions.convert_called(function)
        if is_foreign(function) or (recorder.has_objects and holds_objects(args, kwargs)):
            if not isinstance(function, FunctionType | MethodType) or is_foreign(function) or is_torch(function):
                return _outside(recorder, function, args, kwargs)
            recorder.questions.convert_called(function)
        if isinstance(function, type) and issubclass(function, BaseException):
            return recorder.attempts.made(recorder.questions.converted(function)(*args, **kwargs), args, kwargs)
        try:
            return recorder.questions.converted(function)(*args, **kwargs)
        except TypeError as error:
            is_refused = is_refused_number(error) or (is_misfit(error) and _holds_proxies(args, kwargs))
            if not is_refused or isinstance(function, FunctionType | MethodType | type):
                raise
            return recorder.torch_function(function, args, kwargs)  # C++ takes plain numbers here; the graph need not

    def warn(self, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        """`warnings.warn(...)`."""
        return warn(function, args, kwargs)

    UNSET = UNSET

    def each(
        self,
        iterable: Any,
        body: Callable[[Any], Any],
        names: tuple[str, ...],
        private: tuple[str, ...] = (),
        target: str = "",
        asks_how: bool = False,
    ) -> Any:
        """`for item in iterable: ...`; returns whether `body` said that the loop ends.

        The body assigns the variables `names` around it; nothing but the loop uses those that are `private`. `target`
        is what the source calls an item. With `asks_how` the value is of use.
        """
        recorder = running()
        if recorder is not None:
            return recorder.loops.each(iterable, body, names, private, asks_how, target)
        return any(map(body, iterable))

    def repeat(
        self,
        test: Callable[[], Any],
        body: Callable[[], Any],
        names: tuple[str, ...],
        private: tuple[str, ...] = (),
        asks_how: bool = False,
    ) -> Any:
        """`while test(): ...`; returns whether `body` said that the loop ends."""
        recorder = running()
        if recorder is not None:
            return recorder.loops.repeat(test, body, names, private, asks_how)
        while test():
            if body():
                return True
        return False


RUNTIME = Runtime()


def _outside(recorder: Capture, function: Any, args: Any, kwargs: Any) -> Any:
    """Call what takes arrays, or what takes a value outside of torch: one node where values of the program go in."""
    if isinstance(function, ObjectMethod) or not holds_values((args, kwargs)):
        return function(*args, **kwargs)
    return record_foreign_call(with_examples(recorder), function, args, kwargs)


def _code_of(function: Any) -> Any:
    return getattr(getattr(function, "__func__", function), "__code__", None)


def _holds_proxies(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return any(isinstance(leaf, Proxy) for leaf in leaves((args, kwargs)))


def is_leaf(function: Any, leaves: tuple[Any, ...]) -> bool:
    """Tell whether a function, or what a method or wrapper calls, is among those recorded as one node."""
    inner = getattr(function, "__func__", function)
    return any(inner is leaf or function is leaf or inner is getattr(leaf, "__func__", leaf) for leaf in leaves)


def convert_methods(shells: Shells, codes: Conversions) -> None:
    """Give shells conversions of those forwards that are to be converted."""
    for _, shell in shells.all():
        forward = shell.forward
        converted = converted_function(forward, codes)
        if converted is not forward:
            shell.__dict__["forward"] = converted


def converted_function(function: Any, codes: Conversions) -> Any:
    """Return what to call in place of a function: its conversion where it, or what it wraps, is to be converted."""
    kind = type(function)
    if kind is FunctionType:
        return (_conversion(function, codes) or function) if function.__code__ in codes else function
    if kind is MethodType:
        inner = converted_function(function.__func__, codes)
        return function if inner is function.__func__ else MethodType(inner, function.__self__)
    if kind is functools.partial:
        inner = converted_function(function.func, codes)
        return function if inner is function.func else functools.partial(inner, *function.args, **function.keywords)
    if isinstance(function, type):
        start = initializer(function)
        is_asked = start is not None and start.__code__ in codes
        return functools.partial(_made, function, _conversion(start, codes) or start) if is_asked else function
    own = getattr(kind, "__call__", None)  # noqa: B004 - the method, to convert it
    if type(own) is FunctionType and own.__code__ in codes and not isinstance(function, type | nn.Module):
        return MethodType(_conversion(own, codes) or own, function)
    return function


def _conversion(function: FunctionType, codes: Conversions) -> FunctionType | None:
    file = function.__code__.co_filename
    return convert(function, RUNTIME, frozenset(line for known, line in codes.waiting if known == file))


def initializer(kind: Any) -> Any:
    """The `__init__` of a class in Python, if calling the class does no more than to make an object and call that."""
    makes: Any = object.__new__
    is_plain = isinstance(kind, type) and type(kind).__call__ is type.__call__ and kind.__new__ is makes
    return kind.__init__ if is_plain and isinstance(kind.__init__, FunctionType) else None


def _made(kind: type, start: Callable[..., None], /, *args: Any, **kwargs: Any) -> Any:
    """Make an object as calling its class does, with the conversion of its `__init__`."""
    value: Any = object.__new__(kind)
    start(value, *args, **kwargs)
    return value


def _is_shown(value: Any) -> bool:
    return recorder_of(value) is not None or is_growing(value)


class _Shown:
    """A number in a message of the example: whatever its format asks for."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __format__(self, spec: str) -> str:
        return str(self)

    def __repr__(self) -> str:
        return "?" if isinstance(self._value, torch.Tensor) or shown(self._value) else str(self._value.node)


# ---- functions that want numbers


def _number(recorder: Capture, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """int(x), float(x), round(x), math.sqrt(x): a number computed from one or more."""
    return recorder.numbers.computed(function, args, kwargs)


def _length(recorder: Capture, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return recorder.numbers.length(args[0])


def _truth(recorder: Capture, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return recorder.numbers.truth(args[0])


def _extreme(recorder: Capture, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if len(args) > 1 and not kwargs:
        return recorder.numbers.computed(function, args, kwargs)
    return function(*args, **kwargs)


def _is_list_of_tensors(value: Any) -> bool:
    """Tell whether a value is a list whose length only a run knows, or one of tensors."""
    if isinstance(value, OfRun):
        return True
    return type(value) in (list, tuple) and len(value) > 1 and all(isinstance(item, torch.Tensor) for item in value)


def _would_look_for_proxies(function: Any, args: tuple[Any, ...]) -> bool:
    """Tell whether a function of torch would look into a list of which only a run knows what is in it."""
    if any(function is makes for makes in (torch.tensor, torch.as_tensor)):
        return any(isinstance(arg, Proxy) or is_growing(arg) for arg in args)
    return is_torch(function) and any(map(is_growing, args))


def _holds_symbolic(value: Any) -> bool:
    return isinstance(value, tuple | list) and any(recorder_of(item) is not None for item in value)


def _every(recorder: Capture, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """all(values) and any(values)."""
    decide = RUNTIME.both if function is all else RUNTIME.either
    result: Any = function is all
    for value in reversed(args[0]):
        result = decide(value, functools.partial(lambda rest: rest, result))
    return result


def _found(recorder: Capture, function: Any, values: Any) -> Any:
    """any(values) and all(values) of a list whose length only a run knows, or of a tensor."""
    node = recorder.node("call_function", function, (recorder.argument(values),), {}, function.__name__)
    hint = function(recorder.to_examples(values)) if recorder.examples.is_real else UNKNOWN
    return recorder.numbers.of_node(node, hint, bool)


def _looked_up(recorder: Capture, table: dict[Any, Any], key: Any = None, default: Any = None) -> Any:
    """`table.get(key, default)` with a key of the program, whose hash is another one when it runs."""
    if isinstance(key, Proxy):
        return key.tracer.create_proxy("call_method", "get", (table, key, default), {})
    kinds = {type(value) for value in (*table.values(), default)}
    if recorder_of(key) is None or len(kinds) > 1 or not kinds & {int, float, bool}:
        return NotImplemented
    node = recorder.node("call_method", "get", (table, recorder.argument(key), default), {}, "get")
    return recorder.numbers.of_node(node, UNKNOWN, kinds.pop())


def _key_of_table(table: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """The keywords of `max(table, key=table.get)`: what is asked about is there."""
    key = kwargs.get("key")
    asks = type(key) is MethodType and key.__func__ is LoopDict.get and getattr(key, "__self__", None) is table
    if asks:
        return {**kwargs, "key": functools.partial(LoopDict.__getitem__, table)}
    return kwargs


_LISTING = frozenset({list, tuple, sorted, max, min, sum, any, all, iter, enumerate, reversed, zip, map, filter})
_SEARCHED = (tuple, list, dict, set, frozenset)


def _enumerated(iterable: Any, start: Any = 0) -> Any:
    part = iterable_of(iterable)
    return enumerate(iterable, start) if part is None else OpenEnumerate(part, start)


def _taken(values: Any) -> list[Any]:
    return [*values]


def _zipped(*iterables: Any, strict: bool = False) -> Any:
    values = [_known_items(iterable) for iterable in iterables]
    parts = [iterable_of(value, may_be_plain=True) for value in values]
    is_open = all(parts) and not all(part.is_plain for part in parts)  # type: ignore[union-attr]
    return OpenZip(parts, strict) if is_open else zip(*values, strict=strict)  # type: ignore[arg-type]


def _known_items(iterable: Any) -> Any:
    """What an iterator of Python's gives, as a list; other values as they are."""
    return _taken(iterable) if isinstance(iterable, _ONCE) else iterable


def _reversed(iterable: Any) -> Any:
    part = iterable_of(iterable)
    return reversed(iterable) if part is None or isinstance(part, Rows) else OpenReversed(part)


def _asserted(recorder: Capture, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """torch._assert(condition, message) stays what it is."""
    message = recorder.questions.message(kwargs.get("message", args[1] if len(args) > 1 else ""))
    condition = recorder.numbers.predicate(args[0])
    recorder.make("call_function", function, (condition, message), "assert_")


def _checked(recorder: Capture, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """torch._check(condition, message): an exception of its class where the condition does not hold."""

    kind, given = _CHECKS[function], list(args)
    if kind is None:
        kind = given.pop(0)
    if "tensor_all" in function.__name__:
        given[0] = torch.all(given[0])

    def fail() -> None:
        message = given[1]() if len(given) > 1 and given[1] is not None else "Expected cond to be True, but got False."
        raise RUNTIME.raising(kind(message))

    RUNTIME.branch(given[0], lambda: None, fail)


def _printed(recorder: Capture, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if recorder.examples.are_there and kwargs.get("file", sys.stdout) not in (None, sys.stdout):
        return print_elsewhere(recorder, args, kwargs)
    kwargs = {name: value for name, value in kwargs.items() if name != "file"}
    named = {name: recorder.questions.message(value) for name, value in kwargs.items()}
    return recorder.make("call_function", print, tuple(map(recorder.questions.message, args)), "print", named)


def _grad_mode_set(recorder: Capture, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    symbol = with_examples(recorder).ambient.flag = args[0]
    return function(bool(symbol.node.sample))


_ASK_ERRORS: tuple[Any, ...] = (str, repr, isinstance, type)
_ONCE: tuple[type, ...] = (
    type(reversed([])), reversed, zip, enumerate, map, filter, GeneratorType, type({}.values()), type({}.keys()),
)  # fmt: skip
_BUILTIN = type(len)
_PLAIN_CALLABLES = (type, _BUILTIN)
_CLASS_QUESTIONS: tuple[Any, ...] = (isinstance, type, torch.is_tensor)
_CHECKS: dict[Any, type[Exception] | None] = {  # without a class: it is the first argument
    torch._check_with: None, torch._check_tensor_all_with: None, torch._check_tensor_all: RuntimeError,
    torch._check: RuntimeError, torch._check_value: ValueError, torch._check_index: IndexError,
    torch._check_type: TypeError, torch._check_not_implemented: NotImplementedError,
}  # fmt: skip


def _is_check(function: Any) -> bool:
    return type(function) is FunctionType and (function is torch._assert or function in _CHECKS)


_ITERABLES: dict[Any, Callable[..., Any]] = {
    range: OpenRange,
    enumerate: _enumerated,
    zip: _zipped,
    reversed: _reversed,
}
_NUMERIC: dict[Any, Callable[..., Any]] = {
    int: _number, float: _number, round: _number, abs: _number, bool: _truth, len: _length, max: _extreme,
    min: _extreme, print: _printed, torch._assert: _asserted, **dict.fromkeys(_CHECKS, _checked),
    torch.set_grad_enabled: _grad_mode_set, divmod: lambda r, f, args, k: divmod(args[0], args[1]), pow: _number,
    **{getattr(math, name): _number for name in dir(math) if isinstance(getattr(math, name), type(builtins.len))},
}  # fmt: skip
