"""Two values that become one: what is the same stays, what differs has a place in it for a value of the branch.

Which of two objects a name means after a branch is a choice of the run: what stands for them holds what either holds,
and `choices` learns of it. What is one object on both sides is one object afterwards, however many names it has.
"""

from __future__ import annotations

import collections
import copy
import dataclasses
import functools
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from graphwright.capture.containers.loop_lists import LoopList, LoopTuple
from graphwright.capture.effects.branch_state import EMPTY, Bound, OneSided, State
from graphwright.capture.effects.choices import Choice
from graphwright.capture.proxies.contents import changeable
from graphwright.capture.proxies.growing import is_growing
from graphwright.capture.proxies.unbound import BoundIf, BoundIfRun, Unbound
from graphwright.capture.state.regions import Region
from graphwright.capture.state.samples import MISSING, UNSET, Unlike
from graphwright.capture.state.tensor_proxy import is_uncertain
from graphwright.values import is_record, made, parts, rebuild

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import Capture

__all__ = ["Container", "Join", "Leaving", "Slot"]


@dataclasses.dataclass(frozen=True, slots=True)
class Slot:
    """In joined values, the place of the branch's value with this number."""

    number: int


@dataclasses.dataclass(eq=False, slots=True)
class Container:
    """In joined values: a container to make of joined items, once. `of` are the objects that it stands for."""

    like: Any
    items: dict[Any, Any]
    of: tuple[Any, ...] = ()
    made: Any = MISSING

    def filled(self, values: list[Any]) -> Any:
        """The container with the values of the slots in it."""
        if self.made is MISSING:
            items = {key: filled(item, values) for key, item in self.items.items()}
            self.made = self._made(items)
        return self.made

    def _made(self, items: dict[Any, Any]) -> Any:
        like, kind = self.like, type(self.like)
        if kind is set:
            return set(items)
        if kind is collections.deque:
            return collections.deque(items.values(), like.maxlen)
        if not self.of:
            return made(kind, items)
        held = parts(like) or {}
        if list(held) == list(items) and all(held[key] is item for key, item in items.items()):
            return copy.copy(like)  # past what its constructor does
        return rebuild(like, items)


@dataclasses.dataclass(frozen=True, slots=True)
class Ran:
    """In joined values: a variable that has a value where a loop ran."""

    about: BoundIfRun
    value: Any

    def filled(self, values: list[Any]) -> BoundIfRun:
        """The variable with its value."""
        value = filled(self.value, values)
        return self.about.with_value(value, value)


def filled(value: Any, values: list[Any]) -> Any:
    """A joined value, with the values of the branch in their places."""
    if isinstance(value, Slot):
        return values[value.number]
    if isinstance(value, Bound):
        return Bound(filled(value.value, values))
    return value.filled(values) if isinstance(value, Container | Ran) else value


class Join:
    """The values of two sides of a branch, joined: `leaves` are the pairs of what differs.

    `held` tells for each side what the containers of the state hold at its end, by id: they have been put back.
    """

    def __init__(self, recorder: Capture, held: Sequence[dict[int, Any]] = ({}, {})) -> None:
        self._recorder = recorder
        self._held = held
        self.leaves: list[tuple[Any, Any]] = []
        self._containers: dict[tuple[int, int], Container] = {}
        self._lists: dict[int, tuple[Any, ...]] = {}  # by number of the leaf: what a list of any length stands for

    def join(self, a: Any, b: Any, may_be_none: bool = True) -> Any:
        """Join two values: what holds `Slot`s for what differs. Raises Unlike.

        A tensor and None make a tensor that may be None, but only in variables: whoever reads it there is converted.
        """
        if a is b:
            return a
        if a is EMPTY or b is EMPTY:
            return OneSided
        if a is UNSET or b is UNSET:
            return self.on_one_side(b if a is UNSET else a, a is UNSET)
        if type(a) is BoundIfRun or type(b) is BoundIfRun:
            return self._bound_if_run(a, b)
        if isinstance(a, Unbound) or isinstance(b, Unbound):
            return a if isinstance(a, Unbound) else b
        known = self._containers.get((id(a), id(b)))
        if known is not None:
            return known
        if type(a) is type(b) and type(a) in (tuple, list) and len(self._parts(a, 0)) != len(self._parts(b, 1)):
            return self._of_any_length(a, b)
        if self._recorder.typed is not None:
            a, b = self._recorder.typed.numbers.firm_beside(a, b)
        verdict = self._recorder.joining.verdict(a, b, may_be_none)
        if verdict == "join" and (is_growing(a) or is_growing(b)):
            return self._grown(a, b)
        if verdict != "look inside":
            return self.slot(a, b) if verdict == "join" else a
        return self._inside(a, b, may_be_none)

    def contents(self, a: Any, b: Any) -> Any:
        """Join what one container of the state holds at the ends of the two sides. Raises Unlike."""
        if a is b or (type(a) is dict and type(b) is dict and _are_one(a, b)):
            return a
        return self._inside(a, b, False, are_contents=True)

    def on_one_side(self, value: Any, is_second: bool) -> Any:
        """Join a value with none: what of it only a run has is None on the other side."""
        if self._recorder.joining.is_open(value) or type(value) in (int, float, bool):
            return self.slot(MISSING, value) if is_second else self.slot(value, MISSING)
        held = None if is_record(value) else parts(value)
        if held is None:
            return value
        key = (id(MISSING), id(value)) if is_second else (id(value), id(MISSING))
        if key not in self._containers:
            items = {key: self.on_one_side(item, is_second) for key, item in held.items()}
            self._containers[key] = Container(value, items, (value,) if changeable(value) else ())
        return self._containers[key]

    def slot(self, a: Any, b: Any) -> Slot:
        """The place of the branch's value that is one of two."""
        for number, (x, y) in enumerate(self.leaves):
            if x is a and y is b:
                return Slot(number)
        self.leaves.append((a, b))
        return Slot(len(self.leaves) - 1)

    def note_choices(self, values: list[Any], give_up: Callable[[str], BaseException], known: Sequence[Choice]) -> None:
        """Tell `choices` which objects stand for several, given the values of the leaves."""
        found = [(each.made, each.of) for each in self._containers.values() if each.of and each.made is not MISSING]
        found += [(values[number], originals) for number, originals in self._lists.items()]
        for joined, originals in found:
            self._recorder.choices.note(Choice(joined, [*originals], give_up), known)

    def _bound_if_run(self, a: Any, b: Any) -> Any:
        """Join a variable that has a value where a loop ran: it is None where it has none, if that tells."""
        about = a if type(a) is BoundIfRun else b
        values = [value.value() if type(value) is BoundIfRun else value for value in (a, b)]
        if any(isinstance(value, Unbound) for value in values):
            return about.unbound()
        joined = self.join(values[0], values[1], may_be_none=False)
        is_told = isinstance(joined, Slot) and not any(is_uncertain(value) for value in self.leaves[joined.number])
        return Ran(about, joined) if is_told else about.unbound()

    # ---- containers

    def _inside(self, a: Any, b: Any, may_be_none: bool, are_contents: bool = False) -> Any:
        if type(a) is not type(b):
            names = [self._recorder.joining.kind_name(value) for value in (a, b)]
            raise Unlike(f"{names[0]} on one side, {names[1]} on the other")
        held, its = self._parts(a, 0), self._parts(b, 1)
        if held is None or its is None:
            return self._without_parts(a, b, are_contents)
        if list(held) != list(its):
            is_sequence = isinstance(a, tuple | list)
            sizes = f"{len(held)} items on one side, {len(its)} on the other"
            raise Unlike(sizes if is_sequence else "different keys on the two sides")
        may_be_none = may_be_none or is_record(a)
        joined = {key: self.join(part, its[key], may_be_none) for key, part in held.items()}
        if are_contents or not _can_change(a):
            return a if all(joined[key] is held[key] for key in held) else Container(a, joined)
        return self._containers.setdefault((id(a), id(b)), Container(a, joined, (a, b)))

    def _without_parts(self, a: Any, b: Any, are_contents: bool) -> Any:
        """Join two sets or deques, or objects that have nothing to look into."""
        kind = type(a)
        if are_contents or not changeable(a):
            if a == b:
                return a
        elif kind is set or kind is collections.deque:
            held, its = (self._held[i].get(id(value), value) for i, value in enumerate((a, b)))
            if len(held) == len(its) and (held == its if kind is set else list(held) == list(its)):
                items = dict.fromkeys(held) if kind is set else dict(enumerate(held))
                return self._containers.setdefault((id(a), id(b)), Container(a, items, (a, b)))
        raise Unlike(f"two different objects of class {kind.__name__}")

    def _parts(self, value: Any, side: int) -> Any:
        """What a container holds at the end of a side, by key; None where it is no such container."""
        found = parts(value)
        if found is None or not self._held[side]:
            return found
        kept = self._held[side].get(id(value))
        if kept is None and is_record(value) and hasattr(value, "__dict__"):
            table = self._held[side].get(id(vars(value)))
            return found if table is None else {name: table[name] for name in found if name in table}
        return found if kept is None else parts(kept)

    def _of_any_length(self, a: Any, b: Any) -> Any:
        """Join tuples or lists that are not equally long: only a run knows how long theirs is. Raises Unlike."""
        recorder = self._recorder
        kind: Any = LoopTuple if isinstance(a, tuple) else LoopList
        place = recorder.questions.place()
        give_up = functools.partial(recorder.plan.change, place, "fork", f"a {type(a).__name__} is read as a whole")
        both = [
            kind(self._parts(value, side).values(), recorder, None, "", place, give_up)
            for side, value in enumerate((a, b))
        ]
        made = self._grown(*both)
        if kind is LoopList:
            self._lists[made.number] = (a, b)
        return made

    def _grown(self, a: Any, b: Any) -> Slot:
        """Join two lists, dicts or sets of which one at least is as a run has it: what a node gives is no copy."""
        made = self.slot(a, b)
        copied = [value for value in (a, b) if not is_growing(value) or getattr(value, "node", 0) is None]
        if copied and not isinstance(a, tuple):
            self._lists.setdefault(made.number, tuple(copied))
        return made

    def bound_at_exit(self, results: Any, pair: Any) -> Any:
        """Join a variable that has a value wherever the branch says that a loop ends; None for any other."""
        if not any(value is EMPTY or type(value) is BoundIf for value in pair) or all(value is EMPTY for value in pair):
            return None
        subjects, held = self._recorder.questions.subjects, []
        for result, value in zip(results, pair, strict=True):
            if type(value) is BoundIf:
                inner, decider = value.parts()
                is_open = self._recorder.joining.is_open(result)
                keys = [subjects.key_of(subjects.subject_of(value)) for value in (result, decider)] if is_open else []
                if not keys or keys[0] != keys[1]:
                    return None
                held.append(inner)
            elif value is EMPTY:
                if result is not False and result is not None:
                    return None
                held.append(MISSING)
            elif isinstance(value, Unbound):
                return None
            else:
                held.append(value)
        if all(result is False or result is None for result in results):
            return None
        a, b = held
        if a is MISSING or b is MISSING:
            return Bound(self.on_one_side(b if a is MISSING else a, a is MISSING))
        return Bound(self.join(a, b))


class Leaving:
    """The values of the one side that goes on: those computed inside it leave it through the branch.

    What is as it was before the branch stays so, where the side is the first to read it, too; and so do the containers
    of the state, whose contents are values of their own.
    """

    def __init__(self, recorder: Capture, region: Region, state: State) -> None:
        self._recorder, self._region = recorder, region
        self._watched = {id(container) for container, _ in state._containers}
        self._known: dict[int, Any] = {}
        self.leaves: list[tuple[Any, Any]] = []

    def values(self, values: list[Any], before: list[Any]) -> list[Any]:
        """The values as they are after the region: `filled` puts the leaves, computed inside, in their places."""
        return [self._outside(*pair) for pair in zip(values, before, strict=True)]

    def _outside(self, value: Any, was: Any) -> Any:
        if value is was or id(value) in self._watched:
            return value
        if type(value) is BoundIf:
            return value.unbound()
        if type(value) is BoundIfRun:
            inner = self._outside(value.value(), EMPTY)
            return value if inner is value.value() else Ran(value, inner) if type(inner) is Slot else value.unbound()
        if self._recorder.joining.is_open(value):
            argument = self._recorder.joining.node_of(value)
            if argument is None or self._region.holds(argument):
                return self._slot(value)
            return value
        if id(value) in self._known:
            return self._known[id(value)]
        held = parts(value) if isinstance(value, tuple | list) or type(value) is dict else None
        if held is None:
            return value
        known: dict[Any, Any] = (parts(was) or {}) if type(was) is type(value) else {}
        now = {key: self._outside(item, known.get(key, EMPTY)) for key, item in held.items()}
        made = value if all(now[key] is held[key] for key in held) else Container(value, now)
        self._known[id(value)] = made
        return made

    def _slot(self, value: Any) -> Slot:
        for number, (known, _) in enumerate(self.leaves):
            if known is value:
                return Slot(number)
        self.leaves.append((value, value))
        return Slot(len(self.leaves) - 1)


def _are_one(a: dict[Any, Any], b: dict[Any, Any]) -> bool:
    """Tell whether two dicts hold the very same values under the same names, as most do after a branch."""
    return len(a) == len(b) and all(map(operator.is_, a.values(), b.values())) and list(a) == list(b)


def _can_change(value: Any) -> bool:
    """Tell whether a container that has parts may get other ones."""
    if is_record(value) and not isinstance(value, dict):
        return not type(value).__dataclass_params__.frozen
    return not isinstance(value, tuple)
