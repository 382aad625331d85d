"""The capture that runs in this thread, and how it stops the program that it runs.

What a capture has to tell its caller is raised through the program's own frames, whose handlers must not take it for an
error of theirs. So it travels as a BaseException, and the recorder remembers it: a bare `except:` only puts it off
until the next operation, which raises it `again` and has the program be left: one that tries until nothing fails would
be stopped for ever. What a handler or a `finally` does on the way out is done whole.
"""

from __future__ import annotations

import contextlib
import opcode
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from contextvars import Context, ContextVar, copy_context
from types import FrameType
from typing import TYPE_CHECKING, Any

from torch import nn

from graphwright.errors import CaptureError
from graphwright.source import is_internal

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import Capture

_thread = threading.local()
_outside: ContextVar[list[Context]] = ContextVar("_outside")  # what the program starts with
_UNSET = object()
_CATCHES = opcode.opmap.get("PUSH_EXC_INFO")  # where a handler begins
_MOST_TIMES = 100  # so often what handlers call may go on; then they are left, too


def run(function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Call the program: the frame of this is where a capture begins. What it sets in its context ends with it."""
    context = copy_context()
    outside: list[Context] = []
    context.run(_outside.set, outside)
    outside.append(context.copy())
    recorder = running()
    try:
        with leaving():
            result = context.run(function, *args, **kwargs)
    except BaseException as error:
        if recorder is not None and recorder.pending is not None and type(recorder.pending) is not Refusal:
            _close_generators(error)  # the frames of an error are the user's to look at
        raise
    finally:
        let_go()
    if recorder is not None and recorder.typed is not None:
        for variable in _differing(context, outside[0]):
            what = f"the program sets the ContextVar {variable.name!r}, and leaves it so: the captured program does not"
            recorder.typed.ledger.say(what, "")
    return result


def let_go() -> None:
    """Have the capture that runs in this thread keep no frame of the program alive: what only one holds ends there."""
    recorder = running()
    if recorder is not None and recorder.typed is not None:
        recorder.typed.callers.let_go()


def _close_generators(error: BaseException | None) -> None:
    """Have the generators in the frames that are left closed while the capture still says that it ends."""
    while error is not None:
        for frame, _ in traceback.walk_tb(error.__traceback__):
            with contextlib.suppress(RuntimeError):  # it runs
                frame.clear()
                _ = frame.f_locals  # up to Python 3.12 a dict, which is emptied, too, when it is asked for
        error = error.__context__


def set_in_context() -> list[Any]:
    """The values of the ContextVars that the program which is captured has set."""
    now, outside = copy_context(), _outside.get(None)
    return [each.get(None) for each in _differing(now, outside[0])] if outside and not _is_same(now, outside[0]) else []


def value_outside(variable: ContextVar[Any], missing: Any) -> Any:
    """The value of a ContextVar that the program finds when it starts."""
    outside = _outside.get(None)
    return outside[0].copy().run(variable.get, missing) if outside else variable.get(missing)


def is_in_context(context: Context) -> bool:
    """Tell whether all ContextVars have the values that they have in a context."""
    now = copy_context()
    return _is_same(now, context) or not _differing(now, context)


def _is_same(one: Context, other: Context) -> bool:
    return [*map(id, one.values())] == [*map(id, other.values())]


def _differing(one: Context, other: Context) -> list[ContextVar[Any]]:
    variables = [*one, *[variable for variable in other if variable not in one]]
    return [each for each in variables if one.get(each, _UNSET) is not other.get(each, _UNSET)]


RUN = run.__code__
BOUNDARIES = (nn.Module._call_impl.__code__, nn.Module._wrapped_call_impl.__code__, RUN)  # calls of modules, and RUN


class capturing:
    """While it is entered, converted functions of this thread record with a recorder; with None, nothing is heard."""

    def __init__(self, recorder: Capture | None) -> None:
        self._recorder = recorder

    def __enter__(self) -> None:
        self._before = running()
        set_running(self._recorder)

    def __exit__(self, *error: object) -> None:
        set_running(self._before)


def running() -> Capture | None:
    """The recorder of the capture that runs in this thread, of either kind."""
    return getattr(_thread, "recorder", None)


def set_running(recorder: Capture | None) -> None:
    """Say which capture runs in this thread."""
    _thread.recorder = recorder


class Refusal(BaseException):
    """Carries an error out of the program that is captured."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def refusal(error: Exception) -> BaseException:
    """What to raise for an error of the capture: while a program runs, what no handler of its own catches."""
    return error if running() is None else stopping(Refusal(error))


def refused(recorder: Capture, what: str, fix: str | None = None) -> BaseException:
    """What to raise where the line that runs does what cannot be captured."""
    return refusal(CaptureError(what, at=recorder.where(), fix=fix))


def stopping(why: BaseException) -> BaseException:
    """What to raise so that the capture of this thread ends: this, or what it is ending with already."""
    recorder = running()
    if recorder is None:
        return why
    if recorder.pending is not None:
        return again(recorder.pending)
    recorder.pending = why
    return leaving_by(why)


def again(pending: BaseException) -> BaseException:
    """What to raise where the program goes on although this has stopped it: the same, and in its next line, too."""
    current: leaving | None = getattr(_thread, "leaving", None)
    if current is not None:
        current.go(pending, sys._getframe(1))
    return leaving_by(pending)


def leaving_by(why: BaseException) -> BaseException:
    """What to raise for what a capture is ending with: in a generator that is being closed, what closes it.

    Python prints whatever else comes out of one that nobody holds any more.
    """
    return GeneratorExit() if type(sys.exc_info()[1]) is GeneratorExit else why


class leaving:
    """While it is entered, a program runs that may have to be left; then the thread is traced as before.

    A trace function raises what stops the capture once more, in the next line of the program that runs outside of the
    handler that has swallowed it. Python does without a trace function once it has raised; a profile function sets it
    again as the function that was left ends.
    """

    def __init__(self) -> None:
        self._pending: BaseException | None = None
        self._before: tuple[Any, Any] = None, None
        self._times = 0

    def __enter__(self) -> None:
        self._outer = getattr(_thread, "leaving", None)
        _thread.leaving = self

    def __exit__(self, *error: object) -> None:
        _thread.leaving = self._outer
        trace, profile = self._before
        if self._pending is not None and sys.gettrace() in (None, _unheard):
            sys.settrace(trace)
        if self._pending is not None and sys.getprofile() is _returned:
            sys.setprofile(profile)
        self._pending = None

    def go(self, pending: BaseException, frame: FrameType | None) -> None:
        """Have each function of the program that runs be left at its next line."""
        if self._pending is None:
            self._before = sys.gettrace(), sys.getprofile()
        self._pending, self._times = pending, self._times + 1
        while frame is not None and frame.f_code is not RUN:
            if not is_internal(frame.f_code.co_filename):
                frame.f_trace = self._line
            frame = frame.f_back
        sys.settrace(_unheard)
        sys.setprofile(_returned)

    def _line(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "line" and self._pending is not None and not self._is_handled(frame):
            raise self._pending
        return self._line

    def _is_handled(self, frame: FrameType) -> bool:
        """Tell whether this runs in a handler of what stops the capture, or in one of what failed there.

        Where a handler begins, it does not have its error yet, and would never be done with what is raised there.
        """
        if self._times >= _MOST_TIMES:
            return False
        error = sys.exc_info()[1]
        while error is not None and error is not self._pending:
            error = error.__context__
        return error is not None or frame.f_code.co_code[frame.f_lasti] == _CATCHES


def _unheard(frame: FrameType, event: str, argument: object) -> None:
    """Functions that are called meanwhile are not traced."""


def _returned(frame: FrameType, event: str, argument: object) -> None:
    if event == "return" and sys.gettrace() is None:
        sys.settrace(_unheard)
