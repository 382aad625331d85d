"""Two values that become one: what is the same stays, what differs has a place in it for a value of the branch.

Which of two objects a name means after a branch is a choice of the run: what stands for them holds what either holds,
and `choices` learns of it. What is one object on both sides is one object afterwards, however many names it has.
"""

from __future__ import annotations

import collections
import copy
import functools
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from graphwright.capture.containers.loop_lists import LoopList, LoopTuple
from graphwright.capture.effects.branch_state import Bound, OneSided, State
from graphwright.capture.effects.choices import Choice
from graphwright.capture.proxies.contents import changeable, held_parts
from graphwright.capture.proxies.growing import is_growing
from graphwright.capture.proxies.unbound import BoundIf, BoundIfRun, Ran, Unbound
from graphwright.capture.state.regions import Region
from graphwright.capture.state.samples import MISSING, UNSET, Unlike
from graphwright.capture.state.tensor_proxy import is_uncertain
from graphwright.source import EMPTY
from graphwright.values import (
    INSIDE,
    Container,
    Given,
    HasParts,
    Joiner,
    OneWay,
    Path,
    Slot,
    is_record,
    parts,
)

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import Capture

_T = TypeVar("_T")


class Leaves:
    """The pairs of values, one of each side, that become values of the branch."""

    def __init__(self) -> None:
        self.pairs: list[tuple[Any, Any]] = []

    def slot(self, a: Any, b: Any) -> Slot:
        """The place of the branch's value that is one of two."""
        for number, (x, y) in enumerate(self.pairs):
            if x is a and y is b:
                return Slot(number)
        self.pairs.append((a, b))
        return Slot(len(self.pairs) - 1)


class Join(Joiner):
    """The values of two sides of a branch, joined: `leaves` are the pairs of what differs.

    `held` tells for each side what the containers of the state hold at its end, by id: they have been put back. A
    tensor and None make a tensor that may be None, but only in variables: whoever reads it there is converted.
    """

    def __init__(self, recorder: Capture, held: Sequence[dict[int, Any]] = ({}, {})) -> None:
        self._recorder = recorder
        self._held = held
        self._leaves = Leaves()
        self._containers: dict[tuple[int, int], Container] = {}
        self._lists: dict[int, tuple[Any, ...]] = {}  # by number of the leaf: what a list of any length stands for
        self._may_be_none = True

    @property
    def leaves(self) -> list[tuple[Any, Any]]:
        """The pairs of what differs, by the numbers of their slots."""
        return self._leaves.pairs

    def leaf(self, a: Any, b: Any, path: Path) -> Any:
        """What becomes of two values, but for what they hold. Raises Unlike."""
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
        verdict = self._recorder.joining.verdict(a, b, self._may_be_none)
        if verdict == "join":
            return self._grown(a, b) if is_growing(a) or is_growing(b) else self._leaves.slot(a, b)
        return a if verdict == "same" else self._alike(a, b)

    def pairs(self, a: HasParts, b: HasParts, path: Path) -> dict[Any, tuple[Any, Any]]:
        """What the containers hold at the ends of the two sides. Raises Unlike."""
        held, its = self._parts(a, 0), self._parts(b, 1)
        if list(held) != list(its):
            sizes = f"{len(held)} items on one side, {len(its)} on the other"
            raise Unlike(sizes if isinstance(a, tuple | list) else "different keys on the two sides")
        return {key: (part, its[key]) for key, part in held.items()}

    def whole(self, a: HasParts, b: HasParts, items: dict[Any, Any], path: Path) -> Any:
        """One container of two: an object that may change is another one than either."""
        if not _can_change(a):
            return _like(a, items)
        return self._containers.setdefault((id(a), id(b)), Container(a, items, (a, b)))

    def inside(self, one: HasParts) -> Joiner:
        """What an object has in its attributes may be None, as a variable may."""
        return self._with(may_be_none=True) if is_record(one) or parts(one) is None else self

    def _with(self, may_be_none: bool) -> Join:
        if self._may_be_none is may_be_none:
            return self
        other = copy.copy(self)  # of the same leaves
        other._may_be_none = may_be_none
        return other

    def contents(self, a: Any, b: Any) -> Any:
        """Join what one container of the state holds at the ends of the two sides. Raises Unlike."""
        if a is b or (type(a) is dict and type(b) is dict and _are_one(a, b)):
            return a
        found = self._alike(a, b, are_contents=True)
        return _like(a, self._with(may_be_none=False).items(a, b, ())) if found is INSIDE else found

    def on_one_side(self, value: Any, is_second: bool) -> Any:
        """Join a value with none: what of it only a run has is None on the other side."""
        held = self._held[is_second]
        return _OneSide(self._recorder, self._leaves, self._containers, held, is_second).join(value, MISSING)

    def note_choices(self, given: Given, give_up: Callable[[str], BaseException], known: Sequence[Choice]) -> None:
        """Tell `choices` which objects stand for several, given the values of the leaves."""
        if not (self._containers or self._lists):
            return
        made = given.made
        found = [(made[each], each.of) for each in self._containers.values() if each.of and each in made]
        found += [(given.values[number], originals) for number, originals in self._lists.items()]
        for joined, originals in found:
            self._recorder.choices.note(Choice(joined, [*originals], give_up), known)

    def _bound_if_run(self, a: Any, b: Any) -> Any:
        """Join a variable that has a value where a loop ran: it is None where it has none, if that tells."""
        about = a if type(a) is BoundIfRun else b
        values = [value.value() if type(value) is BoundIfRun else value for value in (a, b)]
        if any(isinstance(value, Unbound) for value in values):
            return about.unbound()
        joined = self._with(may_be_none=False).join(*values)
        is_told = isinstance(joined, Slot) and not any(is_uncertain(value) for value in self.leaves[joined.number])
        return Ran(about, joined) if is_told else about.unbound()

    # ---- containers

    def _alike(self, a: Any, b: Any, are_contents: bool = False) -> Any:
        """INSIDE for two containers of one class; else what two sets or deques become, or objects without parts."""
        kind = type(a)
        if kind is not type(b):
            names = [self._recorder.joining.kind_name(value) for value in (a, b)]
            raise Unlike(f"{names[0]} on one side, {names[1]} on the other")
        if self._parts(a, 0) is not None and self._parts(b, 1) is not None:
            return INSIDE
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
        found = held_parts(value)
        if found is None or not self._held[side]:
            return found
        kept, is_object = self._held[side].get(id(value)), parts(value) is None
        if kept is not None:
            return parts(kept)
        has_table = is_object or (is_record(value) and hasattr(value, "__dict__"))
        table = self._held[side].get(id(vars(value))) if has_table else None
        if table is None or is_object:
            return found if table is None else table
        return {name: table[name] for name in found if name in table}

    def _of_any_length(self, a: tuple[Any, ...] | list[Any], b: tuple[Any, ...] | list[Any]) -> Any:
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
        made = self._leaves.slot(a, b)
        copied = [value for value in (a, b) if not is_growing(value) or getattr(value, "node", 0) is None]
        if copied and not isinstance(a, tuple):
            self._lists.setdefault(made.number, tuple(copied))
        return made

    def bound_at_exit(self, results: tuple[Any, ...], pair: tuple[Any, ...]) -> Any:
        """Join a variable that has a value wherever the branch says that a loop ends; None for any other."""
        a, b = pair
        if not (a is EMPTY or b is EMPTY or type(a) is BoundIf or type(b) is BoundIf) or (a is EMPTY and b is EMPTY):
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


class _OneSide(OneWay):
    """Joins a value with none: what of it only a run has is None on the other side.

    What the state `held` is one object on both; what is in it is joined by itself.
    """

    nothing = MISSING

    def __init__(
        self,
        recorder: Capture,
        leaves: Leaves,
        containers: dict[tuple[int, int], Container],
        held: dict[int, Any],
        is_second: bool,
    ) -> None:
        self._recorder, self._leaves, self._containers = recorder, leaves, containers
        self._held, self._is_second = held, is_second

    def leaf(self, value: Any, other: Any, path: Path) -> Any:
        """A slot for what only a run has, and for numbers."""
        if self._recorder.joining.is_open(value) or type(value) in (int, float, bool):
            return self._leaves.slot(*self._pair(value, MISSING))
        if is_record(value) or parts(value) is None or id(value) in self._held:
            return value
        return self._containers.get(self._pair(id(value), id(MISSING)), INSIDE)

    def whole(self, value: HasParts, other: Any, items: dict[Any, Any], path: Path) -> Any:
        """A container of what is there."""
        made = Container(value, items, (value,) if changeable(value) else ())
        return self._containers.setdefault(self._pair(id(value), id(MISSING)), made)

    def _pair(self, mine: _T, nothing: _T) -> tuple[_T, _T]:
        return (nothing, mine) if self._is_second else (mine, nothing)


class Leaving(OneWay):
    """The values of the one side that goes on: those computed inside it leave it through the branch.

    What is as it was before the branch stays so, where the side is the first to read it, too; and so do the containers
    of the state, whose contents are values of their own.
    """

    nothing = EMPTY

    def __init__(self, recorder: Capture, region: Region, state: State) -> None:
        self._recorder, self._region = recorder, region
        self._watched = {id(container) for container, _ in state._containers}
        self._known: dict[int, Any] = {}
        self._leaves = Leaves()

    @property
    def leaves(self) -> list[tuple[Any, Any]]:
        """The values that leave, by the numbers of their slots."""
        return self._leaves.pairs

    def values(self, values: list[Any], before: list[Any]) -> list[Any]:
        """The values as they are after the region: `filled` puts the leaves, computed inside, in their places."""
        return [self.join(*pair) for pair in zip(values, before, strict=True)]

    def leaf(self, value: Any, was: Any, path: Path) -> Any:
        """A slot for what is computed inside; all else is as it is."""
        if value is was or id(value) in self._watched:
            return value
        if type(value) is BoundIf:
            return value.unbound()
        if type(value) is BoundIfRun:
            inner = self.join(value.value(), EMPTY)
            return value if inner is value.value() else Ran(value, inner) if type(inner) is Slot else value.unbound()
        if self._recorder.joining.is_open(value):
            argument = self._recorder.joining.node_of(value)
            return self._leaves.slot(value, value) if argument is None or self._region.holds(argument) else value
        if id(value) in self._known:
            return self._known[id(value)]
        return INSIDE if isinstance(value, tuple | list) or type(value) is dict else value

    def whole(self, value: HasParts, was: Any, items: dict[Any, Any], path: Path) -> Any:
        """One container for each that the side leaves."""
        return self._known.setdefault(id(value), _like(value, items))


def _like(value: HasParts, items: dict[Any, Any]) -> Any:
    """A container of joined items: the one that it would be like, where it holds the very same."""
    held = held_parts(value) or {}
    return value if all(items[key] is held[key] for key in held) else Container(value, items)


def _are_one(a: dict[Any, Any], b: dict[Any, Any]) -> bool:
    """Tell whether two dicts hold the very same values under the same names, as most do after a branch."""
    return len(a) == len(b) and all(map(operator.is_, a.values(), b.values())) and list(a) == list(b)


def _can_change(value: Any) -> bool:
    """Tell whether a container that has parts may get other ones."""
    if is_record(value) and not isinstance(value, dict):
        return not type(value).__dataclass_params__.frozen
    return not isinstance(value, tuple)
