"""What of the state of a program is one object: which containers are, and that the program gives them back themselves.

A program may leave one list in two attributes. The next call then finds one where the capture found two: what it does
to the one it does to the other, and `is` has another answer. The capture reads each by its own name; so where the
program changes one of them in place, or asks whether they are one, the graph checks first that they still are what the
capture found.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from graphwright.capture.effects.held_tables import held_by
from graphwright.capture.proxies.contents import HOLDERS
from graphwright.capture.proxies.growing import is_growing
from graphwright.capture.state.regions import Writing, made_once
from graphwright.errors import CaptureError
from graphwright.runtime import MODULE_TABLES, is_state

if TYPE_CHECKING:
    from graphwright.capture.effects.kept_tables import Table
    from graphwright.capture.state.places import Place
    from graphwright.capture.state.protocol import TypedCapture
    from graphwright.ir import Node


class KeptApart:
    """The pairs of places that may hold one container, of one capture; the plan knows them from pass to pass."""

    def __init__(self, recorder: TypedCapture, read: Callable[[Place], Node]) -> None:
        self._recorder = recorder
        self._read = read
        self._pairs = recorder.plan.alike_places  # whether there is something to check
        self._checked: set[tuple[Place, Place]] = set()
        self._stood: dict[Place, int] = {}  # what stood in places that start with live values, by id

    def note(self, place: Place, value: Any) -> None:
        """A live value is about to stand in the place of one."""
        self._stood[place] = id(value)

    def check(self, tables: list[Table]) -> None:
        """Have the graph check, before anything else, what the program takes for granted of pairs known by now."""
        pairs = [pair for pair, matters in self._pairs.items() if matters and pair not in self._checked]
        found = dict(_containers(tables)) if pairs else {}
        for pair in pairs:
            one, other = map(found.get, pair)
            if one is None or other is None or one is other:
                continue  # that two are one is taken for granted anyway
            self._checked.add(pair)
            recorder = self._recorder
            if self._stood.get(pair[0], id(one)) == self._stood.get(pair[1], id(other)):
                raise CaptureError(
                    f"{' and '.join(map(_title, pair))} are one object, of which the program replaces one and "
                    "changes, or asks about, the other: later calls find two",
                    fix="capture it after its first call, or have two from the start",
                )
            with Writing(recorder, recorder.root):
                node = recorder.node("call_function", operator.is_, tuple(map(self._read, pair)), {}, "is_one")
                symbol = recorder.numbers.input_symbol(node, False)
                recorder.questions.guards.guard(symbol, " is ".join(map(_title, pair)))

    def learn(self, tables: list[Table]) -> bool:
        """Note which places the program leaves with one container, or tells apart; tell whether that is to be checked.

        What is in `told_apart` has been compared by `is`, as it was found.
        """
        first: dict[int, Place] = {}
        for place, value in _containers(tables):
            other = first.setdefault(id(value), place)
            if other != place:
                self._pairs.setdefault((other, place), False)
        first = {key: place for place, key in self._stood.items()}
        for place, value in _containers(tables, by_start=True) if first else ():
            other = first.get(self._stood.get(place, id(value)), place)
            if other != place:
                self._pairs.setdefault((other, place), False)
        found = {pair: any(map(self._changes, pair)) for pair in self._pairs}  # another way may have left them so
        asked = self._recorder.told_apart
        places = [place for place, value in _containers(tables, by_start=True) if id(value) in asked] if asked else []
        found.update(dict.fromkeys(itertools.combinations(places, 2), True))
        new = {pair: True for pair, matters in found.items() if matters and not self._pairs.get(pair)}
        self._pairs.update(new)
        return bool(new)

    def held(self, tables: list[Table]) -> dict[int, Callable[[], Node]]:
        """How the graph reads the containers and objects that the program leaves where they are, by their ids.

        Whoever gets one from the program gets the very one: what is done to it is done to what the module holds.
        """
        found: dict[int, Callable[[], Node]] = {}
        for table in tables:
            path, keys = table.path, table.keys
            if keys is not None and not is_growing(table.now):
                found.setdefault(id(table.now), made_once(functools.partial(self._read, (path, keys))))
        return found

    def _changes(self, place: Place) -> bool:
        """Tell whether the program writes in what a place held at the start; nodes of what grows see that anyway."""
        path, keys = place
        return any(at == path and inner[: len(keys)] == keys != inner for at, inner in self._recorder.plan.kept)


def _containers(tables: list[Table], by_start: bool = False) -> Iterator[tuple[Place, Any]]:
    """The containers and objects that tables hold now, or held at the start, each with its place."""
    for table in tables:
        for key, value in (table.before if by_start else held_by(table.now)).items():
            is_own = table.keys is not None or key not in MODULE_TABLES
            if is_own and (type(value) in HOLDERS or is_growing(value) or is_state(value)):
                yield table.place(key), value


def _title(place: Place) -> str:
    return ".".join(("self", place[0], *map(str, place[1])))
