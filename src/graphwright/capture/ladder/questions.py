"""The ladder: what happens when Python asks for a value that only a run has.

Convert who asks and start again, so that the question becomes a branch; else fork, so that the program has an end for
each answer; else, for sizes and flags, take the example's answer under a guard; else refuse, naming the user's line.
"""

from __future__ import annotations

import collections
import functools
import operator
import re
import sys
import traceback
from collections.abc import Callable, Iterable
from types import CodeType, FrameType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any

import torch
import torch.overrides
from torch import nn

from graphwright.capture.calls.refusals import is_misfit, is_refused_number
from graphwright.capture.calls.whole_calls import packs
from graphwright.capture.conversion.conversion import (
    NESTED,
    can_convert,
    is_converted,
    may_ask,
    may_look,
    original_code,
)
from graphwright.capture.flow.branches import branch
from graphwright.capture.flow.caught_errors import with_cause, write_error
from graphwright.capture.flow.forks import Fork
from graphwright.capture.ladder.conditions import Conditions
from graphwright.capture.ladder.outlining import outline
from graphwright.capture.ladder.slices import is_of_slice
from graphwright.capture.outside.outside_modules import is_outside_call
from graphwright.capture.outside.said import calls_logger, tells
from graphwright.capture.proxies.spellings import is_torch
from graphwright.capture.proxies.uncertain import (
    ITERATORS,
    SEVERAL,
    fork_for,
    found_by,
    only_moves,
    stores,
    uncertain_in,
)
from graphwright.capture.python.staging import Text, converted_function, initializer
from graphwright.capture.source.origins import CallSite, is_handled, is_internal, is_ours, place_of, user_frame
from graphwright.capture.source.sources import source_of
from graphwright.capture.state.examples import NeedsRealValues
from graphwright.capture.state.obstacles import Category, fix_of
from graphwright.capture.state.plan import Restart
from graphwright.capture.state.protocol import with_examples
from graphwright.capture.state.running import BOUNDARIES, RUN, Refusal, refusal, stopping
from graphwright.capture.state.side_ended import Raised
from graphwright.capture.state.symbols import Symbol, symbol_of
from graphwright.capture.state.tensor_proxy import TensorProxy, is_uncertain
from graphwright.capture.state.tracer_warnings import warn_tracer
from graphwright.errors import CaptureError
from graphwright.ir import Argument
from graphwright.runtime import expect
from graphwright.values import leaves

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import Capture

__all__ = ["DataQuestion", "Questions"]

# After so many passes, functions that may ask are converted when they are called, not when they have asked.
_PATIENT = 1
_MOST_WAITING = 3
_REPORTS = ("assert ", "raise ", "torch._assert", "torch._check", "warnings.warn", "logging.")
_NUMBERS = re.compile(r"\d+")
# What asks there is the program's condition.
_CHECKS = tuple(
    check.__code__ for check in (torch._assert, torch._check_with, torch._check, torch._check_value, torch._check_index)
)


class DataQuestion(BaseException):
    """The program branches on data. A BaseException, so that a model's own `except` does not swallow it."""

    def __init__(self, message: str, at: str | None, fix: str) -> None:
        super().__init__(message)
        self.error = CaptureError(message, at=at, fix=fix)


class Questions:
    """The questions of one capture and how each is answered."""

    def __init__(self, recorder: Capture) -> None:
        self._recorder = recorder
        self.known: dict[Any, bool] = {}  # what holds on the side of the branch that is being captured
        self.forks: list[Fork] = []
        self.conditions = Conditions(self.key_of)
        self.has_optionals = False  # whether there is a tensor that may be None
        self._in_iterator: TensorProxy | None = None  # one that an iterator may hold
        self._answers: set[tuple[Any, ...]] = set()

    def answer(self, symbol: Symbol) -> Any:
        """Answer what Python asks of a number: convert who asks, or fork, or take the example's value under a guard."""
        if symbol.function == "constant":
            return symbol.hint
        return self.decide(symbol, symbol.kind)

    def decide(self, subject: Any, kind: type = bool) -> Any:
        if self._recorder.pending is not None:
            raise self._recorder.pending
        key, told = self.key_of(subject), self.told(subject)
        if told is not None:
            return told
        if self.is_called_for_error():
            return self._symbol(subject).sample
        place = self.place()
        way = self._recorder.plan.ways.get(place)
        if way == "follow":
            return self.of_example(subject)
        if is_of_slice(self._recorder.region, subject):
            return self.refuse_data(subject)
        is_asked_by_user = self.is_asked_by_user()
        control_flow = self._recorder.plan.control_flow
        if control_flow == "error":
            return self.refuse_data(subject)
        if control_flow == "follow" and self.is_data(subject):
            return self._follow(subject)
        stages = control_flow == "stage"
        if is_asked_by_user and way is None:
            self.stage(user_frame(sys._getframe(1)))
        if kind is bool and way != "guard" and stages and (is_asked_by_user or self.is_data(subject)):
            return self._fork(subject, key, place)
        if self.is_data(subject) and way != "guard":
            return self.refuse_data(subject)
        return self.guard(self._symbol(subject))

    def is_asked_by_user(self) -> bool:
        """Tell whether the code that asks is the program's own, or a check of torch's that it calls."""
        asking = _outer_frame(sys._getframe(1))
        if asking is None or user_frame(asking) is asking:
            return asking is not None
        return asking.f_code in _CHECKS or (asking.f_back is not None and asking.f_back.f_code in _CHECKS)

    def stage(self, frame: FrameType | None) -> None:
        """Start again with the function of a frame converted, where that can be and is not done."""
        codes = self.convertible(frame) if self._recorder.plan.control_flow == "stage" else None
        if codes:
            raise self.restart(self._recorder.plan.convert(codes))

    def guard_sizes(self, values: Iterable[Any]) -> None:
        """Take what these values are, short of their data, from the example: the program asked by a `try`."""
        for value in values:
            symbol = symbol_of(value)
            symbols = [] if symbol is None else [symbol]
            if isinstance(value, TensorProxy):
                capture = with_examples(self._recorder)
                capture.kinds_asked = True
                symbols = [capture.numbers.size_symbol(value, dim) for dim in range(value.example.dim())]
            for symbol in symbols:
                if symbol.has_value and not symbol.is_data and symbol.function != "constant":
                    self.guard(symbol)

    def of_example(self, subject: Any) -> Any:
        """The answer of the example, None where that cannot tell."""
        return subject.hint if isinstance(subject, Symbol) else self._recorder.numbers.hint(subject)

    def _follow(self, subject: Any) -> Any:
        """Answer a question of data with the example's data, and warn that other data may lead elsewhere."""
        answer = self.of_example(subject)
        if answer is None:
            raise stopping(NeedsRealValues("the path of the example is followed"))
        warn_tracer(
            f"at {self._recorder.where()}: the program asks for the data of a tensor, and only the way that the "
            f"example takes ({answer!r}) is captured; with other data the captured program may be wrong",
            self._recorder.log,
        )
        return answer

    def guard(self, symbol: Symbol, where: str = "") -> Any:
        if symbol.key not in self._answers:
            if self._recorder.region is self._recorder.root:
                self._answers.add(symbol.key)
            node = with_examples(self._recorder).numbers.node_of_symbol(symbol)
            self._recorder.node(
                "call_function", expect, (node, symbol.hint, where or self._recorder.where() or ""), {}, name="guard"
            )
        if symbol.kind is bool:
            self.known.update(self.conditions.facts(symbol, bool(symbol.hint)))
        return symbol.hint

    def _fork(self, subject: Any, key: Any, place: Any) -> bool:
        """Answer with what the plan says for this fork; the capture is made again for the other answer."""
        region = self._recorder.region
        if any(around.transform for around in region.all()):  # the body of a transform cannot go on after it
            return bool(self.refuse_data(subject) if self.is_data(subject) else self.guard(subject))
        if region.outer is not None:  # the branch around it forks instead
            while region.outer.outer is not None:
                region = region.outer
            raise self._fork_at(region.place, "a question inside a branch forks")
        number, hint = len(self.forks), self._recorder.numbers.hint(subject)
        if self.follows_start():
            return bool(self.guard(self._symbol(subject)))
        answers = self._recorder.plan.answers
        if number < len(answers):
            answer = answers[number]
        else:
            if number >= self._recorder.plan.max_paths:  # a loop may fork for ever
                raise self.restart(self.too_many_paths())
            answer = hint is not False
        pred = self._recorder.numbers.predicate(subject)
        after, site, calls = self._recorder.graph._root.prev, self._recorder.site(), self._recorder.calls.copy()
        decider = self.conditions.decider(subject)
        self.forks.append(Fork(after, pred, answer, site, place, self.is_data(subject), hint, calls, decider))
        self.known.update(self.conditions.facts(subject, answer))
        self._recorder.keep.append(subject)  # known by its id
        return answer

    def follows_start(self) -> bool:
        """Whether this is a call that starts with None in an attribute and is to go the example's way."""
        return self._recorder.plan.guards_starts and any(fork.starts_with_none for fork in self.forks)

    def told(self, subject: Any) -> bool | None:
        """The truth of a condition as far as that is known where the capture is."""
        known = self.known.get(self.key_of(subject))
        return _negated(self.known.get(self.opposite(subject))) if known is None else known

    def subject_of(self, test: Any) -> Any:
        """What decides a branch on a value: the symbol behind a number, else the value itself."""
        symbol = symbol_of(test)
        return test if symbol is None else symbol

    def _symbol(self, subject: Any) -> Symbol:
        """The number or truth that a question is about."""
        symbol = subject if isinstance(subject, Symbol) else symbol_of(self._recorder.numbers.truth(subject))
        assert symbol is not None
        return symbol

    def key_of(self, subject: Any) -> Any:
        """What tells a value from others."""
        symbol = subject if isinstance(subject, Symbol) else symbol_of(subject)
        if symbol is not None:
            return symbol.key
        return (id(subject), *subject.recorder.writes.stamp(subject)) if type(subject) is TensorProxy else id(subject)

    def opposite(self, subject: Any) -> Any:
        """What tells the value whose negation a value is from others; None for what is no negation."""
        symbol = subject if isinstance(subject, Symbol) else symbol_of(subject)
        if symbol is None or symbol.function is not operator.not_:
            return None
        return self.key_of(symbol.args[0])

    def is_data(self, subject: Any) -> bool:
        """Tell whether a value depends on the data of tensors, rather than on sizes and flags."""
        symbol = subject if isinstance(subject, Symbol) else symbol_of(subject)
        return symbol is None or symbol.is_data

    def place(self) -> Any:
        """What tells a question from others: where in which function, and in which call of which module.

        Modules whose paths differ only in numbers count as one: the layers of a stack ask alike, and one answer for all
        of them takes one pass, not one for each.
        """
        frame = user_frame(sys._getframe(1))
        if frame is None:
            return None
        position = place_of(frame.f_code, frame.f_lasti)
        return (
            frame.f_code.co_filename,
            position.line,
            position.column,
            _NUMBERS.sub("*", self._recorder.scope.path),
            self._recorder.scope.call,
        )

    def is_in_message(self) -> bool:
        """Tell whether the running statement checks or reports something: the text of a number then decides nothing."""
        frame = user_frame(sys._getframe(1))
        source = "" if frame is None else place_of(frame.f_code, frame.f_lasti).source
        if source.startswith("print("):  # printed when the program runs
            self.stage(frame)
            return False
        if frame is not None and calls_logger(frame, source):
            return True
        return source.startswith(_REPORTS) or self.is_called_for_error()

    def is_called_for_error(self) -> bool:
        """Tell whether a `raise` statement calls what runs: what that asks is the example's."""
        if self._recorder.region.outer is None and not self.forks:
            return False  # the program would end there
        inner = user_frame(sys._getframe(1))
        frame = None if inner is None else inner.f_back
        while frame is not None and frame.f_code not in BOUNDARIES:
            is_user = user_frame(frame) is frame
            if is_user and place_of(frame.f_code, frame.f_lasti).source.startswith("raise "):
                return True
            frame = frame.f_back
        return False

    def restart(self, why: BaseException) -> BaseException:
        """Have the capture start again; whatever the program does until then is ignored."""
        if isinstance(why, Restart):
            why.at = why.at or self._recorder.where() or ""
        self._recorder.pending = why
        return why

    def _fork_at(self, place: Any, why: str) -> BaseException:
        """Have a branch fork instead of joining its sides."""
        return self.restart(self._recorder.plan.change(place, "fork", why))

    def leaf_called(self, frame: FrameType) -> None:
        """A function that is to be one node was called by a frame whose calls do not come through the runtime."""
        if user_frame(frame) is frame and not self._recorder.examples.is_running:
            codes = self.convertible(frame)
            if codes:
                raise self.restart(self._recorder.plan.convert(codes))

    def convertible(self, frame: FrameType | None) -> set[CodeType]:
        """The functions to convert so that this frame's one is: it and its callers up to the nearest module call.

        None where that is done already, or cannot be.
        """
        codes: set[CodeType] = set()
        if frame is None or is_converted(frame.f_code):
            return codes
        shells = self._recorder.shells
        while frame is not None and (frame.f_code not in BOUNDARIES or is_outside_call(frame, shells)):
            code = frame.f_code
            if not (code in BOUNDARIES or is_converted(code) or is_ours(code.co_filename) or code.co_name in NESTED):
                if not can_convert(code):
                    return set()
                codes.add(code)
            frame = frame.f_back
        return codes if codes - self._recorder.plan.converted else set()

    def convertible_at(self, error: BaseException) -> set[CodeType]:
        """The functions to convert so that the one is in which an error was raised."""
        every = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
        frames = [frame for frame in every if user_frame(frame) is frame]
        return self.convertible(frames[-1]) if frames else set()

    def converted(self, function: Any) -> Any:
        """What to call in place of a function."""
        self.anticipate(function)
        return converted_function(function, self._recorder.plan.converted)

    def anticipate(self, function: Any) -> None:
        """In a program that has asked before, have a function that may ask converted before it does."""
        plan = self._recorder.plan
        inner = function.__func__ if type(function) is MethodType else function
        inner = initializer(inner) if isinstance(inner, type) else inner
        if type(inner) is FunctionType and (plan.passes > _PATIENT or _is_for_runtime(inner)):
            code = inner.__code__
            may_matter = may_ask(code) or _is_for_runtime(inner)
            if code not in plan.converted and may_matter and can_convert(code):
                plan.converted.add(code)

    def branch(
        self,
        test: Any,
        then: Callable[[], Any],
        other: Callable[[], Any],
        names: tuple[str, ...] | None = None,
        alive: tuple[str, ...] | None = None,
        unshared: tuple[str, ...] = (),
    ) -> Any:
        """Run the side that is known to be taken, or capture both."""
        if self._recorder.pending is not None:
            raise self._recorder.pending
        subject = self.subject_of(test)
        if self._recorder.plan.control_flow != "stage":
            kind = bool if isinstance(subject, TensorProxy) else subject.kind
            return then() if self.decide(subject, kind) else other()
        place = self.place()
        way = self._recorder.plan.ways.get(place)
        key, told = self.key_of(subject), self.told(subject)
        if told is not None:
            return then() if told else other()
        if way is None and place is not None:
            way = self._recorder.plan.ways.get((*place, self._recorder.numbers.hint(subject)))
        if way != "follow" and is_of_slice(self._recorder.region, subject):
            return then() if self.refuse_data(subject) else other()
        if way == "guard":
            return then() if self.guard(self._symbol(subject)) else other()
        if way == "follow":
            return then() if self.of_example(subject) else other()
        if way == "fork":
            return then() if self._fork(subject, key, place) else other()
        can_wait = names is not None and alive is None  # for the rest of the function, which it does not hold yet
        names = names or ()
        alive = names if alive is None else alive
        return branch(self._recorder, subject, then, other, names, alive, place, unshared, can_wait)

    def differ(self, place: Any, why: str, can_wait: bool) -> BaseException:
        """The sides of a branch cannot be joined: have what comes after it be part of both, or have it fork."""
        plan = self._recorder.plan
        can_wait &= place is not None and plan.ways.get(place) is None and self._waiting() < _MOST_WAITING
        return self.restart(plan.wait(place, why) if can_wait else plan.change(place, "fork", why))

    def _waiting(self) -> int:
        """How many branches around are joined at the end of their functions only: each doubles what comes after it."""
        ways = self._recorder.plan.ways
        return sum(ways.get(region.place) == "wait" for region in self._recorder.region.all())

    def admit_optionals(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """See to it that who gets a tensor that may be None, or a bool, asks through the runtime, or have it fork."""
        if isinstance(function, nn.Module):
            return  # call_module looks at what it calls
        given = (*args, *kwargs.values())
        found = next((leaf for leaf in leaves(given) if is_uncertain(leaf)), None)
        if found is None:
            has_iterator = any(isinstance(arg, ITERATORS) for arg in given)
            found = self._in_iterator if has_iterator else uncertain_in([v for v in given if isinstance(v, SEVERAL)])
        if found is None or is_torch(function):
            return
        if only_moves(function, args):
            self._in_iterator = found  # if that is what it gives
            return
        if stores(function):
            self.hold(given)
            return
        inner = function
        while not isinstance(inner, FunctionType):
            inner = getattr(inner, "__func__", None) or getattr(inner, "func", None) or initializer(inner)
            if inner is None:
                raise fork_for(found, "is passed to C code")
        if not (is_converted(inner.__code__) or inner.__code__ in self._recorder.plan.converted):
            self._convert_for(found, {inner.__code__} if can_convert(inner.__code__) else set())

    def attribute_may_be_none(self, optional: TensorProxy, frame: FrameType) -> None:
        """Code that may ask whether an attribute is None is entered: have it ask through the runtime."""
        if user_frame(frame) is frame and not is_converted(frame.f_code) and not self._recorder.examples.is_running:
            self._convert_for(optional, self.convertible(frame))

    def hold(self, value: Any) -> None:
        """A value is put into an object or container: have functions looked at that may find None or a tensor there."""
        plan = self._recorder.plan
        if self.has_optionals and not plan.looks_into_arguments and any(map(is_uncertain, leaves(value))):
            plan.looks_into_arguments = True
            raise self.restart(Restart("None or a tensor is kept where other functions find it"))

    def function_entered(self, frame: FrameType) -> None:
        """See to it that a function which finds such a value in what it is given asks through the runtime."""
        code = frame.f_code
        if is_internal(code.co_filename) or code.co_filename.startswith("<") or not self.has_optionals:
            return
        if self._recorder.examples.is_running or is_converted(code) or not may_look(code):
            return
        found = uncertain_in(found_by(frame))
        if found is not None:
            self._convert_for(found, self.convertible(frame))

    def convert_called(self, function: Any) -> None:
        """Have a function of the program converted that gets objects outside of torch: what it calls gets them, too."""
        code = getattr(getattr(function, "__func__", function), "__code__", None)
        if code is None or is_converted(code) or code in self._recorder.plan.converted:
            return
        if is_ours(code.co_filename):
            return
        if can_convert(code):
            self._recorder.plan.converted.add(code)

    def _convert_for(self, optional: TensorProxy, codes: set[CodeType]) -> None:
        if codes:
            raise self.restart(self._recorder.plan.convert(codes))
        raise fork_for(optional, "reaches what has no source")

    def raising(self, error: Any, cause: Any = None) -> Any:
        """Let an exception be raised, or, on a side of a branch, write it into the graph and end the side."""
        region, attempts = self._recorder.region, self._recorder.attempts
        if region.outer is None or region.transform:
            return with_cause(error, cause)
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame is not region.frame:
            if user_frame(frame) is frame and is_handled(frame) and not attempts.catches_here(frame):
                return with_cause(error, cause)  # the program itself catches it, on this side
            frame = frame.f_back
        if attempts.plain_catches(error, region):
            return with_cause(error, cause)
        if not attempts.raised(error) and (attempts.forks(error) or self.is_caught_outside(frame, True)):
            raise self.restart(self._recorder.plan.change(region.place, "fork", "an exception may be caught outside"))
        self.write_raise(error, cause)
        raise Raised

    def is_caught_outside(self, frame: FrameType | None = None, is_known: bool = False) -> bool:
        """Tell whether a handler of the program may catch what a frame, by default the running one, raises.

        With `is_known`, those count which are not seen to be entered.
        """
        frame = frame or sys._getframe(1)
        while frame is not None and frame.f_code is not RUN:
            is_entered = is_known and self._recorder.attempts.catches_here(frame)
            if user_frame(frame) is frame and is_handled(frame) and not is_entered:
                return True
            frame = frame.f_back
        return False

    def write_raise(self, error: Any, cause: Any = None) -> None:
        """Write into the graph that an exception is raised."""
        if self._recorder.keeping is not None and not self._recorder.attempts.are_open:
            self._recorder.keeping.write_at_end()  # what was written before it stays written
        write_error(self._recorder, error, cause)

    def is_raised_by_user(self, error: Exception) -> bool:
        """Tell whether the program itself raised an exception, on a path that it forked into.

        That is: by a `raise` or `assert`, or by reading a variable that the other side of a branch assigns.
        """
        frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__) if not is_ours(frame.f_code.co_filename)]
        if not self._recorder.plan.answers or not frames or user_frame(frames[-1]) is not frames[-1]:
            return False
        place = place_of(frames[-1].f_code, frames[-1].f_lasti)
        return place.source.startswith(("raise ", "assert ")) or self.reads_unassigned(error)

    def reads_unassigned(self, error: BaseException) -> bool:
        """Tell whether the program read a variable that this way through it does not assign, but another one does."""
        names = self._recorder.plan.one_sided
        return isinstance(error, NameError) and any(repr(name) in str(error) for name in names)

    def message(self, value: Any) -> Argument:
        """Write a message: its numbers are those of a run."""
        if type(value) is Text:
            values = tuple(map(self.message, value.values))
            return self._recorder.make("call_method", "format", (value.template, *values), "message")
        argument = self._recorder.argument(value)
        if type(value) is not torch.Size or not self._recorder.examples.are_there:
            return argument
        return self._recorder.make("call_function", torch.Size, (argument,), "shape")

    def refuse_data(self, subject: Any, name: str = "", answer: Callable[[], Any] | None = None) -> Any:
        """Refuse a question of data. Where all obstacles are wanted, note it and give what `answer` does."""
        what = f" ({name.strip('_')})" if name else ""
        asked = "the data of a tensor" if self.is_data(subject) else "a size or flag"
        if is_of_slice(self._recorder.region, subject):
            asked = "the data of a slice inside torch.vmap, where the program runs once for all slices"
        elif self._recorder.plan.control_flow == "stage":
            ways = [
                functools.partial(self._unroll_around, f"it asks for {asked}{what}"),
                functools.partial(
                    outline, with_examples(self._recorder), sys._getframe(1), f"it asks for {asked}{what}"
                ),
            ]
            if not _comes_from_loop(subject):
                ways.reverse()
            restart = next((found for way in ways if (found := way()) is not None), None)
            if restart is not None:
                raise self.restart(restart)
        question = DataQuestion(
            f"the program asks for {asked}{what}, which is known only when it runs",
            at=self._recorder.where(),
            fix="use torch.where, or keep the value a tensor",
        )
        if self._recorder.plan.obstacles is None:
            self._recorder.pending = question
            raise question
        self._recorder.plan.obstacles.note("data", question.error)
        return self.of_example(subject) if answer is None else answer()

    def _unroll_around(self, why: str) -> BaseException | None:
        """Have a loop around what is captured run plainly, under a guard where a size decides."""
        for region in self._recorder.region.all():
            if region.is_loop and region.plain_way is not None:
                return self._recorder.plan.change(region.place, region.plain_way, why)
        return None

    def helper_that_draws(self, frame: FrameType | None) -> BaseException | None:
        """Why the capture is to start again, if the function that draws is a helper which had better stay one node.

        It has conditions, which may hang on what it draws, and nothing to do with tensors: nothing of torch is missed.
        No file may name a private one: where a flag or size leads to that, the other way is taken for granted.
        """
        if frame is None or self._recorder.plan.control_flow != "stage":
            return None
        code = original_code(frame.f_code)
        has_tensors = any(isinstance(leaf, torch.Tensor) for leaf in leaves(list(frame.f_locals.values())))
        is_helper = code is not None and may_ask(code) and not has_tensors
        if is_helper and code.co_name.startswith("_"):  # type: ignore[union-attr]
            restart = self._around_draw()
            if restart is not None:
                return restart
        return outline(with_examples(self._recorder), frame, "it draws random numbers") if is_helper else None

    def outline(self, frame: FrameType | None, why: str) -> BaseException | None:
        """Have the innermost function or module around a frame that can be cut out become one node."""
        return outline(with_examples(self._recorder), frame, why)

    def refuse_draw(self, site: CallSite) -> None:
        """Python or NumPy draw a random number: take the other side of a branch on a flag or size, or refuse."""
        restart = self._around_draw()
        if restart is not None:
            raise self.restart(restart)
        error = CaptureError(
            "the program draws random numbers of Python's or NumPy's, which the graph would keep for ever",
            at=site.line(),
            fix="draw with torch, or keep the function that draws as one node: leaf_functions=[...]",
        )
        self.refuse(error, "data")

    def _around_draw(self) -> BaseException | None:
        """Why the capture is to start again where a branch on a flag or size leads to a draw."""
        region = self._recorder.region
        while region.outer is not None:
            if not region.is_data:
                why = "one side draws random numbers of Python's or NumPy's"
                return self._recorder.plan.change(region.place, "guard", why)
            region = region.outer
        return None

    def refuse(self, error: CaptureError, category: Category) -> None:
        """Raise an error. Where all obstacles are wanted, note it: the caller then goes on as well as it can."""
        if self._recorder.plan.obstacles is None:
            raise refusal(error)
        self._recorder.plan.obstacles.note(category, error)

    def failed_path(self, error: Exception) -> BaseException:
        """What to do where a path that the example does not take raises: an answer of size is the example's."""
        if is_refused_number(error) or is_misfit(error):
            codes = self.convertible_at(error)
            if codes:
                return self._recorder.plan.convert(codes)
        for fork in reversed(self.forks):
            if not fork.is_data:
                return self._recorder.plan.change(fork.place, "guard", f"a path raises {type(error).__name__}")
        if not self.forks:
            return error
        other = next((fork for fork in reversed(self.forks) if fork.hint is (not fork.answer)), None)
        return self.given_up(error, (other or self.forks[-1]).place, other is not None)

    def given_up(self, error: BaseException, place: Any, is_other_way: bool = False) -> BaseException:
        """What to do where a side of a branch on data cannot be captured.

        A way that the example does not go, and on which the program fails with the example's data, is guarded against.
        Else refuse, or note it and follow the example.
        """
        if self._recorder.plan.obstacles is None and is_other_way and not isinstance(error, Refusal | CaptureError):
            return self.restart(self._recorder.plan.change(place, "guard", f"one side raises {type(error).__name__}"))
        if self._recorder.plan.obstacles is None or self._recorder.plan.ways.get(place) == "follow":
            return error
        raised = error.error.with_traceback(error.__traceback__) if isinstance(error, Refusal) else error
        self._recorder.plan.obstacles.note_failure(raised)
        return self.restart(self._recorder.plan.change(place, "follow", f"one side raises {type(raised).__name__}"))

    def too_many_paths(self) -> BaseException:
        """What to do where the program forks too often."""
        if any(fork.is_start for fork in self.forks) and not self._recorder.plan.guards_starts:
            self._recorder.plan.guards_starts = True
            return Restart("the program forks too often: what starts with None in an attribute goes the example's way")
        for fork in reversed(self.forks):
            if not fork.is_data:
                return self._recorder.plan.change(fork.place, "guard", "the program forks too often")
        for fork in reversed(self.forks):
            if fork.decider is not None:
                return self._recorder.plan.change(fork.decider, "guard", "the program forks too often")
        counts = collections.Counter(fork.place for fork in self.forks)
        fork = max(self.forks, key=lambda fork: counts[fork.place])  # a loop's test rather than what comes after it
        reason = self._reason(fork)
        question = DataQuestion(
            f"the program forks into more than {self._recorder.plan.max_paths} paths{reason}",
            at=fork.site and str(fork.site),
            fix=fix_of(reason),
        )
        if self._recorder.plan.obstacles is None:
            return question
        self._recorder.plan.obstacles.note("paths", question.error)
        return self._recorder.plan.change(fork.place, "follow", question.error.message)

    def _reason(self, fork: Fork) -> str:
        """Why a branch or loop forks, for an error."""
        why = self._recorder.plan.reasons.get(fork.place)
        file = fork.place[0] if isinstance(fork.place, tuple) and fork.place else None
        if not why and isinstance(file, str) and file != "attribute" and not source_of(file).lines:
            why = f"{file} has no source that could be read"
        return f": {why}" if why else ""


def _negated(truth: bool | None) -> bool | None:
    return None if truth is None else not truth


def _is_for_runtime(function: FunctionType) -> bool:
    return packs(function.__code__) or tells(function)


def _comes_from_loop(subject: Any) -> bool:
    """Tell whether a value may be another in each iteration of a loop without being data of a tensor."""
    symbol = subject if isinstance(subject, Symbol) else symbol_of(subject)
    if symbol is None:
        return not isinstance(subject, TensorProxy)
    if symbol.function == "opaque":
        return True
    return any(_comes_from_loop(arg) for arg in symbol.args if isinstance(arg, Symbol))


def _outer_frame(frame: FrameType | None) -> FrameType | None:
    """The nearest frame that is not this library's."""
    while frame is not None and is_ours(frame.f_code.co_filename):
        frame = frame.f_back
    return frame
