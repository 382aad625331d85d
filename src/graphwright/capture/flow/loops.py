"""The loops of a program: those whose length only a run knows become regions of the graph, the others are run.

A loop over what the program knows runs iteration by iteration, as Python does. Where it then turns out to end at a
condition, the capture starts again and makes the whole of it a region, if what it goes over allows that.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import GeneratorType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import torch

from graphwright.capture.containers.open_iterables import iterable_of
from graphwright.capture.effects.branch_state import State
from graphwright.capture.effects.reach import ends_with_work
from graphwright.capture.flow.deciding import held
from graphwright.capture.flow.loop_regions import LoopRegion, is_open
from graphwright.capture.flow.placed_items import Placed, placed
from graphwright.capture.proxies.recording import MOST_OPERATIONS
from graphwright.capture.state.regions import Region, Writing
from graphwright.capture.state.running import again, let_go, refused

if TYPE_CHECKING:
    from graphwright.capture.state.places import Place
    from graphwright.capture.state.plan import Way
    from graphwright.capture.state.protocol import Capture
    from graphwright.capture.state.rungs import HasTruth

_NO_END = "on a way that the example need not go, this loop may have no end"


class Loops:
    """The loops of one capture."""

    def __init__(self, recorder: Capture) -> None:
        self._recorder = recorder
        self.going_over: list[Any] = []  # what loops that are run plainly go over, and read again for the next item

    def each(
        self,
        iterable: Iterable[Any],
        body: Callable[[Any], Any],
        names: tuple[str, ...],
        private: tuple[str, ...],
        asks_how: bool,
        target: str,
        is_alone: bool = False,
    ) -> Any:
        """`for item in iterable`; returns whether it was left. `is_alone`: nothing but the loop has the iterable."""
        pending = self._recorder.pending
        if pending is not None:
            if iterable_of(iterable, False) is not None:
                raise again(pending)
            return any(_truth(body(item), pending) for item in iterable)
        place, way = self._place()
        opened = iterable_of(iterable, way == "region")
        if opened is not None and (way is None or way == "region") and self._recorder.plan.control_flow == "stage":
            loop = LoopRegion(self._recorder, place, body, names, private, asks_how, items=opened, target=target)
            return loop.capture()
        if way is None and iterable_of(iterable, True) is None:
            way = "unroll"  # what it goes over has to be known
        items: Any = iterable if type(iterable) in _INDEXED else iter(iterable)
        new: Iterator[Any] = iter(())
        is_own = is_alone if items is iterable else sys.getrefcount(items) <= sys.getrefcount(new)
        plain = _Plain(body, names, private, place, way, is_own)
        self.going_over.append(items)
        items = _Alone(items) if is_alone and type(items) is GeneratorType else items
        try:
            return self._go_on(items, 0, plain)
        finally:
            self.going_over.pop()
            if is_alone:
                let_go()

    def _go_on(self, items: _Items, done: int, loop: _Plain) -> Any:
        """Run the body for items that the program knows, after some of a sequence; an iterator is after them itself."""
        for item in items if isinstance(items, Iterator) else _after(items, done):
            stop, done = loop.body(item), done + 1
            if stop is None or stop is False:
                continue
            if stop is True or self._stops(stop, loop.place, loop.way):
                return True
            if isinstance(items, _Alone) and ends_with_work(items.generator):
                items = items.generator  # that it moves on one side is told
            there = placed(items) if loop.has_alone and isinstance(items, Iterator) else None
            rest = self._rest(items, done, loop) if there is None else self._rest(there, 0, loop)
            return self._recorder.questions.branch(stop, _yes, rest, loop.names, private=loop.private)
        return False

    def _rest(self, items: _Items, done: int, loop: _Plain) -> Callable[[], Any]:
        """The iterations from here on, as a side of a branch: it finds the program's variables through the body."""
        _gw_body = loop.body
        return lambda: self._go_on(items, done, loop._replace(body=_gw_body))

    def _stops(self, stop: HasTruth, place: Place | None, way: Way | None) -> bool:
        """Decide whether a loop that is run plainly ends at a condition, where that is not to be a branch."""
        questions = self._recorder.questions
        subject = questions.subjects.subject_of(stop)
        key = questions.subjects.key_of(subject)
        if key in self._recorder.region.known:
            return self._recorder.region.known[key]
        if way is None:
            raise self._region_instead(place)
        return False

    def repeat(
        self,
        test: Callable[[], Any],
        body: Callable[[], Any],
        names: tuple[str, ...],
        private: tuple[str, ...],
        asks_how: bool,
    ) -> Any:
        """`while test()`; returns whether it was left."""
        pending = self._recorder.pending
        if pending is not None:
            while _truth(held(test()), pending):
                if _truth(body(), pending):
                    return True
            return False
        place, way = self._place()
        may_be_region = way in (None, "region", "peel") and self._recorder.plan.control_flow == "stage"
        is_first, rounds = True, 0
        while True:
            rounds += 1
            if rounds > MOST_OPERATIONS and self._recorder.plan.answers:  # which may be none that any inputs give
                raise refused(self._recorder, _NO_END, "keep the function as one node: leaf_functions=[...]")
            value = self._peek(test, place) if may_be_region else held(test())
            symbolic = is_open(value)
            if symbolic and (key := self._key(value)) in self._recorder.region.known:
                value, symbolic = self._recorder.region.known[key], False
            if not symbolic and not value:
                return False
            if (symbolic or way == "region") and may_be_region:
                if not is_first and way is None:
                    raise self._region_instead(place)
                loop = LoopRegion(self._recorder, place, body, names, private, asks_how, test=test)
                return loop.capture()
            if symbolic and not self._recorder.questions.branch(held(test()) if may_be_region else value, _yes, _no):
                return False
            stop = body()
            is_first = False
            if stop is True:
                return True
            if stop is None or stop is False:
                continue
            if way is None:
                raise self._region_instead(place)
            if self._recorder.questions.branch(stop, _yes, _no):
                return True

    def _key(self, value: HasTruth) -> Any:
        questions = self._recorder.questions
        return questions.subjects.key_of(questions.subjects.subject_of(value))

    def _region_instead(self, place: Place | None) -> BaseException:
        return self._recorder.questions.restart(
            self._recorder.plan.change(place, "region", "the loop ends where data says so")
        )

    def _place(self) -> tuple[Any, Any]:
        place = self._recorder.questions.place()
        return place, self._recorder.plan.ways.get(place)

    def _peek(self, test: Callable[[], Any], place: Place | None) -> Any:
        """The condition of a loop, without what computes it where that is done in the loop again."""
        recorder = self._recorder
        state = State((test,), (), ())
        region = Region(recorder.region, sys._getframe(), place)
        mark = recorder.mark()
        with Writing(recorder, region):
            value = test()
        if is_open(value) or any(node.op != "placeholder" for node in region.graph.nodes):
            state.restore()
            recorder.back_to(mark)
            return value if is_open(value) else test()
        return value


_INDEXED = (list, tuple, torch.Size, range)  # an iterator over one would be a value that a side of a branch changes


_Items: TypeAlias = "Sequence[Any] | Placed | Iterator[Any] | _Alone"


class _Plain(NamedTuple):
    """A loop that is run iteration by iteration; `has_alone`: nobody else has the iterator that it moves."""

    body: Callable[[Any], Any]
    names: tuple[str, ...]
    private: tuple[str, ...]
    place: Place | None
    way: Way | None
    has_alone: bool


@dataclasses.dataclass(frozen=True, eq=False)
class _Alone:
    """A generator that nothing but the loop has: on whichever side the loop is left, nobody asks how far it is."""

    generator: Iterator[Any]


def _after(items: Sequence[Any] | Placed | _Alone, done: int) -> Iterator[Any]:
    """The items that are left; those of a list are looked up one by one, as in Python, which may make it longer."""
    if isinstance(items, _Alone):
        yield from items.generator
        return
    while done < len(items):
        yield items[done]
        done += 1


def _yes() -> bool:
    return True


def _no() -> bool:
    return False


def _truth(value: HasTruth, pending: BaseException) -> bool:
    """What decides a loop on the way out of a pass, where what is to be done in the end is done: data cannot."""
    if is_open(value):
        raise again(pending)
    return bool(value)
