"""What a program tells people while it is captured: printed, logged, warned of.

What it prints is part of the graph. Logs and warnings are not: they happen once in a capture, however often that starts
again, on the way that the example takes, and the report of the capture lists their lines.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Callable
from types import FrameType, FunctionType
from typing import TYPE_CHECKING, Any

import torch

from graphwright.capture.proxies.run_text import RunText
from graphwright.capture.state.interception import FilteredLogs
from graphwright.capture.state.running import running
from graphwright.capture.state.symbols import UNKNOWN, symbol_of
from graphwright.capture.state.tensor_proxy import TensorProxy
from graphwright.capture.state.tracer_warnings import warn_at
from graphwright.source import is_foreign_class, names_in, place_of, user_frame

if TYPE_CHECKING:
    from graphwright.capture.state.plan import Log
    from graphwright.capture.state.protocol import Capture


# Torch's checks, and what each raises.
CHECKS: dict[Any, type[Exception] | None] = {  # without a class: it is the first argument
    torch._check_with: None, torch._check_tensor_all_with: None, torch._check_tensor_all: RuntimeError,
    torch._check: RuntimeError, torch._check_value: ValueError, torch._check_index: IndexError,
    torch._check_type: TypeError, torch._check_not_implemented: NotImplementedError,
}  # fmt: skip


def tells(function: FunctionType) -> bool:
    """Tell whether a function prints, or warns: that is to be known before it is called."""
    names, space = names_in(function.__code__), function.__globals__
    return (
        ("print" in names and "print" not in space)
        or ("warn" in names and space.get("warnings") is warnings)
        or not names.isdisjoint(("stdout", "stderr", "redirect_stdout", "redirect_stderr"))
    )


def warn(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`warnings.warn(...)` of a converted function."""
    recorder = running()
    if recorder is None or function is not warnings.warn:
        return function(*args, **kwargs)
    frame = _teller(sys._getframe(1))
    given = dict(zip(("message", "category", "stacklevel", "source"), args, strict=False)) | kwargs
    given["message"] = _Told.of(given.get("message", ""))
    if frame is None or not _is_first(recorder, frame, "warnings.warn", str(given["message"])):
        return None
    category = type(given["message"]) if isinstance(given["message"], Warning) else given.get("category") or UserWarning
    return warn_at(frame, given["message"], category, given.get("source"))


def tells_people(recorder: Capture, file: Any) -> bool:
    """Tell whether a file is where people read what a program prints, whatever it puts in the place of that."""
    log = recorder.log
    return file in (sys.stdout, sys.stderr) if log is None else file is log.out or file is log.errors


def print_elsewhere(recorder: Capture, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """`print(..., file=file)` of a file that the graph cannot name."""
    frame = user_frame(sys._getframe(1))
    if frame is not None and _is_first(recorder, frame, "print", ""):
        print(*[_Told.of(arg) for arg in args], **kwargs)


def logged_once() -> FilteredLogs:
    """What has each log of a program that this thread captures happen once."""

    def is_wanted(record: logging.LogRecord) -> bool:
        recorder = running()
        if recorder is None or not recorder.is_running or record.name.partition(".")[0] == "torch":
            return True
        if isinstance(record.args, tuple):
            record.args = tuple([_Told.of(arg) for arg in record.args])
        record.msg = _Told.of(record.msg)
        frame = _teller(sys._getframe(1))
        return frame is None or _is_first(recorder, frame, record.levelname.lower(), str(record.msg))

    return FilteredLogs(is_wanted)


def first_told(function: Callable[..., Any]) -> int | None:
    """Which of a function's arguments is the first that only tells people something; None for what does more with all.

    >>> first_told(warnings.warn), first_told(logging.getLogger().info), first_told(torch._assert), first_told(len)
    (0, 0, 1, None)
    """
    owner, name = getattr(function, "__self__", None), getattr(function, "__name__", None)
    if isinstance(owner, logging.Logger | logging.LoggerAdapter):
        return 0
    if name in _LEVELS and is_foreign_class(type(owner)) and all(hasattr(type(owner), level) for level in _LEVELS):
        return 0  # a logger of another library
    if isinstance(name, str) and function is vars(logging).get(name) and hasattr(logging.Logger, name):
        return 0  # `logging.info`, of the root logger
    return next((first for known, first in _TELLERS if known is function), None)


_LEVELS = frozenset({"debug", "info", "warning", "error", "critical"})
_TELLERS: tuple[tuple[Any, int], ...] = (
    (warnings.warn, 0), (warnings.warn_explicit, 0), (torch._assert, 1),
    *((check, 2 if kind is None else 1) for check, kind in CHECKS.items()),
)  # fmt: skip


def _teller(frame: FrameType | None) -> FrameType | None:
    """The frame of the program that logs or warns, rather than of a wrapper around `logging`."""
    frame = user_frame(frame)
    while frame is not None and _is_logging(frame.f_code.co_filename):
        frame = user_frame(frame.f_back)
    return frame


def _is_logging(file: str) -> bool:
    return file == logging.__file__ or os.path.basename(file) == "logging.py"


def _is_first(recorder: Capture, frame: FrameType, what: str, text: str) -> bool:
    """Note that a line tells something, and say whether it is to be told: once, and on the way of the example."""
    log: Log | None = recorder.log
    if log is None or recorder.pending is not None:
        return False
    place = place_of(frame.f_code, frame.f_lasti)
    at = f"{os.path.basename(frame.f_code.co_filename)}:{place.line}: {place.source}"
    log.note_told(what, at)
    if any(region.is_taken is not True for region in recorder.region.all()) or (at, text) in log.told:
        return False
    log.told.add((at, text))
    return True


class _Told:
    """A value of the program in a message: its number for the example, where that is known."""

    def __init__(self, value: str) -> None:
        self._value = value

    @staticmethod
    def of(value: Any) -> Any:
        """What to format in place of a value."""
        if isinstance(value, TensorProxy):
            return _Told("?")
        if type(value) is RunText:
            return "?" if value.hint is UNKNOWN else value.hint
        symbol = symbol_of(value)
        if symbol is None:
            return value
        return symbol.hint if symbol.has_value else _Told("?")

    def __str__(self) -> str:
        return str(self._value)

    __repr__ = __str__

    def __format__(self, spec: str) -> str:
        return str(self)

    def __float__(self) -> float:
        return float("nan")

    def __int__(self) -> int:
        return 0

    __index__ = __int__
