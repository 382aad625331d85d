"""What a capture changes of the thread and the process that it runs in, put back however the capture ends.

Modes and flags of torch are set and reset by code that an interrupt may hit anywhere, between the two as well. So what
was there before is noted first, and put back last.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import threading
from collections.abc import Callable, Sequence
from types import FrameType
from typing import TypeVar

import torch
from torch.utils import _python_dispatch

from graphwright import errors
from graphwright.capture.state.running import running, set_running

Result = TypeVar("Result")

_FAKE = torch._C._TorchDispatchModeKey.FAKE
# torch keeps in these, for the whole process, whether any mode is active.
_MODE_FLAGS = [name for name, value in vars(_python_dispatch).items() if name.startswith("_is_in_") and value is False]
_TORCH = os.path.join(os.path.dirname(os.path.abspath(torch.__file__)), "")
_OURS = os.path.join(os.path.dirname(os.path.abspath(errors.__file__)), "")

# Captures take turns: torch's flags for modes fit one thread at a time. Programs that only run need no turn.
_turn = threading.RLock()


def _new_turn() -> None:
    global _turn
    _turn = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_new_turn)  # the thread whose turn it was is not in the child


class _ThreadState:
    """The modes of torch, the grad mode, the profiler, the garbage collection and the capture, as they are now."""

    def __init__(self) -> None:
        self._functions = torch._C._len_torch_function_stack()
        self._function_state = torch._C._get_torch_function_state()  # type: ignore[attr-defined]
        self._dispatch = torch._C._len_torch_dispatch_stack()
        self._fake = torch._C._get_dispatch_mode(_FAKE)
        self._grad = torch.is_grad_enabled()
        self._profile = sys.getprofile()
        self._collects = gc.isenabled()
        self._recorder = running()
        self._flags = {name: getattr(_python_dispatch, name) for name in _MODE_FLAGS}

    def restore(self) -> None:
        """Put everything back; a second time does no harm."""
        set_running(self._recorder)
        torch._C._set_torch_function_state(self._function_state)  # type: ignore[attr-defined]
        while torch._C._len_torch_function_stack() > self._functions:
            torch._C._pop_torch_function_stack()
        if torch._C._get_dispatch_mode(_FAKE) is not self._fake:
            torch._C._unset_dispatch_mode(_FAKE)
            if self._fake is not None:
                torch._C._set_dispatch_mode(self._fake)
        while torch._C._len_torch_dispatch_stack() > self._dispatch:
            torch._C._pop_torch_dispatch_stack(None)
        torch._C._set_grad_enabled(self._grad)
        if sys.getprofile() is not self._profile:
            sys.setprofile(self._profile)
        (gc.enable if self._collects else gc.disable)()
        vars(_python_dispatch).update(self._flags)


def undoing(run: Callable[[], Result], *undo: Callable[[], None]) -> Result:
    """Run a piece of a capture, then put the state of the thread back and call each `undo`.

    That happens twice: an interrupt may cut the first time short. So each `undo` must bear being called again, and
    being called without what it undoes.
    """
    with _turn:
        return ending(run, (_ThreadState().restore, *undo))


def ending(run: Callable[[], Result], undo: Sequence[Callable[[], None]]) -> Result:
    """Run a piece of a capture, then call each `undo`, twice, however it ends. No turn is taken for that."""
    try:
        try:
            return run()
        except Exception:
            raise
        except BaseException as error:
            _let_go(error)
            raise
        finally:
            for each in undo:
                each()
    finally:
        for each in undo:
            each()


def _let_go(error: BaseException) -> None:
    """End what the frames of an interrupt hold open in torch, rather than when somebody drops its traceback."""
    frames: list[FrameType] = []
    traceback = error.__traceback__
    while traceback is not None:
        frames.append(traceback.tb_frame)
        traceback = traceback.tb_next
    for frame in reversed(frames):
        if frame.f_code.co_filename.startswith(_TORCH):
            with contextlib.suppress(RuntimeError):  # it is still running
                frame.clear()
