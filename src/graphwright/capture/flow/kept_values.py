"""What variables hold where an error leaves a `try`: a list of the run keeps them meanwhile.

    kept = [y]
    try:
        y = f(x)
        kept[0] = y
        z = g(y)

Before each operation of the body that may raise, what has changed since the last one is written to the list. What no
handler comes to read is not kept in the end (`tidy`).
"""

from __future__ import annotations

import collections
import operator
from typing import TYPE_CHECKING, Any

import torch

from graphwright.capture.effects.branch_state import State
from graphwright.capture.flow.loop_state import Carried
from graphwright.capture.proxies.growing import is_growing
from graphwright.capture.proxies.object_proxy import ObjectProxy
from graphwright.capture.proxies.unbound import Unbound
from graphwright.capture.state.regions import Region
from graphwright.capture.state.samples import MISSING, UNSET, Unlike
from graphwright.capture.state.symbols import UNKNOWN, is_symbolic, symbol_of
from graphwright.ir import Node
from graphwright.source import EMPTY, HIDDEN
from graphwright.values import INSIDE, Container, Given, Joiner, Path, Template, filled, parts

if TYPE_CHECKING:
    from graphwright.capture.state.places import Place
    from graphwright.capture.state.protocol import TypedCapture

_OTHER: Any = object()  # not what it was
_NEW: Any = object()  # like nothing that there was


class KeptValues(Joiner):
    """The values of one state, around one body: as they were before, joined with what they are where it is left."""

    def __init__(self, recorder: TypedCapture, state: State, place: Place | None) -> None:
        self._recorder, self._state, self._place = recorder, state, place
        self.region: Region = recorder.region  # of the body, once that is there
        self.list: Node = recorder.node("call_function", list, ([],), {}, name="kept")
        self._before = [_frozen(value) for value in state.read()]
        self._slots: dict[Path, Carried] = {}  # the places in the list, by the number of a value, then keys in it
        self._forms: dict[int, Any] = {}  # first values of variables that have none before the body
        self._templates: dict[int, Any] = {}
        self._was: Any = _OTHER  # what the list is known to hold of the value that is looked at
        self._unlike: dict[int, str] = {}  # values that no handler can know
        self._late: set[int] = set()  # variables that have no value at first, at an operation that may raise
        # What a `return` leaves is of no use where an error follows it.
        self._hidden = {i for i, name in enumerate(state.names) if HIDDEN in name}
        self._last: dict[Region, list[Any]] = {}
        self._is_noting = False

    # ---- while the body runs

    def note(self) -> None:
        """Something that may raise is about to be done: keep what has changed."""
        if self._is_noting:
            return
        self._is_noting = True
        try:
            with torch._C.DisableTorchFunction():
                self._note()
        finally:
            self._is_noting = False

    def is_noted_in(self, region: Region) -> bool:
        """Tell whether anything was kept inside a region."""
        return region in self._last

    def _note(self) -> None:
        recorder = self._recorder
        values = self._state.read()
        self._before += [_frozen(value) for value in self._state.values_before()[len(self._before) :]]
        last = self._of_region(recorder.region)
        last += self._before[len(last) :]
        for i, value in enumerate(values):
            if i in self._hidden:
                continue
            now = _frozen(value)
            if _is_empty(value):
                self._late.add(i)
                last[i] = now
                continue
            was = last[i]
            if i in self._unlike or (was is not _OTHER and _is_same(was, now)):
                continue
            if was is _OTHER and _is_same(self._before[i], now) and not self._is_kept(i):
                continue
            self._keep(i, was, now)
            last[i] = now
            outer = recorder.region
            while outer is not self.region and outer.outer is not None:
                outer = outer.outer
                if outer in self._last and i < len(self._last[outer]):
                    self._last[outer][i] = _OTHER

    def _of_region(self, region: Region) -> list[Any]:
        """What the list is known to hold in a region: from where it begins on."""
        if region not in self._last:
            if region is self.region or region.outer is None:
                self._last[region] = [*self._before]
            else:
                around = self._of_region(region.outer)
                kept = {path[0] for path in self._slots} if region.is_loop else set()
                self._last[region] = [_OTHER if i in kept else known for i, known in enumerate(around)]
        return self._last[region]

    def _is_kept(self, i: int) -> bool:
        return any(path[0] == i for path in self._slots)

    def _keep(self, i: int, was: Any, now: Any) -> None:
        """Write to the list what has changed of one value."""
        before = self._before[i]
        if _is_empty(before):
            before = self._forms.setdefault(i, now)
        if not _is_alike(before, now):
            self._unlike[i] = "has different forms" if i in self._forms else "has another form"
            return
        self._was = was if was is _OTHER or _is_alike(was, now) else _NEW
        try:
            self._templates[i] = self.join(before, now, (i,))
        except Unlike as why:
            self._unlike[i] = str(why)

    def leaf(self, before: Any, now: Any, path: Path) -> Any:
        """The place in the list where a value is kept, if it is. Raises Unlike where it cannot be."""
        if isinstance(now, Container):
            return INSIDE
        initial, slot, was = MISSING if path[0] in self._forms else before, self._slots.get(path), self._was
        for key in path[1:] if was is not _OTHER and was is not _NEW else ():
            was = was.items[key]
        if _is_same(was, now) or (was is _OTHER and slot is None and _is_same(initial, now)):
            return before if slot is None else slot
        slot = self._slot(path, initial, now)
        argument = self._recorder.argument(now)
        self._recorder.node("call_function", operator.setitem, (self.list, slot.number, argument), {})
        return slot

    def pairs(self, before: Container, now: Container, path: Path) -> dict[Any, tuple[Any, Any]]:
        """What two containers hold, which are alike."""
        return {key: (part, now.items[key]) for key, part in before.items.items()}

    def whole(self, before: Container, now: Container, items: dict[Any, Any], path: Path) -> Any:
        """The container itself, where it was there before and nothing of it is kept."""
        is_kept = path[0] in self._forms or any(isinstance(item, Template) for item in items.values())
        return Container(before.like, items) if is_kept else before.like

    def _slot(self, path: Path, initial: Any, now: Any) -> Carried:
        """A place in the list for a value, which is to cover it."""
        joining = self._recorder.joining
        is_value = (joining.is_open(now) or type(now) in (int, float, bool)) and type(now) is not ObjectProxy
        if not is_value and not (now is None and initial is not None and joining.is_open(initial)):
            raise Unlike(f"{joining.kind_name(now)} where an error is raised")
        slot = self._slots.get(path)
        if slot is not None:
            slot.sample, slot.after = joining.widened(slot.sample, now), None
            return slot
        if initial is not MISSING and joining.carried(initial, now) == "look inside":
            raise Unlike(f"{joining.kind_name(initial)} before, {joining.kind_name(now)} where an error is raised")
        sample = joining.sample(initial, now)
        names = self._state.names
        name = names[path[0]].partition(HIDDEN)[0] if path[0] < len(names) and len(path) == 1 else ""
        key = path[-1] if len(path) > 1 and isinstance(path[-1], str) and path[-1].isidentifier() else ""
        slot = self._slots[path] = Carried(len(self._slots), initial, sample, name or key, now)
        return slot

    # ---- after it

    def close(self) -> None:
        """Write what the list holds at first."""
        recorder = self._recorder
        initials = recorder.lifted(
            [None if slot.initial is MISSING else recorder.argument(slot.initial) for slot in self._slots.values()]
        )
        made = recorder.region.graph._root.prev
        self.list.args = (initials,)
        if made is not self.list:
            made.append(self.list)

    def values(self, where: str | None) -> list[Any]:
        """The state where an error was raised. Raises Unlike where that cannot be told."""
        given = Given([MISSING if path[0] in self._unlike else self._value(slot) for path, slot in self._slots.items()])
        count, out = len(self._state.names), []
        for i, before in enumerate(self._state.values_before()):
            if i in self._unlike and i >= count:
                raise Unlike(f"what a container holds {self._unlike[i]} where an error is raised")
            is_kept = self._is_kept(i)
            if i in self._unlike or (is_kept and i in self._late):
                out.append(Unbound(self._state.names[i].partition(HIDDEN)[0], where, self._place))
            else:
                out.append(filled(self._templates[i], given) if is_kept else before)
        return out

    def _value(self, slot: Carried) -> Any:
        """What the list holds in one place in the end."""
        recorder = self._recorder
        symbol = symbol_of(slot.after) if slot.initial is MISSING else None
        if symbol is not None and not symbol.is_data:  # a size, which is the same outside
            return slot.after
        item = recorder.make("call_function", operator.getitem, (self.list, slot.number), slot.name or "value")
        hint = None if recorder.examples.is_real else UNKNOWN
        return recorder.joining.stand_in(slot.sample, item, self._place, hint)


def _is_empty(value: Any) -> bool:
    return value is EMPTY or value is UNSET or isinstance(value, Unbound)


def _frozen(value: Any) -> Any:
    """What a value holds now, as far as the program knows how much that is."""
    held = None if is_growing(value) or isinstance(value, torch.Tensor) else parts(value)
    return value if held is None else Container(value, {key: _frozen(part) for key, part in held.items()})


def _is_alike(one: Any, other: Any) -> bool:
    """Tell whether two frozen values are of the same containers."""
    if not isinstance(one, Container) or not isinstance(other, Container):
        return not isinstance(one, Container) and not isinstance(other, Container)
    if type(one.like) is not type(other.like) or list(one.items) != list(other.items):
        return False
    return all(_is_alike(item, other.items[key]) for key, item in one.items.items())


def _is_same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if isinstance(one, Container) and isinstance(other, Container):
        return _is_alike(one, other) and all(_is_same(item, other.items[key]) for key, item in one.items.items())
    if is_symbolic(one) and is_symbolic(other):
        return symbol_of(one) is symbol_of(other)
    if type(one) is not type(other):
        return False
    if isinstance(one, set | collections.deque):
        return len(one) == len(other) and all(map(operator.is_, one, other))
    return type(one) in (int, float, bool, str) and bool(one == other)
