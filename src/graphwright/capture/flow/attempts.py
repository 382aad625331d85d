"""`try` statements of a program: run as they are, or regions of the graph where only a run knows what is raised.

A statement is first run as Python does. Where its body then does what may raise an error that its handlers catch - an
operation that fails for other inputs, a `raise` that data decides - the capture starts again with its body as a
region: the operator "attempt" runs that under `try`, and a branch on the error that it gives follows.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

import torch

from graphwright.capture.calls.errors_raised import Errors, errors_of, fails_by_data
from graphwright.capture.calls.gradients import guard_gradients
from graphwright.capture.calls.refusals import is_refused_value
from graphwright.capture.effects.unwritten import Since
from graphwright.capture.flow.attempt_regions import BRANCH, AttemptRegion, Open
from graphwright.capture.flow.caught_errors import attribute_of_error, is_error, text_of
from graphwright.capture.flow.nearest import nearest, without_data
from graphwright.capture.flow.plain_attempts import MadeErrors, is_of_capture, reaching, run_plainly
from graphwright.capture.flow.tried_lines import tried_lines, tried_lines_of_keys
from graphwright.capture.proxies.growing import is_growing
from graphwright.capture.proxies.object_proxy import ObjectProxy, object_node
from graphwright.capture.proxies.run_text import RunText
from graphwright.capture.state.parts import Handlers
from graphwright.capture.state.regions import Region
from graphwright.capture.state.running import RUN, refused
from graphwright.capture.state.symbols import UNKNOWN, Symbol, as_first_index, is_symbolic, symbol_of
from graphwright.ir import Graph, Node, Target
from graphwright.runtime import expect_class
from graphwright.source import is_internal, user_frame

if TYPE_CHECKING:
    from graphwright.capture.state.places import Place
    from graphwright.capture.state.protocol import TypedCapture
    from graphwright.capture.state.rungs import Raisable

_FIX = "have the `try` leave values of the same kinds on all ways, or put it into a function of its own"


class Attempts(MadeErrors):
    """The `try` statements of one capture."""

    def __init__(self, recorder: TypedCapture) -> None:
        super().__init__()
        self._recorder = recorder
        self._open: list[Open] = []
        self.forked = 0  # of those, how many are run as Python does although an operation may fail in them
        self._is_noting = False
        self._caught: dict[Node, tuple[list[BaseException], Any, Errors]] = {}
        self._lazy: list[tuple[Symbol, Region]] = []  # numbers that may fail to be computed
        self._without_handlers: dict[int, CodeType] = {}  # functions met on the stack, by id
        self._frame: FrameType | None = None  # the one that was looked at last, if those around it stay
        self._trying: list[tuple[FrameType, list[tuple[int, int]]]] = []  # those with handlers among it and these

    # ---- statements

    def run(
        self,
        tried: Callable[[], Any],
        handlers: Handlers,
        orelse: Callable[[], Any] | None,
        final: Callable[[], Any] | None,
        names: tuple[str, ...],
        raising: str,
    ) -> Any:
        """`try: ... except ...: ... else: ... finally: ...`; returns whether it is left."""
        recorder = self._recorder
        if recorder.pending is not None:  # on the way out, what is to be done there is done
            return run_plainly(tried, handlers, orelse, names, final)
        place = recorder.questions.place()
        if final is None:
            return self._handled(place, tried, handlers, orelse, names, raising)
        if not handlers:
            return self._ended(place, tried, final, names)
        _gw_parts = reaching([tried, *[handler for _, handler in handlers], *([orelse] if orelse else [])])
        given = (place, tried, handlers, orelse, names, raising)

        def whole(handled: Callable[..., Any] = self._handled, given: tuple[Any, ...] = given) -> Any:
            _gw_parts  # noqa: B018 - leads to the variables of the program
            return handled(*given)

        return self._ended(place, whole, final, names)

    def _handled(
        self,
        place: Place | None,
        tried: Callable[[], Any],
        handlers: Handlers,
        orelse: Callable[[], Any] | None,
        names: tuple[str, ...],
        raising: str,
    ) -> Any:
        """`try: ... except ...: ... else: ...`.

        Where the handlers only raise another error, which leaves the program, a raise that data decides is a path.
        """
        kinds = _kinds(handlers)
        if kinds is None or self._recorder.plan.control_flow != "stage":
            return run_plainly(tried, handlers, orelse, names)
        errors = tuple(dict.fromkeys(error for group in kinds for error in group))
        entry = Open(place, tried.__code__, errors, self._recorder.region)
        is_in_loop = any(region.is_loop for region in self._recorder.region.all())
        entry.leaves = bool(raising and handlers) and not self._open and not is_in_loop
        entry.passes_on = entry.leaves and raising == "again"
        if self._is_region(place):
            works = [handler for _, handler in handlers]
            return AttemptRegion(self, self._recorder, entry, tried, kinds, works, orelse, None, names).capture()
        return run_plainly(lambda: self.within(entry, tried), handlers, orelse, names)

    def _ended(
        self, place: Place | None, tried: Callable[[], Any], final: Callable[[], Any], names: tuple[str, ...]
    ) -> Any:
        """`try: ... finally: ...`."""
        recorder = self._recorder
        place = None if place is None else (*place, "finally")
        entry = Open(place, tried.__code__, (BaseException,), recorder.region, is_final=True)
        if recorder.plan.control_flow != "stage":
            return run_plainly(tried, (), None, names, final)
        if self._is_region(place):
            kinds: list[Errors] = [(BaseException,)]
            return AttemptRegion(self, recorder, entry, tried, kinds, [], None, final, names).capture()

        def ending() -> Any:
            since = Since(recorder)
            left = final()
            is_seen = any(not around.is_final and not around.leaves for around in self._open)  # what it assigns
            is_seen |= since.has_acted() or (entry.has_raised and since.has_changed())
            matters = is_seen or not (left is None or left is False)
            if entry.may_raise and matters and recorder.pending is None:
                if recorder.plan.ways.get(place) == "fork":
                    raise self._refused("`finally` does what an error must not leave out")
                raise self.as_region(entry, "`finally` does what an error must not leave out")
            return left

        return run_plainly(lambda: self.within(entry, tried), (), None, names, ending)

    def _is_region(self, place: Place | None) -> bool:
        """Tell whether the body of a `try` is to be a region: not where the branch on its error can be no branch."""
        ways = self._recorder.plan.ways
        way = ways.get((*(place or ()), BRANCH))
        if way is not None and (way != "fork" or self._recorder.region.outer is not None):
            ways[place] = "fork"
        return ways.get(place) == "attempt"

    def within(self, entry: Open, tried: Callable[[], Any]) -> Any:
        """Run the body of a `try`."""
        is_forked = entry.kept is None and not entry.leaves and self._recorder.plan.ways.get(entry.place) == "fork"
        self._open.append(entry)
        self.forked += is_forked
        try:
            return tried()
        finally:
            self.forked -= is_forked
            self._open.pop()

    def as_region(self, entry: Open, why: str) -> BaseException:
        """Start again with the body of a `try` as a region."""
        recorder = self._recorder
        return recorder.questions.restart(recorder.plan.change(entry.place, "attempt", why))

    def given_up(self, entry_place: Place | None, why: str) -> BaseException:
        """Start again with a `try` as Python runs it: each way that data decides is then a path."""
        recorder = self._recorder
        return recorder.questions.restart(recorder.plan.change(entry_place, "fork", why))

    # ---- what may raise

    def raised(self, error: Raisable) -> bool:
        """A `raise` is about to end a side of a branch. Tell whether a region is there to catch it.

        Where a `try` that catches it is no region yet, the capture starts again.
        """
        regions, kinds, is_caught = list(self._recorder.region.all()), self._kinds_of(error), False
        for entry in reversed(self._open):
            if not _common(entry.errors, kinds):
                continue
            entry.may_raise = entry.has_raised = True
            if entry.kept is not None:
                if entry.kept.region in regions:
                    entry.note(error)
                    is_caught |= not entry.is_final
                    if is_caught and all(issubclass(kind, entry.errors) for kind in kinds):
                        return True
                continue
            if entry.is_final or entry.leaves:
                continue
            if self._recorder.plan.ways.get(entry.place) == "fork":
                return False  # its handler is run as Python does, and no region around it sees the error
            raise self.as_region(entry, "data decides whether the program raises what it catches")
        return is_caught

    def _kinds_of(self, error: Raisable) -> Errors:
        """The classes of which an error may be: what a handler got may be any that it catches."""
        error = self.original(error)
        if is_error(error):
            return self._caught[object_node(error)][2]
        return (error if isinstance(error, type) else type(error),)

    @property
    def are_open(self) -> bool:
        """Whether the body of a `try` is being captured as a region."""
        return any(entry.kept is not None for entry in self._open)

    def catches_plainly(self) -> bool:
        """Tell whether a `try` that is run as Python does may catch what is raised where the capture is."""
        recorder = self._recorder
        return any(
            entry.kept is None
            and not (entry.is_final or entry.leaves)
            and (entry.region is recorder.region or recorder.plan.ways.get(entry.place) == "fork")
            for entry in self._open
        )

    def forks(self, error: Raisable) -> bool:
        """Tell whether a `try` that is run as Python does, and cannot be a region, may catch an error."""
        kinds = self._kinds_of(error)
        return any(_common(entry.errors, kinds) and entry.kept is None and not entry.is_final for entry in self._open)

    def takes(self, error: BaseException) -> bool:
        """A side of a branch has raised an error as Python does. Tell whether a region is there to catch it."""
        recorder = self._recorder
        if recorder.pending is not None or is_of_capture(error) or not isinstance(error, Exception):
            return False
        if not self._open or is_refused_value(error) or recorder.questions.staging.convertible_at(error):
            return False
        return self.raised(self.original(error))

    def run_again(
        self,
        error: Exception,
        run: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        may_be_size: bool,
    ) -> Any:
        """An operation has failed for the example: run it with other indices, where these are not the example's.

        Else raises the error. If a handler gets it, sizes or gradients are guarded; on real values, data may decide.
        """
        recorder = self._recorder
        frame = user_frame(sys._getframe(1)) if recorder.is_running else None
        if frame is not None:
            recorder.callers.look(frame)  # it may fail because of a call around it that was not seen
        if any(type(part) is RunText and part.hint is UNKNOWN for part in _parts((args, kwargs))):
            why = "the program passes on a text that only a run knows, of which the operation tells nothing"
            raise self._refused(why, "return it, or use it as a key or an item")
        if isinstance(error, IndexError) and as_first_index(args, kwargs):
            given = recorder.to_examples(args, may_be_size), recorder.to_examples(kwargs, may_be_size)
            return recorder.examples.run(run, *given)
        other_ways = [region for region in recorder.region.all() if region.is_taken is False]
        if isinstance(error, IndexError) and run is operator.getitem and other_ways:
            subject, index = recorder.to_examples(args, may_be_size)
            with contextlib.suppress(IndexError):
                return recorder.examples.run(run, (subject, nearest(index, subject)), {})
        if recorder.questions.raises.is_caught_outside():
            if not _is_of_signature(error):
                self._guard((args, kwargs), recorder.examples.is_real and fails_by_data(recorder, run, args))
                guard_gradients(recorder, _parts((args, kwargs)), error)
        elif recorder.questions.raises.is_left_by_it():
            self._guard((args, kwargs), is_by_data=False)
        elif recorder.examples.is_real and any(region.is_data for region in other_ways):
            made = recorder.examples.quiet(lambda: without_data(recorder, run, args, kwargs))
            if made is not NotImplemented:
                return made
        raise error

    def _guard(self, values: Iterable[Any] | slice, is_by_data: bool) -> None:
        """What was done with these values fails for the example, and the program goes on: have them be as they are.

        In a loop, other iterations may not fail: it is run plainly.
        """
        recorder = self._recorder
        if any(region.is_taken is False for region in recorder.region.all()):
            return  # then the branch to it is not taken
        self._run_loops_plainly()
        parts = _parts(values)
        lengths = [symbol_of(part.length()) for part in parts if is_growing(part)]
        if is_by_data or any(length is not None and length.hint for length in lengths):
            raise self._refused()
        recorder.questions.guards.guard_sizes(parts)

    def _run_loops_plainly(self) -> None:
        recorder = self._recorder
        if recorder.region.is_in_loop():
            why = "the program catches what an operation raises in some iteration"
            restart = recorder.questions.refusals.unroll_around(why)
            raise self._refused(why) if restart is None else recorder.questions.restart(restart)

    def guard_forked(self, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """An operation is run in a `try` that cannot be a region: take what may make it fail from the example."""
        errors = errors_of("call_function", run, args)
        caught = [entry for entry in self._open if entry.kept is None and _common(entry.errors, errors)]
        if any(self._recorder.plan.ways.get(entry.place) == "fork" and not entry.leaves for entry in caught):
            self._run_loops_plainly()
            self._recorder.questions.guards.guard_sizes(_parts((args, kwargs)))

    def failed(self, error: Exception, args: Sequence[Any]) -> None:
        """Numbers cannot be computed for the example. Raises the error, unless the graph does without an example.

        That is on a way that the example does not take, and where a region is there to catch what a node raises.
        Where the program catches it, the numbers are guarded; data may decide.
        """
        recorder = self._recorder
        if not recorder.is_running or is_of_capture(error):
            raise error
        if any(region.is_taken is False for region in recorder.region.all()):
            return
        frame = user_frame(sys._getframe(1))
        is_by_data = any(is_symbolic(arg) and recorder.questions.subjects.is_data(arg) for arg in args)
        if frame is not None and not self._is_noting:
            trying = [(at, tried) for at in _frames_around(frame) if (tried := tried_lines_of_keys(at.f_code))]
            self._note((type(error),), lambda: is_by_data, trying)
        if any(entry.kept is not None and isinstance(error, entry.errors) for entry in self._open):
            return
        if recorder.questions.raises.is_caught_outside() or recorder.questions.raises.is_left_by_it():
            self._guard(args, is_by_data)
        raise error

    def catches_here(self, frame: FrameType) -> bool:
        """Tell whether a frame runs the body of a `try` that is known here."""
        return any(frame.f_code is entry.code for entry in self._open)

    def plain_catches(self, error: Raisable, region: Region) -> bool:
        """Tell whether a `try` that is run as Python does, inside of the region, catches an error."""
        kinds = self._kinds_of(error)
        for entry in reversed(self._open):
            if entry.region is not region and (entry.kept is None or entry.kept.region is not region):
                return False
            if entry.is_final or not _common(entry.errors, kinds):
                continue
            if all(issubclass(kind, entry.errors) for kind in kinds) or entry.kept is not None:
                return True
            raise self.as_region(entry, "only a run knows which error is raised")
        return False

    def look(self, frame: FrameType, op: str, target: Target, args: tuple[Any, ...]) -> None:
        """A node is about to be made: see whether the program catches what it may raise."""
        if self._is_noting:
            return
        if frame is not self._frame:
            self._look_around(frame)
        if (self._open or self._trying) and (errors := errors_of(op, target, args)):
            self._note(errors, functools.partial(fails_by_data, self._recorder, target, args), self._trying)

    def look_up(self) -> None:
        """A key is about to be looked up that a dict of the program may not have: see whether it catches that."""
        frame = user_frame(sys._getframe(1))
        if frame is not None and not self._is_noting:
            trying = [(at, tried) for at in _frames_around(frame) if (tried := tried_lines_of_keys(at.f_code))]
            self._note((KeyError,), lambda: True, trying)

    def _note(
        self,
        errors: Errors,
        is_by_data: Callable[[], bool],
        trying: Sequence[tuple[FrameType, list[tuple[int, int]]]],
    ) -> None:
        """Have what may catch these errors converted, and then be a region."""
        if not self._open and not (trying and self._recorder.plan.control_flow == "stage"):
            return
        self._is_noting = True
        try:
            self._convert_handlers(is_by_data, trying)
            self._may_raise(errors, is_by_data)
        finally:
            self._is_noting = False

    def forget(self) -> None:
        """Keep no frame alive."""
        self._frame, self._trying = None, []

    @contextlib.contextmanager
    def quietly(self) -> Iterator[None]:
        """While it is entered, what is written is no part of what the program does."""
        before, self._is_noting = self._is_noting, True
        try:
            yield
        finally:
            self._is_noting = before

    def computed(self, symbol: Symbol) -> None:
        """A number is computed that may fail to be, once a node does it: in a `try`, that is done there."""
        is_read = isinstance(symbol.function, str) and symbol.function != "item"
        if self._is_noting or is_read or not self._recorder.is_running:
            return
        if not (errors := errors_of("call_function", symbol.function, symbol.args)):
            return
        self._lazy.append((symbol, self._recorder.region))
        frame = None if self._open else user_frame(sys._getframe(1))
        if frame is not None:
            self._look_around(frame)
            if self._recorder.plan.control_flow == "stage":
                self._convert_handlers(lambda: True, self._trying)
        if not any(_common(entry.errors, errors) for entry in self._open):
            return
        self._recorder.numbers.node_of_symbol(symbol)

    def force(self) -> None:
        """Compute the numbers that the program has computed before a `try`."""
        with self.quietly():
            regions = list(self._recorder.region.all())
            for symbol, region in self._lazy:
                if region in regions and region.number(symbol) is None and _is_known(self._recorder, symbol):
                    self._recorder.numbers.node_of_symbol(symbol)
        self._lazy.clear()

    def _may_raise(self, errors: Errors, is_by_data: Callable[[], bool]) -> None:
        recorder = self._recorder
        left = list(errors)
        for entry in reversed(self._open):
            caught = _common(entry.errors, tuple(left))
            if not caught:
                continue
            entry.may_raise = True
            if entry.kept is not None:
                entry.note(RuntimeError("the message of an operation"))
            elif not entry.is_final and not entry.passes_on:
                if recorder.plan.ways.get(entry.place) != "fork":
                    raise self.as_region(entry, "the program catches what an operation may raise")
                if is_by_data() and not entry.leaves:
                    raise self._refused()
            if not entry.is_final:
                left = [error for error in left if not issubclass(error, entry.errors)]

    def _refused(
        self, why: str = "the program catches what an operation raises for some data", fix: str = _FIX
    ) -> BaseException:
        """What to do where it matters that an operation fails for some data, and its `try` cannot be a region."""
        recorder = self._recorder
        restart = recorder.questions.refusals.outline(sys._getframe(1), why)
        if restart is not None:
            return recorder.questions.restart(restart)
        return refused(recorder, why, fix)

    def _look_around(self, frame: FrameType) -> None:
        """Find the functions on the stack that have handlers which were not seen to be entered."""
        self._frame = None if frame.f_code.co_flags & _GOES_ON else frame
        self._trying = []
        plain = self._without_handlers
        at: FrameType | None = frame
        while at is not None and at.f_code is not RUN:
            code = at.f_code
            if id(code) not in plain:
                tried = tried_lines(code)
                if tried:
                    self._trying.append((at, tried))
                else:
                    plain[id(code)] = code
            at = at.f_back

    def _convert_handlers(
        self, is_by_data: Callable[[], bool], trying: Sequence[tuple[FrameType, list[tuple[int, int]]]]
    ) -> None:
        """Have functions converted that are about to catch what is raised; refuse where that cannot be."""
        for at, tried in trying:
            if any(first <= at.f_lineno <= last for first, last in tried) and not self.catches_here(at):
                staging = self._recorder.questions.staging
                staging.convert_all(staging.convertible(at))
                if is_by_data():
                    raise self._refused()

    # ---- errors that are caught

    def caught(self, entry: Open, node: Node, kinds: Errors) -> Any:
        """The error that a handler gets."""
        examples = [error for error in entry.examples if isinstance(error, kinds)] or [_made(kinds[0])]
        self._caught[node] = examples, entry.place, kinds
        return ObjectProxy(self._recorder, examples[0], node)

    def asked(self, function: Callable[..., Any], args: Sequence[Any]) -> Any:
        """`str(error)`, `repr(error)`, `isinstance(error, kind)` and `type(error)`."""
        error, *kinds = args
        recorder = self._recorder
        if not is_error(error):
            return function(*args) if function is not str else error
        if function is type:
            return self.class_of(error)
        if function is not isinstance:
            return text_of(error, function)
        node = recorder.node("call_function", isinstance, (object_node(error), kinds[0]), {}, "isinstance")
        return recorder.numbers.of_node(node, UNKNOWN, bool)

    def class_of(self, error: ObjectProxy) -> type:
        """`type(error)`, which is to be what it is for the example: an operation may raise an error of another."""
        recorder, node = self._recorder, object_node(error)
        examples, place, _ = self._caught[node]
        if len({type(example) for example in examples}) > 1:
            raise self.given_up(place, "a handler asks for the class of an error")
        kind, key = type(examples[0]), ("class", node)
        if not any(key in region.attributes for region in recorder.region.all()):
            with self.quietly():
                arguments = (node, kind, recorder.where() or "")
                made = recorder.node("call_function", expect_class, arguments, {}, name="guard")
            recorder.region.attributes[key] = made
        return kind

    def comes_from(self, node: Node, error: Node) -> None:
        """A node gives what an error has."""
        self._caught[node] = self._caught[error]

    def refuse_text(self, node: Node) -> None:
        """Python asks for the text of an error: then each way that leads to one is a path."""
        known = self._caught.get(node)
        if known is not None and self._recorder.plan.ways.get(known[1]) == "attempt":
            raise self.given_up(known[1], "a handler makes a text of an error")

    def attribute(self, error: ObjectProxy, name: str) -> Any:
        """An attribute of an error: what it is like, all that are raised there have to agree on."""
        examples, place, _ = self._caught[object_node(error)]
        if name == "__cause__":
            raise self.given_up(place, "a handler reads what an error was raised from")
        forms = {_form(getattr(example, name, None)) for example in examples}
        if len(forms) > 1:
            raise self.given_up(place, "a handler reads what not all errors have")
        return attribute_of_error(error, name)

    def flush(self, region: Region) -> None:
        """An iteration of a loop ends."""
        for entry in self._open:
            if entry.kept is not None and entry.kept.is_noted_in(region):
                entry.kept.note()


_GOES_ON = 0x20 | 0x80 | 0x200  # flags of generators and coroutines: around these are other frames each time


def _parts(values: Any) -> list[Any]:
    """What nested containers and slices hold; a container of which only a run knows the content is a whole."""
    if isinstance(values, slice):
        values = (values.start, values.stop, values.step)
    if isinstance(values, tuple | list | dict) and not is_growing(values):
        items = dict.values(values) if isinstance(values, dict) else values
        return [part for item in items for part in _parts(item)]
    return [values]


def _frames_around(frame: FrameType) -> list[FrameType]:
    """The frames of a program, from one outwards."""
    found: list[FrameType] = []
    at: FrameType | None = frame
    while at is not None and at.f_code is not RUN:
        found.append(at)
        at = at.f_back
    return found


def _made(kind: type[BaseException]) -> BaseException:
    try:
        return kind("an error")
    except Exception:
        return RuntimeError("an error")


def _form(value: Any) -> Any:
    """What values that stand in one place have to agree on."""
    if type(value) is tuple:
        return tuple(map(_form, value))
    return torch.Tensor if isinstance(value, torch.Tensor) else value.__class__


def _kinds(handlers: Handlers) -> list[Errors] | None:
    """The classes that each handler catches; None where they are no classes, or cannot be known yet."""
    found = []
    for kinds, _ in handlers:
        try:
            given = BaseException if kinds is None else kinds()
        except Exception:
            return None
        group = given if isinstance(given, tuple) else (given,)
        if not all(issubclass(type(kind), type) and issubclass(kind, BaseException) for kind in group):
            return None
        found.append(group)
    return found


def _is_of_signature(error: Exception) -> bool:
    """Tell whether Python refuses the arguments of a call for their names or number: so it does in all calls."""
    frames = [*traceback.walk_tb(error.__traceback__)]
    is_refused = isinstance(error, TypeError) and _SIGNATURE.search(str(error)) is not None
    return is_refused and bool(frames) and is_internal(frames[-1][0].f_code.co_filename)


_SIGNATURE = re.compile(r"unexpected keyword argument|required positional argument|positional arguments? but")


def _common(caught: Errors, raised: Errors) -> bool:
    """Tell whether an error of one of the classes may be caught by a handler of others."""
    return any(issubclass(kind, caught) or any(issubclass(one, kind) for one in caught) for kind in raised)


def _is_known(recorder: TypedCapture, symbol: Symbol) -> bool:
    """Tell whether a number is one of the graph that is written, or of one around it."""
    graphs = {region.graph for region in recorder.region.all()}
    return all(_is_known(recorder, arg) if isinstance(arg, Symbol) else _is_there(arg, graphs) for arg in symbol.args)


def _is_there(value: Any, graphs: set[Graph]) -> bool:
    node = getattr(value, "_node", None) if not isinstance(value, Node) else value
    return not isinstance(node, Node) or node.graph in graphs
