"""Errors that leave a program which runs on proxies: the user's line, and what to do instead."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from typing import Any

from graphwright.capture.proxies.cycles import error_of_cycle
from graphwright.capture.proxies.recording import trace_error_and
from graphwright.errors import CaptureError, TraceError
from graphwright.source import definition_line, is_ours, is_user_raise, line_of_error, user_frame

_EXAMPLES = "capture it with example inputs: graphwright.trace(model, args)"


def as_trace_error(error: Exception, program: Callable[..., Any]) -> Exception:
    """What to raise for an error that a program has ended with while it ran on proxies.

    A TraceError that is also of the error's own class. Errors that the program's own `raise` and `assert` statements
    raise stay what they are, and so do those of names and of modules that are no submodules.
    """
    if isinstance(error, TraceError | NameError | Warning) or _is_raised_by_program(error):
        return error
    at = line_of_error(error) or definition_line(program) or None
    error = error_of_cycle(error, at) or error
    if isinstance(error, CaptureError):
        return TraceError(error.message, at=error.at, fix=error.fix)
    if isinstance(error, RecursionError):
        message = "the program calls itself, or goes on in a loop, and only a run knows when that ends"
    else:
        what = ": ".join(filter(None, (type(error).__name__, str(error).partition("\n")[0].rstrip(":"))))
        message = f"the program, which runs on proxies of its values here, raises {what}"
    return trace_error_and(type(error))(message, at=at, fix=_EXAMPLES)


def _is_raised_by_program(error: Exception) -> bool:
    """Tell whether a `raise` or `assert` statement of the program itself has raised an error."""
    frames = [step for step in traceback.walk_tb(error.__traceback__) if not is_ours(step[0].f_code.co_filename)]
    if isinstance(error, RecursionError) or not frames:
        return False
    frame = frames[-1][0]
    if frame.f_globals.get("__name__", "").partition(".")[0] in sys.stdlib_module_names:
        return False  # Python's own library refuses a proxy
    tb = error.__traceback__
    while tb is not None and tb.tb_frame is not frame:
        tb = tb.tb_next
    return user_frame(frame) is frame and tb is not None and is_user_raise(frame.f_code, tb.tb_lasti)
