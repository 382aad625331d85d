"""Random numbers of Python's and NumPy's: what draws them is found, for the graph would keep one number for ever.

Whether any were drawn is seen by the states of the generators, after a pass. Where, the next pass tells, which looks at
them after every line of the program; a draw of another thread is not found there. The function that draws is converted,
so that its draws are nodes (drawing.py), or stays one node if it has conditions and nothing to do with tensors; where
neither can be, the program is refused.
"""

from __future__ import annotations

import contextlib
import gc
import random
import sys
import weakref
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any

from graphwright.capture.outside.drawing import GENERATORS
from graphwright.capture.source.origins import CallSite, user_frame

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import TypedCapture

__all__ = ["PythonDraws"]


class PythonDraws:
    """The states of the generators of `random` and `numpy.random`, to see whether a program draws from them."""

    def __init__(self, recorder: TypedCapture) -> None:
        self._recorder = recorder
        self._others = [*recorder.plan.generators.values()]  # the program's own
        for _, shell in () if recorder.shells is None else recorder.shells.all():
            self._others += [value for value in shell.__dict__.values() if issubclass(type(value), GENERATORS)]
        self._state = self._now()
        self._last: tuple[FrameType, int] | None = None  # the line that runs

    def have_happened(self) -> bool:
        """Tell whether numbers were drawn since this was asked last."""
        before, self._state = self._state, self._now()
        return bool(before != self._state)

    def _now(self) -> Any:
        return _state(), [_state_of(generator) for generator in self._others]

    @contextlib.contextmanager
    def located(self) -> Iterator[None]:
        """Look, while the block lasts, for the line that draws. What is one node may draw.

        No garbage is collected meanwhile: what that calls is called in any line, and what is raised there is lost.
        """
        before, collects = sys.gettrace(), gc.isenabled()
        self._recorder.examples.between = self._refuse, self.have_happened
        gc.disable()
        sys.settrace(self._entered)
        try:
            yield
        finally:
            sys.settrace(before)
            if collects:
                gc.enable()
            self._last = None

    def _entered(self, frame: FrameType, event: str, argument: Any) -> Any:
        is_operation = self._recorder.examples.is_running or user_frame(frame) is not frame
        is_library = frame.f_code.co_filename in _QUIET or frame.f_code.co_filename.startswith("<frozen ")
        return None if is_operation or is_library else self._ran

    def _ran(self, frame: FrameType, event: str, argument: Any) -> Any:
        self._refuse(frame)
        self._last = frame, frame.f_lasti
        return self._ran

    def _refuse(self, frame: FrameType | None = None) -> None:
        if self.have_happened() and self._last is not None:
            drew, instruction = self._last
            questions, plan = self._recorder.questions, self._recorder.plan
            if plan.control_flow == "stage":
                codes = questions.staging.convertible(drew) | questions.staging.convertible(frame)
                restart = questions.refusals.helper_that_draws(drew)
                if restart is not None or codes - plan.converted:
                    raise questions.restart(restart or plan.convert(codes))
            questions.refusals.refuse_draw(CallSite(drew.f_code, instruction, self._recorder.scope))


_QUIET = (random.__file__, weakref.__file__)  # what objects do when they go may happen anywhere


def _state() -> Any:
    numpy = sys.modules.get("numpy.random")
    return random.getstate(), None if numpy is None else _plain(numpy.get_state(legacy=False))


def _state_of(generator: Any) -> Any:
    if isinstance(generator, random.Random):
        return generator.getstate()
    return _plain(
        generator.bit_generator.state if hasattr(generator, "bit_generator") else generator.get_state(legacy=False)
    )


def _plain(value: Any) -> Any:
    """A state of NumPy's as what can be compared; without Python code of NumPy's, which would be looked at, too."""
    if isinstance(value, dict):
        return [_plain(item) for item in value.values()]
    return value.tobytes() if hasattr(value, "tobytes") else value
