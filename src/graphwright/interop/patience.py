"""A limit for what sympy computes: what torch.export asks it about sizes that stay open may take for ever."""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from typing import Any

from graphwright.ir import Graph


class TooComplicated(Exception):
    """Sizes are such that sympy takes too long for them."""


class _Stop(BaseException):
    """What sympy is stopped with. No Exception, which it would take for one of its own."""


class Patience:
    """Lets sympy compute for so many seconds, in all `with` blocks of this object together: in the thread of each.

    Seconds are of computing where a thread has a clock of its own, or else of waiting. After that the block ends with
    TooLong, raised inside of sympy alone, which leaves nothing half done that others see; and so do all later blocks.

    `seconds` is what it began with.

    >>> import sympy
    >>> with Patience(0.0):
    ...     while True:
    ...         found = sympy.simplify(sympy.sin(sympy.Symbol("x")) ** 2)
    Traceback (most recent call last):
    graphwright.interop.patience.TooComplicated: sympy took more than 0 s for open sizes
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = self._left = seconds
        self._lock = threading.Lock()
        self._done: threading.Event | None = None

    def __enter__(self) -> Patience:
        if self._left < 0:
            raise self._refusal()
        self._done, thread = threading.Event(), threading.get_ident()
        threading.Thread(target=self._watch, args=(thread, self._done, _now_of(thread)), daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        with self._lock:  # the watcher is between two looks: it raises no more
            assert self._done is not None
            self._done.set()
        if isinstance(error, _Stop):
            raise self._refusal() from error

    def _refusal(self) -> TooComplicated:
        return TooComplicated(f"sympy took more than {self._seconds:.0f} s for open sizes")

    def _watch(self, thread: int, done: threading.Event, since: float) -> None:
        wait = _SECONDS_BETWEEN
        while not done.wait(wait):
            with self._lock:
                if done.is_set():
                    return
                now = _now_of(thread)
                self._left, since = self._left - (now - since), now
                if self._left >= 0:
                    continue
                frame = sys._current_frames().get(thread)
                if frame is not None and str(frame.f_globals.get("__name__")).startswith("sympy."):
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(_Stop))
                    wait = _SECONDS_TO_END  # and then again: what Python calls by itself, as `__del__`, swallows it


_SECONDS_BETWEEN, _SECONDS_TO_END = 0.05, 1.0
_SECONDS, _SECONDS_A_NODE = 20.0, 0.03


def patience_for(graph: Graph) -> Patience:
    """So long as sympy may take for the sizes of a program where nobody has asked for them."""
    return Patience(_SECONDS + _SECONDS_A_NODE * sum(1 for _ in graph.all_nodes()))


def _now_of(thread: int) -> float:
    """What the clock of a thread says."""
    clock = getattr(time, "pthread_getcpuclockid", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock(thread))
