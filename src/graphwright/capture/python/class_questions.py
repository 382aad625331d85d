"""Calls that ask what a value is: `isinstance(x, Tensor)`, `type(x)`, `torch.is_tensor(x)`, `str(error)`.

Each answers NotImplemented where Python itself is to make the call.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch

from graphwright.capture.containers.open_iterables import OpenRange
from graphwright.capture.containers.tables import make_text
from graphwright.capture.conversion.conversion import OF_SYMBOLS, is_standard
from graphwright.capture.effects.kept_kinds import Unreadable
from graphwright.capture.flow.caught_errors import shown
from graphwright.capture.numbers.classes import ask_class, is_told_by, take_for_tensor
from graphwright.capture.proxies.object_proxy import ObjectProxy, kind_of, text_of_error
from graphwright.capture.proxies.run_text import formatted, text_of
from graphwright.capture.state.protocol import with_examples
from graphwright.capture.state.running import running
from graphwright.capture.state.symbols import UNKNOWN, is_symbolic, symbol_of
from graphwright.capture.state.tensor_proxy import TensorProxy, is_uncertain
from graphwright.source import is_foreign, is_ours, user_frame

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import Capture


def by_name(recorder: Capture, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A question for an attribute by a name that may be computed: it counts as mentioned, and Python answers."""
    typed = recorder.typed
    if typed is not None and len(args) > 1 and type(args[1]) is str and not _tells(args[0], args[1]):
        asker = user_frame(sys._getframe(1))
        if asker is not None and not is_foreign(asker.f_code):
            typed.callers.mention(args[1], asker.f_code)
    return NotImplemented


def _tells(owner: Any, name: str) -> bool:
    """Tell whether something tells by itself what it is asked for: tensors do, modules short of what Python finds."""
    return isinstance(owner, torch.Tensor) or (isinstance(owner, torch.nn.Module) and name not in owner.__dict__)


def of_input(recorder: Capture, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A question for the class of what may be an input, or hang on one: it is noted, and Python answers."""
    if function is getattr and len(args) == 2:
        return NotImplemented  # it asks for an attribute that is there, of whatever class
    if args and type(args[0]) is Unreadable:
        args[0]._refuse()
    typed = recorder.typed
    may_be_input = args and (
        type(args[0]) in _MAY_BE_INPUTS or (typed is not None and id(args[0]) in typed.objects) or is_symbolic(args[0])
    )
    if may_be_input and _is_asked_by_program():
        recorder.ledger.kind_asked()
        symbol = symbol_of(args[0])
        if symbol is not None and is_told_by(function, args):
            ask_class(with_examples(recorder), symbol)
    if may_be_input and len(args) > 1 and is_symbolic(args[0]):  # whose class is one of torch's for Python itself
        if function is isinstance:
            return issubclass(kind_of(args[0]), args[1])
        if function in (hasattr, getattr) and args[1] in OF_SYMBOLS:
            return function(kind_of(args[0])(), *args[1:])
    return NotImplemented


def _is_asked_by_program() -> bool:
    """Tell whether it is the program that asks: what torch's and Python's own code asks is no question of it."""
    asker: FrameType | None = sys._getframe(1)
    while asker is not None and is_ours(asker.f_code.co_filename):
        asker = asker.f_back
    return asker is not None and asker is user_frame(asker) and not is_standard(asker.f_code)


def of_tensor(recorder: Capture, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A question for the class of a tensor: `isinstance(x, nn.Parameter)` of an input is one of each call.

    What is a number on some ways and a tensor on others raises what ends the capture. A range that only a run knows is
    a range.
    """
    value = args[0] if args else None
    if type(value) is not TensorProxy:
        return function(range(0), *args[1:]) if type(value) is OpenRange else NotImplemented
    if value.is_mixed:
        take_for_tensor(with_examples(recorder), value, may_be_asked=True)
    kinds = args[1] if len(args) > 1 and isinstance(args[1], tuple) else args[1:]
    if function is not isinstance or value._make is None or torch.Tensor in kinds or torch.nn.Parameter not in kinds:
        return NotImplemented
    asked = recorder.argument(value), args[1]
    node = recorder.node("call_function", isinstance, asked, {}, name="is_parameter")
    return with_examples(recorder).numbers.of_node(node, UNKNOWN, bool)


_MAY_BE_INPUTS = frozenset({TensorProxy, list, tuple, dict, str})


def of_error(recorder: Capture, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`str(error)`, `repr(error)`, `isinstance(error, kind)` and `type(error)`, of an error that only a run knows."""
    if function is str and len(args) == 1 and (text := text_of_error(args[0])) is not None:
        return text
    if len(args) in (1, 2) and shown(args[0]):
        return with_examples(recorder).attempts.asked(function, args)
    return NotImplemented


def of_handled(error: Any, name: str) -> Any:
    """`error.__class__`, `error.__cause__` and `error.__context__`, of an error that a handler got.

    Raises CaptureError for what only Python's own `try` gives it.
    """
    recorder = running()
    if recorder is None:
        return getattr(error, name)
    if name == "__class__":
        found = of_error(recorder, type, (error,), {})
        return type(error) if found is NotImplemented else found
    if name == "__cause__":
        is_of_run = type(error) is ObjectProxy
        cause = with_examples(recorder).attempts.attribute(error, name) if is_of_run else error.__cause__
        return None if cause is None else recorder.questions.messages.received(cause)
    recorder.questions.refusals.refuse_here(
        f"the program reads {name} of an error that it caught, which a captured program does not keep",
        "raise the second error `from` the first one, and read __cause__",
    )
    return getattr(error, name)


def class_read(value: Any) -> Any:
    """Note that the program reads the `__class__` of a value, as `type` of it does, and give it back."""
    recorder = running()
    if recorder is not None and type(value) is TensorProxy:
        class_of_value(recorder, type, (value,), {})
    return value


def class_of_value(
    recorder: Capture, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """`type(x)`; that of a tensor is taken for granted, a subclass would be another."""
    if args and type(args[0]) is TensorProxy and is_uncertain(args[0]):
        return NotImplemented  # it forks, as where `isinstance` asks
    if len(args) == 1 and type(args[0]) is TensorProxy and _is_asked_by_program():
        recorder.ledger.tensor(args[0], "class", with_examples(recorder).where() or "")
    return kind_of(args[0]) if len(args) == 1 else NotImplemented


def text_as(recorder: Capture, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`format(x, spec)`, where that is a text of the run."""
    if kwargs or not make_text(recorder, args[:1]) or not all(type(spec) is str for spec in args[1:]):
        return NotImplemented
    spec = "".join(args[1:])
    return NotImplemented if "{" in spec or "}" in spec else formatted(recorder, f"{{:{spec}}}", args[:1])


def text_of_value(
    recorder: Capture, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """`str(x)` and `repr(x)`, where that is a text of the run."""
    if len(args) != 1 or not make_text(recorder, args):
        return NotImplemented
    return text_of(recorder, args[0], function)
