"""What a program says: `print`, and `torch._assert` and its like, of values that only a run has."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from graphwright.capture.calls.opaque import holds_values
from graphwright.capture.flow.caught_errors import shown
from graphwright.capture.flow.deciding import branch, recorder_of
from graphwright.capture.outside.said import CHECKS, print_elsewhere
from graphwright.capture.proxies.growing import is_growing
from graphwright.capture.proxies.run_text import RunText, text_of_error
from graphwright.capture.python.message_texts import Text
from graphwright.capture.python.own_texts import with_own_texts
from graphwright.capture.python.statements import raising

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import Capture

Call = Callable[..., Any]

__all__ = ["asserted", "checked", "is_known", "printed", "text"]


def text(template: str, *values: Any) -> str:
    """An f-string in a message; of an error that it shows, the text is that of the run."""
    values = tuple([value if (of_run := text_of_error(value)) is None else of_run for value in values])
    if not any(map(_is_shown, values)):
        return template.format(*values)
    text = Text(template.format(*[_Shown(value) if _is_shown(value) else value for value in values]))
    text.template, text.values = template, values
    return text


def _is_shown(value: Any) -> bool:
    is_of_run = type(value) is RunText or recorder_of(value) is not None
    return is_of_run or is_growing(value) or holds_values((value,))


class _Shown:
    """A value of the run in a message of the example: whatever its format asks for."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __format__(self, spec: str) -> str:
        return str(self)

    def __repr__(self) -> str:
        is_number = not isinstance(self._value, torch.Tensor) and not shown(self._value)
        return str(self._value.node) if is_number and recorder_of(self._value) is not None else "?"


# ---- calls


def is_known(values: tuple[Any, ...]) -> bool:
    """Tell whether a builtin can be called with values: no numbers of the run are among them, and no messages."""
    for value in values:  # noqa: SIM110 - asked in most calls of builtins
        if type(value) is Text or recorder_of(value) is not None:
            return False
    return True


def printed(
    call: Call, recorder: Capture, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """`print(...)` is part of the graph; without examples only where it shows values of the run."""
    has_examples = recorder.examples.are_there
    args = tuple([with_own_texts(call, "{!s}", (value,))[1][0] for value in args])
    if not has_examples and is_known(args):
        return NotImplemented
    if has_examples and kwargs.get("file", sys.stdout) not in (None, sys.stdout):
        return print_elsewhere(recorder, args, kwargs)
    message = recorder.questions.messages.message
    named = {name: message(value) for name, value in kwargs.items() if name != "file"}
    recorder.make("call_function", print, tuple(map(message, args)), "print", named)
    return None


def asserted(recorder: Capture, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`torch._assert(condition, message)` stays what it is."""
    if is_known(args):
        return NotImplemented
    message = recorder.questions.messages.message(kwargs.get("message", args[1] if len(args) > 1 else ""))
    condition = recorder.numbers.predicate(args[0])
    recorder.make("call_function", function, (condition, message), "assert_")
    return None


def checked(recorder: Capture, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`torch._check(condition, message)`: an exception of its class where the condition does not hold."""
    if is_known(args):
        return NotImplemented
    kind, given = CHECKS[function], list(args)
    if kind is None:
        kind = given.pop(0)
    if "tensor_all" in function.__name__:
        given[0] = torch.all(given[0])

    def fail() -> None:
        message = given[1]() if len(given) > 1 and given[1] is not None else _message_of_torch()
        raise raising(kind(message))

    branch(given[0], lambda: None, fail)
    return None


@functools.cache
def _message_of_torch() -> str:
    """What torch's checks say where the program gives no message. To ask it loads sympy."""
    try:
        torch._check(False)
    except RuntimeError as error:
        return str(error)
    return ""
