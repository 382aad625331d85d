"""Random numbers of Python's and NumPy's: a program that draws them is refused, for the graph would keep one for ever.

Whether any were drawn is seen by the states of the generators, after a pass. Where, the next pass tells, which looks at
them after every line of the program; a draw of another thread is not found there.
"""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

from graphwright.capture.origins import CallSite, user_frame

if TYPE_CHECKING:
    from graphwright.capture.recorder import Recorder

__all__ = ["PythonDraws"]


class PythonDraws:
    """The states of the generators of `random` and `numpy.random`, to see whether a program draws from them."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._state = _state()
        self._last: tuple[CodeType, int] | None = None  # the line that runs

    def have_happened(self) -> bool:
        """Tell whether numbers were drawn since this was asked last."""
        before, self._state = self._state, _state()
        return bool(before != self._state)

    @contextlib.contextmanager
    def located(self) -> Iterator[None]:
        """Refuse, while the block lasts, a program that draws, naming its line. What is one node may draw."""
        before = sys.gettrace()
        self._recorder.examples.between = self._refuse, self.have_happened
        sys.settrace(self._entered)
        try:
            yield
        finally:
            sys.settrace(before)

    def _entered(self, frame: FrameType, event: str, argument: Any) -> Any:
        is_operation = self._recorder.examples.is_running or user_frame(frame) is not frame
        return None if is_operation or frame.f_code.co_filename == random.__file__ else self._ran

    def _ran(self, frame: FrameType, event: str, argument: Any) -> Any:
        self._refuse()
        self._last = frame.f_code, frame.f_lasti
        return self._ran

    def _refuse(self) -> None:
        if self.have_happened() and self._last is not None:
            code, instruction = self._last
            self._recorder.questions.refuse_draw(CallSite(code, instruction, self._recorder.scope))


def _state() -> Any:
    numpy = sys.modules.get("numpy.random")
    if numpy is None:
        return random.getstate()
    legacy = numpy.get_state(legacy=False)["state"]
    return random.getstate(), legacy["pos"], legacy["key"].tobytes()
