"""What a program raises: let it be raised where a handler may catch it, else write it into the graph."""

from __future__ import annotations

import sys
import traceback
from types import FrameType
from typing import TYPE_CHECKING

from graphwright.capture.conversion.conversion import is_converted
from graphwright.capture.effects.unwritten import has_unwritten
from graphwright.capture.flow.caught_errors import is_error, with_cause, write_error
from graphwright.capture.state.running import RUN, Refusal
from graphwright.capture.state.side_ended import Raised
from graphwright.source import is_handled, is_ours, is_user_raise, runs_as_it_is_left, user_frame

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import Capture
    from graphwright.capture.state.rungs import Raisable


class Raises:
    """The exceptions that the program of one capture raises."""

    def __init__(self, capture: Capture) -> None:
        self._capture = capture

    def raising(self, error: Raisable, cause: Raisable | None = None) -> BaseException:
        """Let an exception be raised, or, on a side of a branch, write it into the graph and end the side."""
        region, attempts = self._capture.region, self._capture.attempts
        is_plain = region.outer is None or bool(region.transform) or self._is_caught_on_side(sys._getframe(1))
        if is_plain or attempts.plain_catches(error, region):
            raised: BaseException = with_cause(error, cause)
            return raised
        self.end_side(error, attempts.raised(error), cause)
        raise Raised

    def end_side(self, error: Raisable, is_taken: bool, cause: Raisable | None = None) -> None:
        """Write what a side of a branch raises; with `is_taken`, a region is there to catch it."""
        region, questions = self._capture.region, self._capture.questions
        is_seen = self._capture.attempts.forks(error) or self.is_caught_outside(region.frame, True)
        if not is_taken and (is_seen or self._is_changed_by_leaving()):
            raise questions.restart(self._capture.plan.change(region.place, "fork", "an exception may be seen outside"))
        self.write_raise(error, cause)

    def _is_caught_on_side(self, frame: FrameType | None) -> bool:
        """Tell whether the program itself catches what a frame raises, on the side that is being captured."""
        region, attempts = self._capture.region, self._capture.attempts
        while frame is not None and frame is not region.frame:
            if user_frame(frame) is frame and is_handled(frame) and not attempts.catches_here(frame):
                return True
            frame = frame.f_back
        return False

    def is_caught_outside(self, frame: FrameType | None = None, is_known: bool = False) -> bool:
        """Tell whether a handler of the program may catch what a frame, by default the running one, raises.

        With `is_known`, those count which are not seen to be entered.
        """
        frame = frame or sys._getframe(1)
        while frame is not None and frame.f_code is not RUN:
            is_entered = is_known and self._capture.attempts.catches_here(frame)
            if user_frame(frame) is frame and is_handled(frame) and not is_entered:
                return True
            frame = frame.f_back
        return False

    def is_left_by_it(self) -> bool:
        """Tell whether what the running frame raises leaves a `with` of the program, which may end it."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code is not RUN:
            if user_frame(frame) is frame and runs_as_it_is_left(frame):
                return True
            frame = frame.f_back
        return False

    def _is_changed_by_leaving(self) -> bool:
        """Tell whether a `finally`, or the end of a `with`, may change back what the program has changed so far."""
        return has_unwritten(self._capture) and self.is_left_by_it()

    def write_raise(self, error: Raisable, cause: Raisable | None = None, is_caught: bool = False) -> None:
        """Write into the graph that an exception is raised, which a handler of the program may get."""
        capture = self._capture
        if capture.keeping is not None and not capture.attempts.are_open:
            capture.keeping.write_at_end(is_caught)
        write_error(capture, error, cause)

    def is_raised_by_user(self, error: Exception) -> bool:
        """Tell whether the program itself raised an exception, on a side of a branch or a path that it forked into.

        That is: by a `raise` or `assert`, again where it was caught, or by reading a variable that the other side of a
        branch assigns.
        """
        if is_error(self._capture.attempts.original(error)):
            return True
        frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__) if not is_ours(frame.f_code.co_filename)]
        if not frames or user_frame(frames[-1]) is not frames[-1]:
            return False
        return is_user_raise(frames[-1].f_code, frames[-1].f_lasti) or self.reads_unassigned(error)

    def is_certain(self, error: Exception | Refusal) -> bool:
        """Tell whether the program itself raised it, in a function that is converted: whatever the values, so.

        Others may raise it because of what stands for a value, as functions of Python's library do.
        """
        if isinstance(error, Refusal) or self._capture.pending is not None or not self.is_raised_by_user(error):
            return False
        codes = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
        codes = [code for code in codes if not is_ours(code.co_filename)]
        return not codes or is_converted(codes[-1])

    def reads_unassigned(self, error: BaseException) -> bool:
        """Tell whether the program read a variable that this way through it does not assign, but another one does."""
        names = self._capture.plan.one_sided
        return isinstance(error, NameError) and any(repr(name) in str(error) for name in names)
