"""What an iteration of a loop finds, joined with what it leaves: what differs is carried, in slots.

The body is run until no further value changes. So the joiner knows from one run to the next which place in which
variable has a slot already, and widens the kind of that.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from graphwright.capture.containers.loop_holders import Holder
from graphwright.capture.containers.loop_lists import LoopTuple
from graphwright.capture.containers.opening import OPENABLE
from graphwright.capture.flow.loop_state import Born, Carried
from graphwright.capture.proxies.contents import changeable, held_parts
from graphwright.capture.proxies.growing import is_growing
from graphwright.capture.proxies.unbound import BoundIfRun, Ran, Unbound
from graphwright.capture.state.samples import UNSET, Grows, Unlike
from graphwright.source import EMPTY, HIDDEN
from graphwright.values import INSIDE, Container, HasParts, Joiner, OptionalKind, Path, Template

if TYPE_CHECKING:
    from graphwright.capture.state.places import Place
    from graphwright.capture.state.protocol import Capture


class LoopJoin(Joiner):
    """Joins the states before and after an iteration; `slots` are what the loop carries, as far as is known."""

    def __init__(self, recorder: Capture, place: Place | None, plain_way: Callable[[], Any]) -> None:
        self._recorder, self._place, self._plain_way = recorder, place, plain_way
        self.slots: list[Carried] = []
        self.has_changed = False  # whether the last run has shown anything new
        self._templates: dict[Path, Template] = {}
        self._trees: dict[tuple[int, int], Container] = {}  # by the objects before an iteration and after it
        self._left: dict[int, Container] = {}  # what an object is that an iteration left, by id
        self._left_by: dict[int, Any] = {}  # and the other way round
        self._names: Sequence[str] = ()
        self._wholes: Sequence[Any] = ()

    def state(self, entry: list[Any], after: list[Any], names: Sequence[str], wholes: Sequence[Any]) -> list[Any]:
        """The template of each value of a state for the next run, given what a run found and what it left.

        `wholes` are the containers of the program that the state tells the content of.
        """
        self._names, self._wholes = names, wholes
        self._left, self._left_by = {}, {}
        found = []
        for number, pair in enumerate(zip(entry, after, strict=True)):
            try:
                found.append(self.join(*pair, (number,)))
            except Unlike as why:
                raise why.of(names[number].partition(HIDDEN)[0]) if names[number] else why from None
        return found

    def join(self, entry: Any, after: Any, path: Path = ()) -> Any:
        """Make a template of what is in one place, and keep it for the next run."""
        made = super().join(entry, after, path)
        if isinstance(made, Template):
            self._templates[path] = made
        return made

    def leaf(self, entry: Any, after: Any, path: Path) -> Any:
        """What becomes of two values, but for what they hold. Raises Unlike, and Grows of a list that gets longer."""
        joining, known = self._recorder.joining, self._templates.get(path, entry)
        if type(entry) is BoundIfRun and after is not entry:
            return self._bound_if_run(entry, after, path)
        if entry is EMPTY or entry is UNSET or isinstance(entry, Unbound):
            return Born(entry, after, self._name(path)) if after is not entry else known
        if isinstance(known, Carried):
            return self._widened(known, after)
        if entry is after:
            return known
        initial = entry
        if type(entry) is tuple and type(after) is tuple and len(entry) != len(after):
            entry = self._tuple_of_run(entry, self._name(path))
        elif type(entry) in OPENABLE and isinstance(after, Holder) and type(entry) is after.base:
            raise Grows(entry, self._name(path))
        self._check_bound(after)
        verdict = joining.carried(entry, after)
        if verdict == "same":
            return known
        return (
            self._carried(initial, entry, after, path) if verdict == "join" else self._alike(known, entry, after, path)
        )

    def _bound_if_run(self, entry: BoundIfRun, after: Any, path: Path) -> Template:
        """A variable that a loop before may have given its value, which each iteration finds as the one before left it.

        One of another kind, that each iteration sets before it reads it, has its first value in this loop.
        """
        inner = after.value() if type(after) is BoundIfRun else after
        try:
            if not entry.tells():
                raise Unlike("a value of a loop before it that is made of several")
            value = self.join(entry.value(), inner, (*path, BoundIfRun))
            if isinstance(value, Carried) and isinstance(value.sample, OptionalKind):
                raise Unlike("a value of a loop before it that may be None")
        except Unlike:
            if entry.is_read() or after is not inner or isinstance(self._templates.get(path), Ran):
                raise
            return Born(entry, after, self._name(path))
        return Ran(entry, value)

    def pairs(self, entry: Any, after: HasParts, path: Path) -> dict[Any, tuple[Any, Any]]:
        """What two containers hold. Raises Unlike, and Grows where one has got longer."""
        before, its, whole = held_parts(entry) or {}, held_parts(after) or {}, self._whole(path)
        if list(before) != list(its):
            if type(entry) in OPENABLE and (whole is None or type(whole) in OPENABLE):
                raise Grows(entry if whole is None else whole, self._name(path))
            what = "keys" if isinstance(entry, dict) else "items"
            raise Unlike(f"{len(before)} {what} before an iteration, {len(its)} after it")
        return {key: (part, its[key]) for key, part in before.items()}

    def whole(self, entry: HasParts, after: HasParts, items: dict[Any, Any], path: Path) -> Any:
        """The template of a container; of an object in whose place an iteration leaves another one, one for both."""
        known = self._templates.get(path, entry)
        if self._whole(path) is None and changeable(entry):
            return self._chosen(known, entry, after, items)
        held = known.items if isinstance(known, Container) else held_parts(entry) or {}
        return known if all(items[key] is held[key] for key in held) else Container(entry, items)

    def _name(self, path: Path) -> str:
        if len(path) == 1 or path[1:] == (BoundIfRun,):
            return self._names[path[0]]
        return path[-1] if isinstance(path[-1], str) else ""

    def _whole(self, path: Path) -> Any:
        return self._wholes[path[0]] if len(path) == 1 else None

    def _check_bound(self, after: Any) -> None:
        if isinstance(after, Unbound) or after is EMPTY:
            raise Unlike("a value only on some ways through the loop")

    def _widened(self, slot: Carried, after: Any) -> Carried:
        """A slot whose kind covers what an iteration leaves."""
        slot.after = after
        self._check_bound(after)
        sample = self._recorder.joining.widened(slot.sample, after)
        self.has_changed |= sample is not slot.sample
        slot.sample = sample
        return slot

    def _carried(self, initial: Any, entry: Any, after: Any, path: Path) -> Carried:
        """A new slot."""
        self.has_changed = True
        joining = self._recorder.joining
        known, is_ours, _ = self._name(path).partition(HIDDEN)
        slot = Carried(
            len(self.slots), initial, joining.sample(entry, after), known or joining.source_name(after), after
        )
        slot.is_flag = bool(is_ours) and type(initial) is bool
        if is_growing(entry) != is_growing(after) and not isinstance(entry, tuple):
            slot.of = (after if is_growing(entry) else entry,)
        self.slots.append(slot)
        return slot

    def _tuple_of_run(self, value: tuple[Any, ...], name: str) -> LoopTuple:
        """A tuple that an iteration makes longer or shorter: only a run knows how long it is."""
        way, give_up = self._plain_way(), None
        if way is not None:
            give_up = functools.partial(self._recorder.plan.change, self._place, way, f"{name} is read as a whole")
        return LoopTuple(value, self._recorder, None, name.partition(HIDDEN)[0], self._place, give_up)

    def _alike(self, known: Any, entry: Any, after: Any, path: Path) -> Any:
        """INSIDE for two containers of one class; what else has no parts must be the same."""
        if type(entry) is not type(after):
            kinds = [self._recorder.joining.kind_name(value) for value in (entry, after)]
            raise Unlike(f"{kinds[0]} before an iteration, {kinds[1]} after it")
        if held_parts(entry) is not None:
            return INSIDE
        whole = self._whole(path)
        if entry == after and (whole is not None or not changeable(entry)):
            return known
        if type(entry) is set and (whole is None or type(whole) is set):
            raise Grows(entry if whole is None else whole, self._name(path))
        raise Unlike(f"another object of class {type(entry).__name__} after an iteration")

    def _chosen(self, known: Template | HasParts, entry: HasParts, after: HasParts, items: dict[Any, Any]) -> Container:
        made = known if isinstance(known, Container) else self._trees.get((id(entry), id(after)))
        if made is None:
            made = self._trees[id(entry), id(after)] = Container(entry, items)
            self.has_changed = True
        first = entry if not made.of else made.of[0]
        if self._left.setdefault(id(after), made) is not made or self._left_by.setdefault(id(made), after) is not after:
            raise Unlike("an object that has other names after an iteration than before")
        made.items, made.of = items, (first, after)
        return made
