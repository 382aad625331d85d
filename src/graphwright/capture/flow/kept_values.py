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
import dataclasses
import operator
from typing import TYPE_CHECKING, Any

import torch

from graphwright.capture.conversion.loop_statements import HIDDEN
from graphwright.capture.effects.branch_state import EMPTY, State
from graphwright.capture.proxies.growing import is_growing
from graphwright.capture.proxies.object_proxy import ObjectProxy
from graphwright.capture.proxies.unbound import Unbound
from graphwright.capture.state.regions import Region
from graphwright.capture.state.samples import MISSING, UNSET, Unlike
from graphwright.capture.state.symbols import UNKNOWN, is_symbolic, symbol_of
from graphwright.ir import Node
from graphwright.values import Kind, made, parts, rebuild

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import TypedCapture

__all__ = ["KeptValues"]

Path = tuple[Any, ...]  # the number of a value of the state, then the keys to what it holds
_OTHER: Any = object()  # not what it was


@dataclasses.dataclass(eq=False)
class _Kept:
    """A place in the list."""

    number: int
    initial: Any
    sample: Kind
    name: str
    only: Any  # what alone was kept there


class KeptValues:
    """The values of one state, around one body."""

    def __init__(self, recorder: TypedCapture, state: State, place: Any) -> None:
        self._recorder, self._state, self._place = recorder, state, place
        self.region: Region = recorder.region  # of the body, once that is there
        self.list: Node = recorder.node("call_function", list, ([],), {}, name="kept")
        self._before = [_flat(value) for value in state.read()]
        self._kept: dict[Path, _Kept] = {}
        self._forms: dict[int, dict[Path, Any]] = {}  # of variables that get their first value in the body
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
        self._before += [_flat(value) for value in self._state.values_before()[len(self._before) :]]
        last = self._of_region(recorder.region)
        last += self._before[len(last) :]
        for i, value in enumerate(values):
            if i in self._hidden:
                continue
            now = _flat(value)
            if _is_empty(value):
                self._late.add(i)
                last[i] = now
                continue
            was = last[i]
            if i in self._unlike or (was is not _OTHER and _is_same(was, now)):
                continue
            if was is _OTHER and _is_same(self._before[i], now) and not any(path[0] == i for path in self._kept):
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
                kept = {path[0] for path in self._kept} if region.is_loop else set()
                self._last[region] = [_OTHER if i in kept else known for i, known in enumerate(around)]
        return self._last[region]

    def _keep(self, i: int, was: Any, now: dict[Path, Any]) -> None:
        before = self._before[i]
        is_born = list(before) == [()] and _is_empty(before[()])
        if is_born and self._forms.setdefault(i, now).keys() != now.keys():
            self._unlike[i] = "has different forms"
            return
        if not is_born and before.keys() != now.keys():
            self._unlike[i] = "has another form"
            return
        for path, leaf in now.items():
            if was is not _OTHER and was.keys() == now.keys() and _is_leaf_same(was[path], leaf):
                continue
            initial = MISSING if is_born else before[path]
            if was is _OTHER and _is_leaf_same(initial, leaf) and (i, *path) not in self._kept:
                continue
            if type(leaf) is _Form:
                if leaf != (self._forms[i][path] if is_born else initial):
                    self._unlike[i] = "is another container"
                continue
            try:
                kept = self._place_of((i, *path), initial, leaf)
            except Unlike as why:
                self._unlike[i] = str(why)
                return
            argument = self._recorder.argument(leaf)
            self._recorder.node("call_function", operator.setitem, (self.list, kept.number, argument), {})

    def _place_of(self, path: Path, initial: Any, leaf: Any) -> _Kept:
        joining = self._recorder.joining
        is_value = (joining.is_open(leaf) or type(leaf) in (int, float, bool)) and type(leaf) is not ObjectProxy
        if not is_value and not (leaf is None and initial is not None and joining.is_open(initial)):
            raise Unlike(f"{joining.kind_name(leaf)} where an error is raised")
        known = self._kept.get(path)
        if known is not None:
            known.sample, known.only = joining.widened(known.sample, leaf), None
            return known
        if initial is not MISSING and joining.carried(initial, leaf) == "look inside":
            raise Unlike(f"{joining.kind_name(initial)} before, {joining.kind_name(leaf)} where an error is raised")
        sample = joining.sample(initial, leaf)
        names = self._state.names
        name = names[path[0]].partition(HIDDEN)[0] if path[0] < len(names) and len(path) == 1 else ""
        key = path[-1] if len(path) > 1 and isinstance(path[-1], str) and path[-1].isidentifier() else ""
        kept = self._kept[path] = _Kept(len(self._kept), initial, sample, name or key, leaf)
        return kept

    # ---- after it

    def close(self) -> None:
        """Write what the list holds at first."""
        recorder = self._recorder
        initials = recorder.lifted(
            [None if kept.initial is MISSING else recorder.argument(kept.initial) for kept in self._kept.values()]
        )
        made = recorder.region.graph._root.prev
        self.list.args = (initials,)
        if made is not self.list:
            made.append(self.list)

    def values(self, where: str | None) -> list[Any]:
        """The state where an error was raised. Raises Unlike where that cannot be told."""
        recorder = self._recorder
        held: dict[Path, Any] = {}
        for path, kept in self._kept.items():
            if path[0] in self._unlike:
                continue
            symbol = symbol_of(kept.only) if kept.initial is MISSING else None
            if symbol is not None and not symbol.is_data:  # a size, which is the same outside
                held[path] = kept.only
                continue
            item = recorder.make("call_function", operator.getitem, (self.list, kept.number), kept.name or "value")
            hint = None if recorder.examples.is_real else UNKNOWN
            held[path] = recorder.joining.stand_in(kept.sample, item, self._place, hint)
        count = len(self._state.names)
        out = []
        for i, before in enumerate(self._state.values_before()):
            if i in self._unlike and i >= count:
                raise Unlike(f"what a container holds {self._unlike[i]} where an error is raised")
            is_kept = any(path[0] == i for path in self._kept)
            if i in self._unlike or (is_kept and i in self._late):
                out.append(Unbound(self._state.names[i].partition(HIDDEN)[0], where, self._place))
            elif not is_kept:
                out.append(before)
            else:
                out.append(_filled(self._last_form(i, before), held, (i,)))
        return out

    def _last_form(self, i: int, before: Any) -> Any:
        """A value that shows of which containers the values of a variable are."""
        return _unflat(self._forms[i]) if i in self._forms else before


def _is_empty(value: Any) -> bool:
    return value is EMPTY or value is UNSET or isinstance(value, Unbound)


@dataclasses.dataclass(frozen=True)
class _Form:
    """The class of a container, and its keys."""

    kind: type
    keys: tuple[Any, ...]


def _parts(value: Any) -> dict[Any, Any] | None:
    """What a container holds of which the program knows the length."""
    return None if is_growing(value) or isinstance(value, torch.Tensor) else parts(value)


def _flat(value: Any, path: Path = ()) -> dict[Path, Any]:
    """What a value holds inside of each other, by the keys that lead there."""
    inner = _parts(value)
    if inner is None:
        return {path: value}
    found: dict[Path, Any] = {path: _Form(type(value), tuple(inner))}
    for key, part in inner.items():
        found.update(_flat(part, (*path, key)))
    return found


def _filled(value: Any, held: dict[Path, Any], path: Path) -> Any:
    """A value with what is kept in the places of what it holds."""
    if path in held:
        return held[path]
    inner = _parts(value)
    if inner is None or not any(other[: len(path)] == path for other in held):
        return value
    items = {key: _filled(part, held, (*path, key)) for key, part in inner.items()}
    return rebuild(value, items)


def _unflat(flat: dict[Path, Any], path: Path = ()) -> Any:
    form = flat[path]
    if type(form) is not _Form:
        return form
    return made(form.kind, {key: _unflat(flat, (*path, key)) for key in form.keys})


def _is_same(one: dict[Path, Any], other: dict[Path, Any]) -> bool:
    return one.keys() == other.keys() and all(_is_leaf_same(one[path], other[path]) for path in one)


def _is_leaf_same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if is_symbolic(one) and is_symbolic(other):
        return symbol_of(one) is symbol_of(other)
    if type(one) is not type(other):
        return False
    if isinstance(one, set | collections.deque):
        return len(one) == len(other) and all(map(operator.is_, one, other))
    if type(one) not in (int, float, bool, str, _Form):
        return False
    return bool(one == other)
