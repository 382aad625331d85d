"""The ladder: what happens when Python asks for a value that only a run has.

Convert who asks and start again, so that the question becomes a branch; else fork, so that the program has an end for
each answer; else, for sizes and flags, take the example's answer under a guard; else refuse, naming the user's line.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch

from graphwright import errors
from graphwright.capture.flow.branches import branch
from graphwright.capture.ladder.fork import Forking
from graphwright.capture.ladder.guarded_answer import Guards, symbol_behind
from graphwright.capture.ladder.know import Knowledge, place_at
from graphwright.capture.ladder.messages import Messages
from graphwright.capture.ladder.optionals import Optionals
from graphwright.capture.ladder.raising import Raises
from graphwright.capture.ladder.refuse import Refusals
from graphwright.capture.ladder.slices import is_of_slice
from graphwright.capture.ladder.stage import Staging
from graphwright.capture.state.plan import Restart
from graphwright.capture.state.running import again, leaving_by
from graphwright.capture.state.symbols import Symbol
from graphwright.capture.state.tensor_proxy import TensorProxy
from graphwright.source import user_frame

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import Capture
    from graphwright.capture.state.rungs import HasTruth, QuestionSubject, Subjects

_OURS = os.path.join(os.path.dirname(os.path.abspath(errors.__file__)), "")
# What asks there is the program's condition.
_CHECKS = tuple(
    check.__code__ for check in (torch._assert, torch._check_with, torch._check, torch._check_value, torch._check_index)
)


class Questions:
    """The questions of one capture and how each is answered."""

    def __init__(self, capture: Capture, subjects: Subjects) -> None:
        self._capture = capture
        self.subjects = subjects
        self.knowledge = Knowledge(capture, subjects)
        self.staging = Staging(capture)
        self.optionals = Optionals(capture)
        self.forking = Forking(capture)
        self.guards = Guards(capture)
        self.refusals = Refusals(capture)
        self.raises = Raises(capture)
        self.messages = Messages(capture)

    def answer(self, symbol: Symbol) -> Any:
        """Answer what Python asks of a number: convert who asks, or fork, or take the example's value under a guard."""
        if symbol.function == "constant":
            return symbol.hint
        return self.decide(symbol, symbol.kind)

    def decide(self, subject: QuestionSubject, kind: type = bool) -> Any:
        """Answer what Python asks of a value, which the code that asks takes as a plain one.

        None where neither the capture nor the example can tell, and the code that asks is not the program's.
        """
        capture = self._capture
        if capture.pending is not None:
            raise again(capture.pending)
        told = self.knowledge.told(subject, self.subjects.key_of(subject))
        if told is not None and (kind is bool or type(told) is not bool):  # that a size is true is not what it is
            return told
        frame = sys._getframe(1)
        asking = user_frame(frame)
        is_asked_by_user = _asks_itself(asking, frame)
        if capture.typed is None:
            return self._convert_or_fork(subject, asking) if is_asked_by_user else None
        if self.messages.is_called_for_error(asking):
            return symbol_behind(capture, subject).sample
        plan, place, is_data = capture.plan, place_at(capture, asking), self.subjects.is_data(subject)
        way = plan.ways.get(place)
        if way == "follow":
            return self.guards.of_example(subject)
        if plan.control_flow == "error" or is_of_slice(capture.region, subject):
            return self.refusals.refuse_data(subject)
        if plan.control_flow == "follow" and is_data:
            return self.guards.follow(subject)
        if is_asked_by_user and way is None:
            self.staging.stage(asking)
        if kind is bool and way != "guard" and plan.control_flow == "stage" and (is_asked_by_user or is_data):
            return self.forking.fork(subject, place)
        if is_data and way != "guard":
            return self.refusals.refuse_data(subject)
        return self.guards.guard(symbol_behind(capture, subject))

    def _convert_or_fork(self, subject: QuestionSubject, asking: FrameType | None) -> bool:
        """Answer without example values: nothing but the graph and its ends can tell."""
        self.staging.stage(asking)
        return self.forking.fork(subject, place_at(self._capture, asking))

    def branch(
        self,
        test: HasTruth,
        then: Callable[[], Any],
        other: Callable[[], Any],
        names: tuple[str, ...] | None = None,
        alive: tuple[str, ...] | None = None,
        unshared: tuple[str, ...] = (),
        private: tuple[str, ...] = (),
    ) -> Any:
        """Run the side that is known to be taken, or capture both; nothing reads those variables `private` after it."""
        capture = self._capture
        if capture.pending is not None:
            raise again(capture.pending)
        subject = self.subjects.subject_of(test)
        if capture.plan.control_flow != "stage":
            kind = bool if isinstance(subject, TensorProxy) else subject.kind
            return then() if self.decide(subject, kind) else other()
        told = self.knowledge.told(subject, self.subjects.key_of(subject))
        if told is not None:
            return then() if told else other()
        place = place_at(capture, user_frame(sys._getframe(1)))
        way = capture.plan.ways.get(place)
        if way is None and place is not None and capture.plan.ways:
            way = capture.plan.ways.get((*place, capture.numbers.hint(subject)))
        if way != "follow" and is_of_slice(capture.region, subject):
            return then() if self.refusals.refuse_data(subject) else other()
        if way == "guard":
            return then() if self.guards.guard(symbol_behind(capture, subject)) else other()
        if way == "follow":
            return then() if self.guards.of_example(subject) else other()
        if way == "fork":
            return then() if self.forking.fork(subject, place) else other()
        can_wait = names is not None and alive is None  # for the rest of the function, which it does not hold yet
        names = names or ()
        alive = tuple([name for name in names if name not in private]) if alive is None else alive
        return branch(capture, subject, then, other, names, alive, place, unshared, can_wait)

    def place(self) -> tuple[Any, ...] | None:
        """What tells a question that is asked now from others."""
        return place_at(self._capture, user_frame(sys._getframe(1)))

    def restart(self, why: BaseException) -> BaseException:
        """Have the capture start again; whatever the program does until then is ignored."""
        if isinstance(why, Restart):
            why.at = why.at or self._capture.where() or ""
        goes_on, self._capture.pending = self._capture.pending is not None, why
        return again(why) if goes_on else leaving_by(why)


def _asks_itself(asking: FrameType | None, frame: FrameType | None) -> bool:
    """Tell whether a frame of the user's asks itself, by code of ours alone or by a check of torch's that it calls.

    `frame` is the innermost one that has to do with it.
    """
    while frame is not asking:
        assert frame is not None
        if not frame.f_code.co_filename.startswith(_OURS):
            return frame.f_code in _CHECKS or (frame.f_back is not None and frame.f_back.f_code in _CHECKS)
        frame = frame.f_back
    return asking is not None
