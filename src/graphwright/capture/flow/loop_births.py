"""Variables that have their first value in a loop: after it, that of the last iteration, if there was one.

Whether there was, a value of the loop says: one that is None where no iteration has left it, or one made for that.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from graphwright.capture.flow.loop_state import Born, Carried
from graphwright.capture.proxies.contents import held_parts
from graphwright.capture.proxies.unbound import BoundIf, BoundIfRun
from graphwright.capture.state.samples import MISSING, UNSET
from graphwright.source import HIDDEN
from graphwright.values import (
    INSIDE,
    Container,
    Given,
    HasParts,
    NumberKind,
    OneWay,
    OptionalKind,
    Path,
    Template,
    filled,
)

if TYPE_CHECKING:
    from graphwright.capture.effects.branch_state import State
    from graphwright.capture.state.places import Place
    from graphwright.capture.state.protocol import Capture
    from graphwright.capture.state.rungs import HasTruth

_RAN = "has_run"  # the value of a loop that tells whether there was an iteration


@dataclasses.dataclass(eq=False)
class _BoundWhere(Template):
    """A variable that has a value where the loop was left, or where it ran: its template, and what tells that."""

    kind: type[BoundIf] | type[BoundIfRun]
    about: tuple[str, str | None, Place | None]
    value: Any
    decider: Carried

    def filled(self, given: Given) -> Any:
        """What the variable holds after the loop."""
        return self.kind(*self.about, filled(self.value, given), filled(self.decider, given))


class Births(OneWay):
    """Carries out of a loop what is born in it: what only a run has gets a slot, after those that the loop has."""

    def __init__(
        self, recorder: Capture, slots: list[Carried], state: State, place: Place | None, at: str | None
    ) -> None:
        self._recorder, self._slots, self._state = recorder, slots, state
        self._watched = {id(container) for container, _ in state._containers}
        self._place, self._at = place, at
        self._out: dict[int, Container] = {}  # objects that are born in the loop, by id
        self._name = ""

    def outcome(self, template: Any, broken: Carried | None, surely_runs: bool) -> Any:
        """The template of a value after the loop. `broken` says whether the loop was left, where that is known."""
        if not isinstance(template, Born):
            return template
        name = self._name = template.name.partition(HIDDEN)[0]
        after, last = template.after, template.after if template.last is None else template.last
        if type(after) is BoundIf:
            held, decider = after.parts()
            if broken is None or not self._is_one(broken.after, decider):
                return after.unbound()
            made = self.join(held, last.parts()[0] if type(last) is BoundIf else held)
            return _BoundWhere(BoundIf, (name, self._recorder.where(), self._place), made, broken)
        if type(after) is BoundIfRun:
            after, last = after.value(), last.value() if type(last) is BoundIfRun else after.value()
        elif template.entry is UNSET or surely_runs or HIDDEN in template.name or not name:
            return self.join(after, last)
        made = self.join(after, last)
        return _BoundWhere(BoundIfRun, (name, self._at, self._place), made, self._witness(made))

    def leaf(self, value: Any, last: Any, path: Path) -> Any:
        """A slot for what only a run has, and for numbers, with what the last iteration of the example leaves."""
        joining = self._recorder.joining
        if id(value) in self._watched or self._state.was_there(value):
            return value
        if joining.is_open(value) or type(value) in (int, float, bool):
            sample = joining.sample(MISSING, value)
            self._slots.append(Carried(len(self._slots), MISSING, sample, self._name, value, last))
            return self._slots[-1]
        return self._out.get(id(value), INSIDE) if held_parts(value) else value

    def pairs(self, value: HasParts, last: Any, path: Path) -> dict[Any, tuple[Any, Any]]:
        """What a container holds, each with what the last one does."""
        held, its = held_parts(value) or {}, held_parts(last)
        its = held if its is None or its.keys() != held.keys() else its
        return {key: (part, its[key]) for key, part in held.items()}

    def whole(self, value: HasParts, last: Any, items: dict[Any, Any], path: Path) -> Any:
        """One container for each that is born."""
        return self._out.setdefault(id(value), Container(value, items))

    def _is_one(self, stop: HasTruth, decider: HasTruth) -> bool:
        subjects = self._recorder.questions.subjects
        one, other = (subjects.key_of(subjects.subject_of(value)) for value in (stop, decider))
        return bool(one == other)

    def _witness(self, template: Any) -> Carried:
        """A slot that is None where no iteration has left a value in it: one of a template, or one for that."""
        inner = [template]
        while inner:
            part = inner.pop()
            if isinstance(part, Container):
                inner += part.items.values()
            elif isinstance(part, Carried) and part.initial is MISSING and not isinstance(part.sample, OptionalKind):
                return part
        known = next((slot for slot in self._slots if slot.name == _RAN), None)
        if known is None:
            known = Carried(len(self._slots), MISSING, NumberKind(bool, True), _RAN, True, True)
            self._slots.append(known)
        return known
