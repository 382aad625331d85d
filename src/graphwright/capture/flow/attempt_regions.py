"""The body of a `try` as a region of the graph, and the branch on the error that it gives.

What the body leaves where it comes to its end are values of the region, as those of a branch are; what it leaves where
an error ends it is in a list that it writes to (`kept_values`). `else` and the handlers are the sides of a branch.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from types import CodeType
from typing import TYPE_CHECKING, Any, Protocol

import torch

from graphwright.capture.calls.errors_raised import Errors, errors_of
from graphwright.capture.calls.refusals import is_refused_value
from graphwright.capture.containers.opening import make_growing
from graphwright.capture.effects.branch_state import State
from graphwright.capture.flow.branches import branch
from graphwright.capture.flow.caught_errors import is_error
from graphwright.capture.flow.joined_values import Leaving
from graphwright.capture.flow.kept_values import KeptValues
from graphwright.capture.flow.plain_attempts import either_leaves, giving, is_of_capture, reaching
from graphwright.capture.flow.watched import check_end, run_watched
from graphwright.capture.proxies.object_proxy import ObjectProxy, object_example, object_node
from graphwright.capture.state.regions import Region, Writing
from graphwright.capture.state.running import Refusal, again
from graphwright.capture.state.samples import Grows, Unlike
from graphwright.capture.state.side_ended import Raised
from graphwright.capture.state.symbols import UNKNOWN, symbol_of
from graphwright.capture.state.tensor_proxy import TensorProxy
from graphwright.ir import Node
from graphwright.ops import write_attempt
from graphwright.source import EMPTY
from graphwright.values import Given, filled

if TYPE_CHECKING:
    from graphwright.capture.state.places import Place
    from graphwright.capture.state.protocol import TypedCapture
    from graphwright.capture.state.rungs import Raisable

BRANCH = "error"  # ends what the plan knows the branch on the error of a `try` by


@dataclasses.dataclass(eq=False)
class Open:
    """A `try` whose body is running."""

    place: Any
    code: CodeType  # of the function that its body is
    errors: Errors  # that it catches
    region: Region  # around it
    kept: KeptValues | None = None  # where it is a region
    is_final: bool = False
    may_raise: bool = False
    has_raised: bool = False  # by a `raise` of the program
    leaves: bool = False  # whether what its handlers raise leaves the program
    passes_on: bool = False  # whether that is what an operation has raised
    examples: list[BaseException] = dataclasses.field(default_factory=list)  # of what is raised in it

    def note(self, error: Raisable) -> None:
        """An error is about to be raised in a region."""
        if is_error(error):
            error = object_example(error)
        self.examples.append(error() if isinstance(error, type) else error)
        assert self.kept is not None
        self.kept.note()


class _Attempts(Protocol):
    """What one `try` asks of those that are open."""

    def force(self) -> None: ...

    def quietly(self) -> AbstractContextManager[None]: ...

    def within(self, entry: Open, tried: Callable[[], Any]) -> Any: ...

    def given_up(self, entry_place: Place | None, why: str) -> BaseException: ...

    def caught(self, entry: Open, node: Node, kinds: Errors) -> Any: ...


class AttemptRegion:
    """One `try` being captured: its body, and what follows."""

    def __init__(
        self,
        attempts: _Attempts,
        recorder: TypedCapture,
        entry: Open,
        tried: Callable[[], Any],
        kinds: Sequence[Errors],
        handlers: Sequence[Callable[[Any], Any]],
        orelse: Callable[[], Any] | None,
        final: Callable[[], Any] | None,
        names: tuple[str, ...],
    ) -> None:
        self._attempts, self._recorder, self._entry = attempts, recorder, entry
        self._tried, self._kinds, self._handlers = tried, kinds, handlers
        self._orelse, self._final, self._names = orelse, final, names
        self._where = recorder.where()
        self._parts: list[Callable[..., Any]] = [
            tried,
            *handlers,
            *[part for part in (orelse, final) if part is not None],
        ]

    def capture(self) -> Any:
        """Write the body and what follows; return whether the statement is left."""
        recorder, entry = self._recorder, self._entry
        recorder.ambient.notice()
        self._attempts.force()

        def watch() -> State:
            self._state = State((reaching(self._parts),), self._names, self._names)
            return self._state

        def grow(state: State, growth: Grows) -> None:  # in a loop in the body
            make_growing(recorder, state, growth, entry.place, "fork")

        region, values, has_raised = run_watched(recorder, watch, self._body, grow, self._given_up)
        try:
            with self._attempts.quietly(), torch._C.DisableTorchFunction():  # the recorder must not see this
                error, well = self._write(region, values, has_raised)
        except Unlike as why:
            raise self._given_up(str(why)) from None
        return self._branch(error, well, has_raised)

    def _given_up(self, why: str) -> BaseException:
        return self._attempts.given_up(self._entry.place, why)

    # ---- the body

    def _body(self, state: State) -> tuple[Region, list[Any], bool]:
        """Run the body once, into a region; return it, with what it gives and leaves, and whether it always raises."""
        recorder = self._recorder
        self._entry.kept = self._kept = KeptValues(recorder, state, self._entry.place)
        region = Region(recorder.region, sys._getframe(), self._entry.place)
        region.is_data, region.is_taken = True, None
        depth, has_raised, left = recorder.ambient.depth, False, None
        self._kept.region = region
        with Writing(recorder, region):
            try:
                left = self._attempts.within(self._entry, self._tried)
                recorder.ambient.notice()
            except Raised:
                has_raised = True
            except (Exception, Refusal) as error:
                self._ended_by(error)
                has_raised = True
        if recorder.pending is not None:
            raise again(recorder.pending)
        check_end(recorder, depth, lambda: self._given_up("a context is entered or left in a `try`"))
        try:
            state.check()
        except Unlike as why:
            raise self._given_up(str(why)) from None
        values = [left, *state.read()]
        state.restore()
        return region, values, has_raised

    def _ended_by(self, error: Exception | Refusal) -> None:
        """The body raises on every way that leads there: write that, if it is an error of the program."""
        recorder = self._recorder
        if recorder.pending is not None or isinstance(error, Refusal) or is_of_capture(error):
            raise error
        recorder.questions.staging.convert_all(recorder.questions.staging.convertible_at(error))
        if is_refused_value(error):
            raise error
        self._entry.note(error)
        recorder.questions.raises.write_raise(error, is_caught=True)

    def _write(self, region: Region, values: list[Any], has_raised: bool) -> tuple[Node, list[Any]]:
        """Write the body's output and the node that runs it; return its error, and what it leaves at its end."""
        recorder = self._recorder
        leaving = Leaving(recorder, region, self._state)
        made = [] if has_raised else leaving.values(values, [EMPTY, *self._state.values_before()])
        leaves = leaving.leaves
        with Writing(recorder, region):
            outputs = [recorder.lifted(recorder.argument(value)) for value, _ in leaves]
        self._kept.close()
        errors = tuple(dict.fromkeys(kind for group in self._kinds for kind in group))
        names = [recorder.joining.source_name(value) or "value" for value, _ in leaves]
        make = functools.partial(recorder.make, "call_function")
        error, items = write_attempt(make, region, outputs, errors, _may_raise, names, recorder.site(), "attempt")
        given = Given([self._value(value, item) for (value, _), item in zip(leaves, items, strict=True)])
        return error, [filled(value, given) for value in made]

    def _value(self, value: Any, node: Node) -> Any:
        """A value of the region as the program has it after that."""
        recorder = self._recorder
        if type(value) is ObjectProxy:
            return ObjectProxy(recorder, object_example(value), node)
        if isinstance(value, TensorProxy):
            proxy = TensorProxy.make(recorder, value.example, node)
            proxy.optional, proxy.is_none, proxy.is_mixed = value.optional, value.is_none, value.is_mixed
            proxy.loose, proxy.sizes = value.loose, value.sizes
            return proxy
        symbol = symbol_of(value)
        made = recorder.joining.stand_in(recorder.joining.sample(value, value), node, self._entry.place)
        if symbol is not None:
            symbol_of(made).is_data = symbol.is_data  # type: ignore[union-attr]
        return made

    # ---- what follows

    def _branch(self, error: Node, well: list[Any], has_raised: bool) -> Any:
        """The branch on the error: `else`, or the handlers; then `finally`."""
        recorder, state, names = self._recorder, self._state, self._names
        every = tuple(kind for group in self._kinds for kind in group)
        caught = self._attempts.caught(self._entry, error, every)
        if has_raised:
            state.write(self._wrong(), lambda: self._where, self._entry.place)
            return self._caught(caught, 0)
        node = recorder.make("call_function", operator.is_, (error, None), "is_")
        hint = True if recorder.examples.is_real else UNKNOWN
        worked = recorder.numbers.of_node(node, hint, bool)
        _gw_parts = reaching(self._parts)

        def went_well(self: AttemptRegion = self, given: list[Any] = well) -> Any:
            _gw_parts  # noqa: B018 - leads to the variables of the program
            left, *values = given
            self._restore(values)
            if self._final is not None:
                return either_leaves(self._final(), giving(left), names)
            return either_leaves(left, self._orelse, names)

        def went_wrong(self: AttemptRegion = self, caught: ObjectProxy = caught) -> Any:
            _gw_parts  # noqa: B018
            self._restore(self._wrong())
            return self._caught(caught, 0)

        questions = recorder.questions
        subject, place = questions.subjects.subject_of(worked), (*self._entry.place, BRANCH)
        if recorder.plan.ways.get(place) == "fork":  # what the sides leave cannot be joined: each goes its own way
            return went_well() if questions.forking.fork(subject, place) else went_wrong()
        return branch(recorder, subject, went_well, went_wrong, names, names, place)

    def _wrong(self) -> list[Any]:
        """The state where an error was raised."""
        try:
            with self._attempts.quietly(), torch._C.DisableTorchFunction():
                return self._kept.values(self._where)
        except Unlike as why:
            raise self._given_up(str(why)) from None

    def _restore(self, values: list[Any]) -> None:
        """Have the state hold these values, on a side of the branch, which is to put them back."""
        for container, _ in self._state._containers if self._recorder.states else ():
            self._recorder.states[-1].watch(container)
        self._state.write(values, lambda: self._where, self._entry.place)

    def _caught(self, error: ObjectProxy, number: int) -> Any:
        """The handlers from one on."""
        recorder, names = self._recorder, self._names
        if self._final is not None:
            left = self._final()

            def again(raise_again: Callable[[Any], Any] = self._again, caught: ObjectProxy = error) -> Any:
                raise_again(caught)

            return either_leaves(left, again, names)
        handler = self._handlers[number]
        if number == len(self._handlers) - 1 or self._catches_all(number):
            return handler(error)
        node = recorder.make("call_function", isinstance, (object_node(error), self._kinds[number]), "isinstance")
        hint = UNKNOWN
        is_it = recorder.questions.subjects.subject_of(recorder.numbers.of_node(node, hint, bool))
        _gw_parts = reaching(self._parts)

        def handled(handler: Callable[..., Any] = handler, error: ObjectProxy = error) -> Any:
            _gw_parts  # noqa: B018
            return handler(error)

        def others(
            caught: Callable[[Any, int], Any] = self._caught, error: ObjectProxy = error, number: int = number + 1
        ) -> Any:
            _gw_parts  # noqa: B018
            return caught(error, number)

        return branch(recorder, is_it, handled, others, names, names, (*self._entry.place, BRANCH))

    def _catches_all(self, number: int) -> bool:
        """Tell whether a handler catches whatever the ones after it would."""
        later = [kind for group in self._kinds[number + 1 :] for kind in group]
        return all(issubclass(kind, self._kinds[number]) for kind in later)

    def _again(self, error: BaseException) -> Any:
        """`finally` has come to its end: the error goes on."""
        raise self._recorder.questions.raises.raising(error)


def _may_raise(node: Node) -> bool:
    return bool(errors_of(node.op, node.target, node.args))
