"""What a first call leaves together: `if self.size != n: self.grid, self.size = make(n), n`, with None there before.

Such a None, an empty list or a flag that is False decides what a call does. A call that does not find it comes after
one that has set it, and starts with what calls leave in all the attributes that were written then: not with what they
held before the first one, such as a tensor without items, which may even be of another kind.

Where one of them is set and another is not, most programs raise an error. So where one way of a program does, either
all of what one call has set is there, or nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from graphwright.capture.effects.kept_kinds import Either, Grows, Unreadable, as_left
from graphwright.values import MIXED, Kind, OptionalKind, TensorKind

if TYPE_CHECKING:
    from graphwright.capture.state.places import Place
    from graphwright.capture.state.plan import Plan


class FirstCalls:
    """Whether one run of a program is a first call.

    `asks` tells whether a place holds what it holds before one, by a fork or, where it gets the answer, by a check.
    """

    def __init__(self, plan: Plan, asks: Callable[[Place, Any, bool | None], bool]) -> None:
        self._plan, self._asks = plan, asks
        self._answers: dict[Place, bool] = {}
        self._of_group: dict[int, bool] = {}

    def ask(self) -> None:
        """Ask for what decides, before anything is read."""
        for place, value in self._plan.at_first.items():
            if self.decides(place):
                self.finds(place, value)

    def decides(self, place: Place) -> bool:
        """Tell whether the program has an end for the calls that find what was there first, and one for the others."""
        plan, kind = self._plan, self._plan.kept.get(place)
        if plan.is_set_together and place in plan.at_first:
            return True
        if isinstance(kind, Either):
            return self._tells(place)
        if not isinstance(kind, OptionalKind):
            return False
        return not isinstance(kind.item, TensorKind) or ("attribute", place) in plan.ways

    def finds(self, place: Place, value: Any) -> bool:
        """Tell whether this run is that of the calls which find what was there first; the example has a value."""
        plan = self._plan
        if place not in self._answers:
            group = plan.groups.get(place, -1)
            sets = place in plan.at_first or place in plan.told_by_kind
            known = self._of_group.get(group) if plan.is_set_together and sets else None
            self._answers[place] = self._asks(place, value, known)
            if sets:
                self._of_group[group] = self._of_group.get(group, True) and self._answers[place]
        return self._answers[place]

    def kind(self, place: Place, kind: Kind) -> Kind | None:
        """The kind of what a later call finds, with the examples of what is left there; None in a first call."""
        left = self._plan.left.get(place)
        if left is None or self._of_group.get(self._plan.groups[place], True):
            return None
        if kind is MIXED or isinstance(left, Either):
            return MIXED if isinstance(left, OptionalKind | Either) else left
        return as_left(kind, left)

    def learn(self, place: Place, before: Any, now: Any, left: Kind) -> None:
        """Note what a run was the first to write: what was there before and what now, and of which kind that is."""
        plan = self._plan
        plan.groups[place], plan.left[place] = plan.groups_known, left
        if may_decide(before, now):
            plan.at_first[place] = before
        elif isinstance(plan.kept[place], Either):
            plan.told_by_kind.add(place)

    def _tells(self, place: Place) -> bool:
        """Tell whether the kind of what is there tells a first call: where nothing else does that one call sets."""
        groups = self._plan.groups
        return not any(groups.get(other) == groups.get(place) for other in self._plan.at_first)

    def learn_ends(self, ends: Mapping[Place, Any], joined: Callable[[Kind, Any], Kind]) -> bool:
        """Learn what this run leaves for later calls in the attributes that are kept; tell whether it was not known.

        What it was the first to write is complete: a run that has not ended is made again, and goes on with that.
        """
        self._plan.groups_known += self._plan.groups_known in self._plan.groups.values()
        left, groups, at_first = self._plan.left, self._plan.groups, self._plan.at_first
        set_now = {groups[place] for place, before in at_first.items() if not _is_unset(ends.get(place), before)}
        for place in self._plan.told_by_kind & ends.keys():
            kind = self._plan.kept[place]
            if isinstance(kind, Either) and self._tells(place) and joined(kind.first, ends[place]) is not kind.first:
                set_now.add(groups[place])
        known = {
            place: left[place]
            for place, value in ends.items()
            if groups.get(place) in set_now
            and type(value) is not Unreadable
            and not isinstance(self._plan.kept[place], Grows)
        }
        left.update({place: joined(kind, ends[place]) for place, kind in known.items()})
        return any(left[place] is not kind for place, kind in known.items())


def may_decide(before: Any, now: Any) -> bool:
    """Tell whether what was in an attribute may decide what a call does, and no call will find it there again."""
    if type(before) is list:
        return not before and type(now) is list and bool(now)
    return before is None or (before is False and now is True)


def _is_unset(value: Any, before: Any) -> bool:
    return value is None if before is None else type(value) is type(before) and not value
