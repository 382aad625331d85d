"""Fork: let the program go both ways to its end, one run for each answer."""

from __future__ import annotations

import collections
import sys
from typing import TYPE_CHECKING, Any

from graphwright.capture.flow.forked_runs import Fork
from graphwright.capture.ladder.guarded_answer import symbol_behind
from graphwright.capture.ladder.refuse import DataQuestion
from graphwright.capture.state.obstacles import fix_of
from graphwright.capture.state.plan import Restart
from graphwright.source import source_of

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import Capture
    from graphwright.capture.state.rungs import QuestionSubject

_MOST_WAITING = 3


class Forking:
    """The forks of one run of a program."""

    def __init__(self, capture: Capture) -> None:
        self._capture = capture
        self.forks: list[Fork] = []

    def fork(self, subject: QuestionSubject, place: tuple[Any, ...] | None) -> bool:
        """Answer with what the plan says for this fork; the capture is made again for the other answer."""
        capture, questions = self._capture, self._capture.questions
        region, is_data = capture.region, questions.subjects.is_data(subject)
        if any(around.transform for around in region.all()):  # the body of a transform cannot go on after it
            return bool(
                questions.refusals.refuse_data(subject)
                if is_data
                else questions.guards.guard(symbol_behind(capture, subject))
            )
        if region.outer is not None:  # the branch around it forks instead
            while region.outer.outer is not None:
                region = region.outer
            why = capture.plan.reasons.get(place) or "a question inside a branch forks"
            raise questions.restart(capture.plan.change(region.place, "fork", why))
        hint = capture.numbers.hint(subject)
        if self.follows_start():
            return bool(questions.guards.guard(symbol_behind(capture, subject)))
        answer = self._answer(hint, place)
        pred = capture.numbers.predicate(subject)
        after, site, calls = capture.graph._root.prev, capture.site(), capture.calls.copy()
        decider = questions.knowledge.conditions.decider(subject)
        capture.plan.has_rests = True
        self.forks.append(Fork(after, pred, answer, site, place, is_data, hint, calls, decider))
        questions.knowledge.learn(subject, answer)
        return answer

    def _answer(self, hint: bool | None, place: tuple[Any, ...] | None) -> bool:
        """The answer to the next fork, at this place: the plan's, or the example's first."""
        number, plan = len(self.forks), self._capture.plan
        if number < len(plan.answers):
            return plan.answers[number]
        if number >= plan.max_paths:  # a loop may fork for ever
            raise self._capture.questions.restart(self._cut_out(place) or self.too_many_paths())
        return hint is not False

    def _cut_out(self, place: tuple[Any, ...] | None) -> BaseException | None:
        """Have the function that asks again and again at one place become one node, where it can be cut out.

        Not where there is a reason why that place is no branch or loop of the graph, which its author can change.
        """
        capture, plan = self._capture, self._capture.plan
        if capture.typed is None or plan.obstacles is not None or plan.reasons.get(place):
            return None
        asked = sum(fork.is_data and fork.place == place for fork in self.forks)
        if 2 * asked <= len(self.forks):
            return None
        return capture.questions.refusals.outline(sys._getframe(1), "it forks too often")

    def follows_start(self) -> bool:
        """Whether this is a call that starts with None in an attribute and is to go the example's way."""
        return self._capture.plan.guards_starts and any(fork.starts_with_none for fork in self.forks)

    def differ(self, place: tuple[Any, ...] | None, why: str, can_wait: bool) -> BaseException:
        """The sides of a branch cannot be joined: have what comes after it be part of both, or have it fork."""
        plan = self._capture.plan
        if can_wait and place is not None and plan.ways.get(place) is None and self._waiting() < _MOST_WAITING:
            return self._capture.questions.restart(plan.wait(place, why))
        return self._capture.questions.restart(plan.change(place, "fork", why))

    def _waiting(self) -> int:
        """How many branches around are joined at the end of their functions only: each doubles what comes after it."""
        ways = self._capture.plan.ways
        return sum(ways.get(region.place) == "wait" for region in self._capture.region.all())

    def too_many_paths(self) -> BaseException:
        """What to do where the program forks too often."""
        plan = self._capture.plan
        if any(fork.is_start for fork in self.forks) and not plan.guards_starts:
            plan.guards_starts = True
            return Restart("the program forks too often: what starts with None in an attribute goes the example's way")
        for fork in reversed(self.forks):
            if not fork.is_data:
                return plan.change(fork.place, "guard", "the program forks too often")
        for fork in reversed(self.forks):
            if fork.decider is not None:
                return plan.change(fork.decider, "guard", "the program forks too often")
        counts = collections.Counter(fork.place for fork in self.forks)
        return self._refused(max(self.forks, key=lambda fork: counts[fork.place]))  # a loop's test before what follows

    def _refused(self, fork: Fork) -> BaseException:
        """What to do where nothing but this fork could be done without."""
        plan = self._capture.plan
        reason = self._reason(fork)
        question = DataQuestion(
            f"the program forks into more than {plan.max_paths} paths{reason}",
            at=fork.site and str(fork.site),
            fix=fix_of(reason),
        )
        if plan.obstacles is None:
            return question
        plan.obstacles.note("paths", question.error)
        return plan.change(fork.place, "follow", question.error.message)

    def _reason(self, fork: Fork) -> str:
        """Why a branch or loop forks, for an error."""
        why = self._capture.plan.reasons.get(fork.place)
        file = fork.place[0] if isinstance(fork.place, tuple) and fork.place else None
        if not why and isinstance(file, str) and file != "attribute" and not source_of(file).lines:
            why = f"{file} has no source that could be read"
        return f": {why}" if why else ""
