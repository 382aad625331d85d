"""Refuse: say what stands in the way of the capture, with the user's line, where no other answer is left."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Hashable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch

from graphwright.capture.calls.refusals import is_misfit, is_refused_value, is_unknown_key
from graphwright.capture.conversion.conversion import may_ask, original_code
from graphwright.capture.ladder.guarded_answer import comes_from_loop
from graphwright.capture.ladder.outline import outline
from graphwright.capture.ladder.slices import is_of_slice
from graphwright.capture.state.obstacles import Category
from graphwright.capture.state.protocol import with_examples
from graphwright.capture.state.running import Refusal, refusal, refused
from graphwright.errors import CaptureError
from graphwright.ops import draws_alone
from graphwright.source import CallSite
from graphwright.values import leaves

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import Capture
    from graphwright.capture.state.rungs import QuestionSubject


class DataQuestion(BaseException):
    """The program branches on data. A BaseException, so that a model's own `except` does not swallow it."""

    def __init__(self, message: str, at: str | None, fix: str) -> None:
        super().__init__(message)
        self.error = CaptureError(message, at=at, fix=fix)


class Refusals:
    """What one capture cannot do, and the last ways around it."""

    def __init__(self, capture: Capture) -> None:
        self._capture = capture

    def refuse(self, error: CaptureError, category: Category) -> None:
        """Raise an error. Where all obstacles are wanted, note it: the caller then goes on as well as it can."""
        if self._capture.plan.obstacles is None:
            raise refusal(error)
        self._capture.plan.obstacles.note(category, error)

    def refuse_here(self, what: str, fix: str | None, category: Category = "value") -> None:
        """Refuse what the line that runs does."""
        self.refuse(CaptureError(what, at=self._capture.where(), fix=fix), category)

    def refuse_data(self, subject: QuestionSubject, name: str = "", answer: Callable[[], Any] | None = None) -> Any:
        """Refuse a question of data. Where all obstacles are wanted, note it and give what `answer` does."""
        capture, subjects = self._capture, self._capture.questions.subjects
        what = f" ({name.strip('_')})" if name else ""
        asked = "the data of a tensor" if subjects.is_data(subject) else "a size or flag"
        if is_of_slice(capture.region, subject):
            asked = "the data of a slice inside torch.vmap, where the program runs once for all slices"
        elif capture.plan.control_flow == "stage":
            self._cut_out(subject, f"it asks for {asked}{what}", sys._getframe(1))
        question = DataQuestion(
            f"the program asks for {asked}{what}, which is known only when it runs",
            at=capture.where(),
            fix="use torch.where, or keep the value a tensor",
        )
        if capture.plan.obstacles is None:
            capture.pending = question
            raise question
        capture.plan.obstacles.note("data", question.error)
        return capture.questions.guards.of_example(subject) if answer is None else answer()

    def _cut_out(self, subject: QuestionSubject, why: str, frame: FrameType) -> None:
        """Start again with a loop around what asks run plainly, or with the function that asks as one node."""
        ways = [functools.partial(self.unroll_around, why), functools.partial(self.outline, frame, why)]
        if not comes_from_loop(subject):
            ways.reverse()
        restart = next((found for way in ways if (found := way()) is not None), None)
        if restart is not None:
            raise self._capture.questions.restart(restart)

    def unroll_around(self, why: str, item: Hashable = None) -> BaseException | None:
        """Have a loop around what is captured run plainly, under a guard where a size decides.

        With an `item`, only the loop that goes over it, and over what the program knows.
        """
        for region in self._capture.region.all():
            is_wanted = item is None or (region.plain_way == "unroll" and comes_from_loop(item, region))
            if region.is_loop and region.plain_way is not None and is_wanted:
                return self._capture.plan.change(region.place, region.plain_way, why)
        return None

    def outline(self, frame: FrameType | None, why: str) -> BaseException | None:
        """Have the innermost function or module around a frame that can be cut out become one node."""
        return outline(with_examples(self._capture), frame, why)

    # ---- random numbers of Python's and NumPy's

    def helper_that_draws(self, frame: FrameType | None) -> BaseException | None:
        """Why the capture is to start again, if the function that draws is a helper which had better stay one node.

        It has conditions, which may hang on what it draws, and nothing to do with tensors: nothing of torch is missed.
        No file may name a private one: where a flag or size leads to that, the other way is taken for granted.
        """
        if frame is None or self._capture.plan.control_flow != "stage":
            return None
        code = original_code(frame.f_code)
        has_tensors = any(isinstance(leaf, torch.Tensor) for leaf in leaves(list(frame.f_locals.values())))
        if code is None or not may_ask(code) or has_tensors:
            return None
        restart = self._around_draw() if code.co_name.startswith("_") else None
        return restart or self.outline(frame, "it draws random numbers")

    def refuse_draw(self, site: CallSite, moved: torch.Generator | Iterator[Any] | None = None) -> None:
        """Python or NumPy draw a random number: take the other side of a branch on a flag or size, or refuse."""
        restart = self._around_draw()
        if restart is not None:
            raise self._capture.questions.restart(restart)
        what = "draws random numbers of Python's or NumPy's, which the graph would keep for ever"
        fix = "draw with torch, or keep the function that draws as one node: leaf_functions=[...]"
        if isinstance(moved, torch.Generator):
            what = "sets a generator that it holds, where that cannot be recorded"
        elif hasattr(moved, "__next__"):
            what = "takes an item of an iterator that goes on from call to call: the graph would keep it for ever"
            fix = "count in an attribute of the module: self.step += 1"
        error = CaptureError(f"the program {what}", at=site.line(), fix=fix)
        self.refuse(error, "data")

    def cached_draw(self, op: str, target: Any) -> None:
        """Refuse a draw in a function behind a `functools` cache: it draws once, a graph would do so in each call."""
        function = getattr(torch.Tensor, target, None) if op == "call_method" else target
        if op == "call_module" or not draws_alone(function):
            return
        raise refused(
            self._capture,
            "a function behind a functools cache draws random numbers, which it would keep",
            "keep the numbers in a buffer, or keep the function as one node: leaf_functions=[...]",
        )

    def _around_draw(self) -> BaseException | None:
        """Why the capture is to start again where a branch on a flag or size leads to a draw."""
        region = self._capture.region
        while region.outer is not None:
            if not region.is_data:
                why = "one side draws random numbers of Python's or NumPy's"
                return self._capture.plan.change(region.place, "guard", why)
            region = region.outer
        return None

    # ---- paths that fail

    def failed_path(self, error: Exception) -> BaseException:
        """What to do where a path that the example does not take raises: an answer of size is the example's."""
        questions, plan = self._capture.questions, self._capture.plan
        may_be_ours = isinstance(error, TypeError) and not questions.raises.is_raised_by_user(error)
        if may_be_ours or is_refused_value(error) or is_misfit(error) or is_unknown_key(error):
            codes = questions.staging.convertible_at(error)
            if codes:
                return plan.convert(codes)
        forks = questions.forking.forks
        if not forks:
            is_refused = isinstance(error, Refusal | CaptureError)
            return (plan.set_together("the program is refused") if is_refused else None) or error
        for fork in reversed(forks):
            if not fork.is_data:
                return plan.change(fork.place, "guard", f"a path raises {type(error).__name__}")
        other = next((fork for fork in reversed(forks) if fork.hint is (not fork.answer)), None)
        return self.given_up(error, (other or forks[-1]).place, other is not None)

    def given_up(
        self, error: BaseException, place: tuple[Any, ...] | None, is_other_way: bool = False
    ) -> BaseException:
        """What to do where a side of a branch on data cannot be captured.

        A way that the example does not go, and on which the program fails with the example's data, is guarded against.
        Else refuse, or note it and follow the example.
        """
        plan, restart = self._capture.plan, self._capture.questions.restart
        if plan.obstacles is None and is_other_way and not isinstance(error, Refusal | CaptureError):
            return restart(plan.change(place, "guard", f"one side raises {type(error).__name__}"))
        if plan.obstacles is None or plan.ways.get(place) == "follow":
            return error
        raised = error.error.with_traceback(error.__traceback__) if isinstance(error, Refusal) else error
        plan.obstacles.note_failure(raised)
        return restart(plan.change(place, "follow", f"one side raises {type(raised).__name__}"))
