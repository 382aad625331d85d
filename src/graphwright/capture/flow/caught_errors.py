"""The error that a handler of the program gets, where only a run knows it: its text and attributes are nodes.

It is an object outside of torch; what its attributes are like is that of the errors which the program raises there.
"""

from __future__ import annotations

import operator
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeGuard

import torch

from graphwright.capture.flow.swallowing import check_contexts
from graphwright.capture.proxies.object_proxy import ObjectProxy, object_example, object_node, object_recorder
from graphwright.capture.state.protocol import with_examples
from graphwright.capture.state.symbols import UNKNOWN, is_symbolic, symbol_of
from graphwright.ir import Node
from graphwright.ops import raise_error
from graphwright.source import user_frame

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import Capture
    from graphwright.capture.state.rungs import Raisable


def is_error(value: Any) -> TypeGuard[ObjectProxy]:
    """Tell whether a value is an error that only a run knows."""
    return type(value) is ObjectProxy and isinstance(object_example(value), BaseException)


def shown(value: Any) -> bool:
    """Tell whether a value is such an error, or a text that comes from one."""
    return type(value) is ObjectProxy and isinstance(object_example(value), BaseException | str)


def text_of(value: ObjectProxy, function: Callable[[Any], str]) -> Any:
    """`str(error)` or `repr(error)`."""
    recorder = object_recorder(value)
    node = recorder.node("call_function", function, (object_node(value),), {}, function.__name__)
    recorder.attempts.comes_from(node, object_node(value))
    return ObjectProxy(recorder, function(object_example(value)), node)


def attribute_of_error(error: ObjectProxy, name: str) -> Any:
    """An attribute of an error, such as its `args`."""
    recorder = object_recorder(error)
    node = recorder.node("call_function", getattr, (object_node(error), name), {}, name)
    recorder.attempts.comes_from(node, object_node(error))
    return _opened(recorder, getattr(object_example(error), name), node)


def _opened(recorder: Capture, value: Any, node: Node) -> Any:
    """A value like that of the example, which a node gives."""
    if isinstance(value, torch.Tensor):
        return recorder.joining.stand_in(recorder.joining.sample(value, value), node, None)
    if is_symbolic(value) or type(value) in (int, float, bool):
        symbol = symbol_of(value)
        return recorder.numbers.of_node(node, UNKNOWN, type(value) if symbol is None else symbol.kind)
    if type(value) is tuple:
        items = [recorder.node("call_function", operator.getitem, (node, i), {}, "getitem") for i in range(len(value))]
        return tuple([_opened(recorder, item, made) for item, made in zip(value, items, strict=True)])
    return ObjectProxy(with_examples(recorder), value, node)


def with_cause(error: Any, cause: Raisable | None) -> Any:
    """An exception to be raised as Python does."""
    if is_error(error):
        return object_recorder(error).attempts.standing_for(object_example(error), error)
    if cause is not None:
        error = error() if isinstance(error, type) else error
        error.__cause__ = with_cause(cause, None)
    return error


def divides_by_zero(error: BaseException) -> bool:
    """Tell whether the program itself divided numbers that it knows by zero."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return isinstance(error, ZeroDivisionError) and user_frame(frames[-1]) is frames[-1]


def _cause(recorder: Capture, cause: Raisable) -> Node:
    """The node that gives what an error is raised from: one that was caught, or one that the program makes for that."""
    if is_error(cause):
        return object_node(cause)
    kind, args = (cause, ()) if isinstance(cause, type) else (type(cause), recorder.attempts.args_of(cause))
    given = tuple([recorder.questions.messages.message(arg) for arg in args])
    return recorder.make("call_function", kind, given, "cause")


def write_error(
    recorder: Capture,
    error: Raisable,
    cause: Raisable | None = None,
) -> None:
    """Write the node that raises an error."""
    error = recorder.attempts.original(error)
    if cause is None and not is_error(error) and isinstance(error, BaseException) and error.__cause__ is not None:
        cause = recorder.attempts.original(error.__cause__)  # it was raised where it might have been caught
    named = {} if cause is None else {"cause": _cause(recorder, cause)}
    check_contexts(recorder)
    if is_error(error):
        recorder.make("call_function", raise_error, (object_node(error),), "raise_error", named)
        return
    kind, args = (error, ()) if isinstance(error, type) else (type(error), recorder.attempts.args_of(error))
    if kind is NameError:  # a variable of the program, which is a free one of the converted function
        kind = UnboundLocalError
    given = (kind, *[recorder.questions.messages.message(arg) for arg in args])
    recorder.make("call_function", raise_error, given, "raise_error", named)
