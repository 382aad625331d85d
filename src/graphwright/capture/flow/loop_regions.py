"""Loops whose length only a run knows, captured as one run of their body.

A first run of the body tells which of the variables, container items and attributes that it reaches are others
afterwards. These become inputs of the body, and it runs again on them, until no further one changes: what changes from
one iteration to the next is then exactly what the loop carries. What one run leaves is undone before the next.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch

from graphwright.capture.containers.loop_dicts import LoopDict
from graphwright.capture.containers.loop_holders import Holder
from graphwright.capture.containers.loop_lists import LoopTuple
from graphwright.capture.containers.loop_sets import LoopSet
from graphwright.capture.containers.open_iterables import OpenIterable
from graphwright.capture.containers.opening import is_held, make_growing
from graphwright.capture.effects.branch_state import State, cells_of
from graphwright.capture.effects.choices import Choice
from graphwright.capture.flow.deciding import held, recorder_of
from graphwright.capture.flow.loop_births import Births
from graphwright.capture.flow.loop_joins import LoopJoin
from graphwright.capture.flow.loop_state import Carried, is_same, note
from graphwright.capture.flow.watched import check_end, run_watched
from graphwright.capture.proxies.unbound import BoundIfRun
from graphwright.capture.state.examples import NeedsRealValues
from graphwright.capture.state.plan import Way
from graphwright.capture.state.regions import Region, Writing
from graphwright.capture.state.running import Refusal, stopping
from graphwright.capture.state.samples import MISSING, Grows, Unlike
from graphwright.capture.state.side_ended import Raised
from graphwright.capture.state.symbols import UNKNOWN
from graphwright.errors import CaptureError, TraceError
from graphwright.ir import Node
from graphwright.ops import write_loop
from graphwright.source import content_of, targets_in
from graphwright.values import Given, NumberKind, filled, loose_sizes

if TYPE_CHECKING:
    from graphwright.capture.state.places import Place
    from graphwright.capture.state.protocol import Capture
    from graphwright.capture.state.rungs import HasTruth

_MOST_RUNS = 20  # of a body, until what it changes is known
_LONGEST_EXAMPLE = 1000  # iterations


def is_open(value: Any) -> bool:
    """Tell whether only a run knows the truth of a value."""
    return recorder_of(held(value)) is not None


class _Empty(BaseException):
    """The loop goes over, or reads, what is empty as far as is known yet."""


class _Run:
    """One run of a loop's body: where it was written, the state that it found and the one that it left."""

    region: Region
    item: Node
    test: Any = None  # the argument that says whether there is a further iteration
    test_region: Region | None = None
    entry: list[Any]
    after: list[Any]
    before: list[Any]  # the state before the loop
    template: list[Any]
    stop: Any = False
    goes_on: bool | None = None  # what the condition is for the example

    @property
    def reads_early(self) -> bool:
        """Whether an item of a list is read before the list is known to have any."""
        return self.region.reads_early or (self.test_region is not None and self.test_region.reads_early)


class LoopRegion:
    """One loop being captured."""

    def __init__(
        self,
        recorder: Capture,
        place: Place | None,
        body: Callable[..., Any],
        names: tuple[str, ...],
        private: tuple[str, ...],
        asks_how: bool,
        items: OpenIterable | None = None,
        target: str = "",
        test: Callable[[], Any] | None = None,
    ) -> None:
        self._recorder, self._place, self._body, self._items, self._test = recorder, place, body, items, test
        self._target = target
        self._asks_how = asks_how
        self._functions = (body,) if test is None else (test, body)
        self._names, self._alive = names, tuple([name for name in names if name not in private])
        self._cells = cells_of(self._functions)
        for name in private:
            if name in self._cells:
                self._cells[name].cell_contents = None
                del self._cells[name].cell_contents
        held = [*map(content_of, self._cells.values())]
        # Lists that grow, and what is in them before the loop.
        self._grown = [
            (value, value.content()) for value in held if isinstance(value, Holder) and not isinstance(value, LoopTuple)
        ]
        self._at = recorder.where()

    def capture(self) -> Any:
        """Write the loop; return whether it was left."""
        recorder = self._recorder

        def watch() -> State:
            self._state = State(self._functions, self._names, self._alive, is_loop=True)
            return self._state

        def grow(state: State, growth: Grows) -> None:
            self._grown.append(make_growing(recorder, state, growth, self._place, self._plain_way()))

        try:
            run = run_watched(recorder, watch, self._last_run, grow, self._unlike)
        except _Empty:
            return False
        with torch._C.DisableTorchFunction():  # the recorder must not see what is done here
            return self._finish(run)

    # ---- runs of the body

    def _last_run(self, state: State) -> _Run:
        """Run the body until it is known what the loop carries; return the last run."""
        self._join = LoopJoin(self._recorder, self._place, self._plain_way)
        self._slots = self._join.slots  # what is known to be carried
        try:
            return self._settled_run(state.read())
        except Unlike as why:
            raise self._unlike(str(why)) from None

    def _settled_run(self, template: list[Any]) -> _Run:
        recorder = self._recorder
        mark = recorder.mark()
        for _ in range(_MOST_RUNS):
            recorder.back_to(mark)
            kinds = [grown.kind for grown, _ in self._grown]
            run = self._run(template)
            grows = any(grown.kind is not kind for (grown, _), kind in zip(self._grown, kinds, strict=True))
            template = [*template, *run.before[len(template) :]]
            names = [*self._state.names, *[""] * (len(template) - len(self._state.names))]
            self._join.has_changed = grows
            with torch._C.DisableTorchFunction():
                run.template = template = self._join.state(run.entry, run.after, names, self._wholes())
            if self._join.has_changed:
                continue
            if not run.reads_early:
                break
            if not recorder.region.note_early_read():  # a loop around this one fills it
                raise Unlike("an item is read of a list or dict in which there never is one")
            raise _Empty
        else:
            raise Unlike("what an iteration changes is not the same in each")
        for slot in self._slots:
            slot.last = slot.after
        count = None if self._items is None else self._items.length()
        has_tables = any(isinstance(grown, LoopDict | LoopSet) for grown, _ in self._grown)
        if recorder.examples.is_real or (has_tables and count is not None):
            self._rehearse(template, mark, count)
        else:
            self._repeat_content()
            if any(loose_sizes(slot.sample) for slot in self._slots):
                contents = [(grown, grown.content()) for grown, _ in self._grown]
                if not self._rehearse(template, mark, 2):
                    raise stopping(NeedsRealValues("the size of a tensor changes in a loop"))
                for grown, content in contents:
                    grown.set_content(content)
        lists = [values for values, _ in self._grown if not isinstance(values, LoopDict | LoopSet)]
        needs = recorder.examples.are_there and not recorder.examples.is_real
        if needs and not all(values.is_certain for values in lists):
            raise stopping(NeedsRealValues("how long a list is depends on data"))
        return run

    def _run(self, template: list[Any], index: int = 0, as_example: bool = False) -> _Run:
        """Run the body once, on stand-ins of what it finds; `as_example` only where the example does."""
        run = _Run()
        if self._test is not None:
            with self._iteration(template, run, index == 0, sys._getframe()) as run.test_region:
                self._ask(run)
            if as_example and run.goes_on is False:
                return run
        with self._iteration(template, run, index == 0, sys._getframe()) as run.region:
            self._go(run, index)
        return run

    def _ask(self, run: _Run) -> None:
        """Run the condition of a `while`."""
        recorder = self._recorder
        assert self._test is not None
        value = held(self._test())
        recorder.ambient.notice()
        run.goes_on = recorder.questions.guards.of_example(value) if is_open(value) else bool(value)
        run.test = recorder.numbers.predicate(value) if is_open(value) else bool(value)
        self._state.check()
        if not all(map(is_same, self._state.read(), run.entry)):
            raise Unlike("the condition of the loop changes values")

    def _go(self, run: _Run, index: int) -> None:
        """Run the body itself."""
        recorder, state = self._recorder, self._state
        depth, has_raised = recorder.ambient.depth, False
        try:
            run.stop = self._body() if self._items is None else self._body(self._item(run, index))
            recorder.ambient.notice()
            recorder.choices.look()
            recorder.attempts.flush(run.region)
        except Raised:
            has_raised = True
        check_end(recorder, depth, lambda: Unlike("a context is entered or left in the loop"))
        state.check()
        run.after = list(run.entry) if has_raised else state.read()
        run.before = state.values_before()
        run.entry += run.before[len(run.entry) :]
        run.after += run.before[len(run.after) :]

    def _item(self, run: _Run, index: int) -> Any:
        assert self._items is not None
        return self._items.item(self._recorder, run.item, targets_in(self._target), index)

    @contextlib.contextmanager
    def _iteration(self, template: list[Any], run: _Run, is_first: bool, frame: FrameType) -> Iterator[Region]:
        """Write to a graph of its own, with the state that an iteration finds; then put the state back."""
        region = Region(self._recorder.region, frame, self._place)
        region.is_loop = True
        region.is_data = self._items is None or self._items.is_data
        region.plain_way = self._plain_way()
        mark = self._recorder.choices.mark()
        with Writing(self._recorder, region):
            try:
                self._enter(template, run, is_first)
                yield region
            except (Unlike, Grows):
                raise
            except (Exception, Refusal) as error:
                raise self._failed(error) from error
            finally:
                self._state.restore()
                self._recorder.choices.cut(mark)

    def _enter(self, template: list[Any], run: _Run, is_first: bool) -> None:
        """Give the state what an iteration finds: stand-ins, which are inputs of its graph."""
        recorder, region = self._recorder, self._recorder.region
        recorder.writes.start_loop()
        if self._items is not None:
            run.item = region.add_input(self._target if self._target.isidentifier() else "item")
        with torch._C.DisableTorchFunction():
            nodes = [region.add_input(slot.name or "value") for slot in self._slots]
            region.flags = {node for slot, node in zip(self._slots, nodes, strict=True) if slot.is_flag}
            pairs = zip(self._slots, nodes, strict=True)
            given = Given([recorder.joining.stand_in(slot.sample, node, self._place) for slot, node in pairs])
        run.entry = [tree.afresh() if type(tree) is BoundIfRun else filled(tree, given) for tree in template]
        self._state.write(run.entry, lambda: None, self._place)
        self._note_choices(given, lambda value: is_held(value, sys._getframe(1)))
        for grown, content in self._grown if is_first else ():
            grown.set_content(content)
            if isinstance(grown, LoopDict | LoopSet):
                grown.is_certain = True

    def _note_choices(self, given: Given, is_held: Callable[[Any], bool] | None) -> None:
        """Tell `choices` which objects may be the ones from before the loop, or those of the iteration before."""
        made = [(slot.of, value) for slot, value in zip(self._slots, given.values, strict=False)]
        made += [(each.of, value) for each, value in given.made.items()]
        for of, value in made:
            if of:
                self._recorder.choices.note(Choice(value, [*of], self._chosen, is_held))

    def _chosen(self, why: str) -> BaseException:
        return self._given_up(why, None, self._at)

    def _repeat_content(self) -> None:
        """Fill the lists that grow with as many items as the example has."""
        count = self._items.length() if self._items is not None else None
        for grown, before in self._grown:
            if isinstance(grown, LoopDict | LoopSet):  # which keys it has then is not known
                grown.is_certain = False
                continue
            added = grown.content()[len(before) :]
            grown.is_certain &= count is not None
            grown.set_content([*before, *added * (1 if count is None else count)])

    def _rehearse(self, template: list[Any], mark: Any, count: int | None) -> bool:
        """Run the loop as the example does, for so many iterations, to know what it leaves there.

        Returns whether the last iteration left all tensors with the sizes that it found.
        """
        recorder = self._recorder
        samples = {slot: slot.sample for slot in self._slots}
        for slot in self._slots:
            slot.sample = recorder.joining.like(slot.sample, slot.initial)
        is_stable = True
        for index in range(_LONGEST_EXAMPLE if count is None else count):
            recorder.back_to(mark)
            run = self._run(template, index, as_example=True)
            if run.goes_on is False:
                break
            for tree, value in zip(template, run.after, strict=False):
                note(tree, value)
            is_stable = not any(recorder.joining.changes_size(slot.sample, slot.last) for slot in self._slots)
            for slot in self._slots:
                slot.sample = recorder.joining.like(slot.sample, slot.last)
            if recorder.questions.guards.of_example(held(run.stop)) if is_open(run.stop) else run.stop:
                break
        for slot in self._slots:
            slot.sample = samples[slot]
        recorder.back_to(mark)
        return is_stable

    # ---- what an iteration changes

    def _wholes(self) -> list[Any]:
        """The containers of the program that the state tells the content of."""
        return [*[None] * len(self._state.names), *[now for now, _ in self._state._containers]]

    # ---- failures

    def _plain_way(self) -> Way | None:
        """How a loop over items can be run plainly; None where only data tells how often it runs."""
        if self._items is None or self._items.is_data:
            return None
        return "unroll" if self._items.is_plain else "guard"

    def _unlike(self, why: str) -> BaseException:
        return self._given_up(why, None)

    def _given_up(self, why: str, error: BaseException | None, at: str | None = None) -> BaseException:
        """What to do where the loop cannot be captured so."""
        recorder, questions = self._recorder, self._recorder.questions
        way: Way | None = None
        if self._items is not None:
            way = self._plain_way()
        elif recorder.plan.ways.get(self._place) == "region":
            way = "peel"
        else:
            way = "fork"
        if way is not None:
            return questions.restart(recorder.plan.change(self._place, way, why))
        restart, kind = None, CaptureError if recorder.examples.are_there else TraceError
        if recorder.examples.are_there:
            restart = recorder.questions.refusals.outline(sys._getframe(1), f"a loop cannot be captured: {why}")
        if restart is not None:
            return questions.restart(restart)
        return stopping(
            error
            if isinstance(error, Refusal)
            else Refusal(
                kind(
                    f"a loop whose length depends on data cannot be captured: {why}",
                    at=at or recorder.where(),
                    fix="have each iteration leave values of the same kinds as it finds",
                )
            )
        )

    def _failed(self, error: Exception | Refusal) -> BaseException:
        """What to do where the body raises what is no part of the program."""
        recorder = self._recorder
        if recorder.pending is not None and not isinstance(recorder.pending, Refusal):
            return recorder.pending
        codes = recorder.questions.staging.convertible_at(error)
        if codes:
            return recorder.questions.restart(recorder.plan.convert(codes))
        cause = getattr(error, "error", error)
        return self._given_up(f"an iteration raises {type(cause).__name__}: {cause}", error)

    # ---- the graph

    def _finish(self, run: _Run) -> Any:
        """Write the loop into the graph, and give the state the values after it; return whether it was left."""
        recorder = self._recorder
        slots = [*self._slots]
        stops = run.stop is not None and run.stop is not False
        broken = None
        if self._asks_how and stops:
            broken = Carried(len(slots), False, NumberKind(bool, False), "broken", run.stop, run.stop)
            slots.append(broken)
        births = Births(recorder, slots, self._state, self._place, self._at)
        surely_runs = run.test is True or (self._items is not None and self._items.is_plain and self._items.length())
        outcome = [births.outcome(tree, broken, bool(surely_runs)) for tree in run.template]
        regions = [region for region in (run.test_region, run.region) if region is not None]
        for slot in slots[len(self._slots) :]:
            for region in regions:
                region.add_input(slot.name or "value")
        test = None
        if run.test_region is not None:
            with Writing(recorder, run.test_region):
                test = run.test_region, recorder.lifted(run.test)
        with Writing(recorder, run.region):
            stop = recorder.lifted(self._decision(run.stop)) if stops else None
            results = [recorder.lifted(recorder.argument(slot.after)) for slot in slots]
        starts = [None if slot.initial is MISSING else recorder.argument(slot.initial) for slot in slots]
        subject = None if self._items is None else self._items.argument(recorder)
        make, names = functools.partial(recorder.make, "call_function"), [slot.name or "value" for slot in slots]
        items = write_loop(make, subject, test, run.region, starts, results, stop, names, recorder.site(), "loop")
        hint, values = None if recorder.examples.is_real else UNKNOWN, []
        for slot, item in zip(slots, items, strict=True):
            sample = recorder.joining.like(slot.sample, slot.last)
            values.append(recorder.joining.stand_in(sample, item, self._place, hint))
        given = Given(values)
        self._state.write([filled(tree, given) for tree in outcome], recorder.where, self._place)
        self._note_choices(given, None)
        return False if broken is None else filled(broken, given)

    def _decision(self, stop: HasTruth) -> Any:
        """The argument that says whether the loop ends."""
        if not is_open(stop):
            return True
        made = self._recorder.region.graph._root.prev
        decision = self._recorder.numbers.predicate(held(stop))
        is_truth = made.target is bool and decision is not made and not made.users
        if is_truth and not self._asks_how:
            made.graph.erase_node(made)
        return decision
