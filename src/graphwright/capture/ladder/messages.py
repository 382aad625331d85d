"""Messages: what is asked in order to tell people something, where the answer decides nothing."""

from __future__ import annotations

import ast
import builtins
import contextlib
import logging
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch

from graphwright.capture.conversion.conversion import is_standard
from graphwright.capture.outside.said import first_told
from graphwright.capture.proxies.object_proxy import ObjectProxy
from graphwright.capture.proxies.run_text import RunText, formatted
from graphwright.capture.python.message_texts import Text
from graphwright.capture.state.interception import original_of
from graphwright.capture.state.running import BOUNDARIES
from graphwright.ir import Argument
from graphwright.source import Role, Standing, role_of, user_frame

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import Capture


class Messages:
    """The messages of one capture."""

    def __init__(self, capture: Capture) -> None:
        self._capture = capture
        self._tells = False

    def is_in_message(self) -> bool:
        """Tell whether the text of a number is asked for by a message, where it decides nothing."""
        frame = user_frame(sys._getframe(1))
        if frame is None:
            return False
        standing = role_of(frame.f_code, frame.f_lasti)
        if standing.role is Role.GIVEN:
            called = _called(frame, standing.called)
            if original_of(called) is original_of(print):  # printed when the program runs
                self._capture.questions.staging.stage(frame)
                return False
            if _is_told(called, standing):
                return True
        if standing.role is Role.RAISED and self._may_be_read(frame):
            return False
        return standing.role in _TELL or self.is_called_for_error(frame)

    @contextlib.contextmanager
    def telling(self) -> Iterator[None]:
        """While it lasts, functions are called for a text in a message: what they make is a text of the run."""
        before, self._tells = self._tells, True
        try:
            yield
        finally:
            self._tells = before

    def _may_be_read(self, frame: FrameType) -> bool:
        """Tell whether a handler of the program, which is run as Python does, may look at what a frame raises."""
        capture = self._capture
        if capture.region.outer is None and capture.questions.raises.is_caught_outside(frame, True):
            capture.questions.staging.stage(frame)
            return True
        return capture.attempts.catches_plainly()

    def is_shown(self, frame: FrameType) -> bool:
        """Tell whether a text that a line makes is shown to people: printed, logged, warned of or raised."""
        standing = role_of(frame.f_code, frame.f_lasti)
        if standing.role is Role.GIVEN:
            called = _called(frame, standing.called)
            return original_of(called) is original_of(print) or _is_told(called, standing)
        return standing.role in _TELL or is_standard(frame.f_code) or self.is_called_for_error(frame)

    def is_called_for_error(self, asking: FrameType | None) -> bool:
        """Tell whether a `raise` statement calls the function that asks: what that asks is the example's."""
        if self._tells or (self._capture.region.outer is None and not self._capture.questions.forking.forks):
            return False  # the program would end there
        if self._capture.attempts.catches_plainly():  # a handler may look at what it was told
            return False
        frame = None if asking is None else asking.f_back
        while frame is not None and frame.f_code not in BOUNDARIES:
            if user_frame(frame) is frame and role_of(frame.f_code, frame.f_lasti).role is Role.RAISED:
                return True
            frame = frame.f_back
        return False

    def received(self, error: BaseException) -> BaseException:
        """An error that a handler of the program gets: its texts are values of the run, for it may look at them."""
        if any(type(arg) is Text or _holds_shown(arg) for arg in error.args):
            error.args = tuple(map(self._of_run, error.args))
        return error

    def _of_run(self, value: Any) -> Any:
        if type(value) in (tuple, list):
            return type(value)(map(self._of_run, value)) if _holds_shown(value) else value
        if type(value) is not Text:
            return value
        capture = self._capture
        if any(type(each) is ObjectProxy for each in value.values):  # of an error
            return RunText(capture, self.message(value))
        is_asked = capture.questions.place() in capture.plan.asked_texts
        return value.asked() if is_asked else formatted(capture, value.template, value.values)

    def message(self, value: Any) -> Argument:
        """Write a message: its numbers are those of a run."""
        capture = self._capture
        if type(value) is Text:
            values = tuple(map(self.message, value.values))
            return capture.make("call_method", "format", (value.template, *values), "message")
        if _holds_shown(value):
            items = value.items() if type(value) is dict else enumerate(value)
            held = {key: self.message(item) for key, item in items}
            return held if type(value) is dict else type(value)(held.values())
        argument = capture.argument(value)
        if type(value) is not torch.Size or not capture.examples.are_there:
            return argument
        return capture.make("call_function", torch.Size, (argument,), "shape")


def _holds_shown(value: Any) -> bool:
    """Tell whether a container holds what is written otherwise where it is shown."""
    if type(value) not in (tuple, list, dict):
        return False
    items = list(value.values()) if type(value) is dict else value
    return any(type(item) in (Text, torch.Size) or _holds_shown(item) for item in items)


_TELL = (Role.MESSAGE, Role.RAISED)
_UNKNOWN = object()


def _is_told(function: Callable[..., Any], standing: Standing) -> bool:
    """Tell whether an argument of a function only tells people something."""
    first = first_told(function)
    if first is None:
        return False
    if standing.argument < 0:
        return first == 0 or standing.keyword in ("message", "msg")
    return standing.argument >= first


def _called(frame: FrameType, tree: ast.expr | None) -> Any:
    """What an expression is that a frame calls, as far as that can be told without running anything of the user's."""
    if isinstance(tree, ast.Name):
        for names in (frame.f_locals, frame.f_globals):
            if tree.id in names:
                return names[tree.id]
        return getattr(builtins, tree.id, _UNKNOWN)
    if isinstance(tree, ast.Attribute):
        owner = _called(frame, tree.value)
        return _UNKNOWN if owner is _UNKNOWN or isinstance(owner, torch.Tensor) else getattr(owner, tree.attr, _UNKNOWN)
    if isinstance(tree, ast.Call) and _called(frame, tree.func) is logging.getLogger:
        return logging.getLogger()
    return _UNKNOWN
