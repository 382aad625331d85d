"""Sets of which only a run knows what is in them, and what makes dicts and sets of other values of the run."""

from __future__ import annotations

import collections
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from graphwright.capture.containers.item_kinds import kind_of_table
from graphwright.capture.containers.loop_dicts import Keyed, LoopDict, shown_key, shown_of
from graphwright.capture.containers.loop_holders import TABLES
from graphwright.capture.containers.loop_lists import LoopList
from graphwright.capture.proxies.growing import Growing
from graphwright.capture.state.running import stopping
from graphwright.capture.state.samples import Unlike
from graphwright.capture.state.symbols import UNKNOWN
from graphwright.ir import Node
from graphwright.values import MappingKind, RecordKind

if TYPE_CHECKING:
    from graphwright.capture.state.places import Place
    from graphwright.capture.state.protocol import Capture

__all__ = ["LoopSet", "opened_table", "table_of"]


class LoopSet(Keyed):
    """A set of which only a run knows what is in it: no `set` to functions in C, which would take it for empty."""

    stands_for_plain = set

    def example(self) -> Any:
        """What operations run on."""
        self._need_content()
        return set(self.shown)

    def listed(self) -> LoopList:
        """`list(self)`."""
        made = self.listed_as(self._function(list), self.kind.key, [key for key, _ in self.shown.values()])
        made.is_certain &= len(self.shown) < 2  # its order is another one
        return made

    def add(self, item: Any) -> None:
        self._admit(item, None)
        arguments = self._read(), self._key(item)
        self.recorder.node("call_function", set.add, arguments, {}, "add")  # tensors have another `add`
        self._keep(lambda known: self.shown.setdefault(known, (item, None)), item)

    def remove(self, item: Any) -> None:
        self._may_raise()
        self._method("remove", self._key(item))
        self._keep(lambda known: self.shown.pop(known, None), item)

    def discard(self, item: Any) -> None:
        self._method("discard", self._key(item))
        self._keep(lambda known: self.shown.pop(known, None), item)

    def pop(self) -> Any:
        self._may_raise()
        node = self._call("pop")
        self._keep(lambda known: None, UNKNOWN)
        return self._value(self.kind.key, node)

    def update(self, *others: Any) -> None:
        for other in others:
            if isinstance(other, LoopSet | LoopList):
                self._admit_kind(other.kind if isinstance(other, LoopSet) else MappingKind(other.kind, kind=set))
                self._call("update", other)
                self.is_certain, self.shown = False, {}
            elif isinstance(other, Growing):
                self._refuse()
            else:
                for item in other:
                    self.add(item)

    def __ior__(self, other: Any) -> Any:
        if not isinstance(other, set):
            return NotImplemented
        self.update(other)
        return self

    def combined(self, function: Callable[[Any, Any], Any], other: Any, is_second: bool = False) -> Any:
        """`self | other` and its like; `is_second`: `other | self`."""
        if not isinstance(other, set):
            return NotImplemented
        kind = self.joined_with(other).kind
        arguments = tuple([self.recorder.argument(part) for part in ((other, self) if is_second else (self, other))])
        name = self.recorder.target_name() or function.__name__.strip("_")
        made = self.on(self.recorder.node("call_function", function, arguments, {}, "", name), kind)
        made.is_certain, made.shown = False, {}
        return made

    def compared(self, function: Callable[[Any, Any], Any], other: Any) -> Any:
        """`self <= other` and its like."""
        if not isinstance(other, set):
            return NotImplemented
        return self.recorder.numbers.of_node(self._function(function, other, name="compared"), UNKNOWN, bool)

    __iter__ = union = intersection = difference = issubset = issuperset = isdisjoint = Growing._refuse
    symmetric_difference = difference_update = intersection_update = symmetric_difference_update = Growing._refuse
    __iand__ = __isub__ = __ixor__ = __contains__ = Growing._refuse
    __hash__ = None  # type: ignore[assignment]


def _define_operators() -> None:
    for name in ("or", "and", "sub", "xor"):
        function = getattr(operator, name, None) or getattr(operator, f"{name}_")
        setattr(LoopSet, f"__{name}__", lambda self, other, f=function: self.combined(f, other))
        setattr(LoopSet, f"__r{name}__", lambda self, other, f=function: self.combined(f, other, True))
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        function = getattr(operator, name)
        setattr(LoopSet, f"__{name}__", lambda self, other, f=function: self.compared(f, other))


_define_operators()


def table_of(values: Any, function: Any, *first: Any) -> Any:
    """`dict(pairs)`, `set(items)` or `Counter(items)` of a list of the run, or a copy of a dict of the run."""
    recorder = values.recorder
    name = recorder.target_name() or function.__name__
    node = recorder.node("call_function", function, (*first, recorder.argument(values)), {}, name)
    factory = first[0] if first else None
    place, give_up = values.place, values._give_up
    if isinstance(values, LoopDict):
        kind = MappingKind(values.kind.key, values.kind.item, function, factory)
        made: Any = (LoopSet if function is set else LoopDict)(recorder, node, kind, name, place, give_up)
        made.shown, made.is_certain = dict(values.shown), values.is_certain
        return made
    key, item, is_certain, shown = values.kind, None, values.is_certain, {}
    if function is collections.Counter:
        kind = kind_of_table(recorder.joining, collections.Counter(), name)
        key, item, is_certain = values.kind, kind.item, False
    elif function is not set:
        if key is not None and (not isinstance(key, RecordKind) or len(key.parts) != 2):
            raise stopping(Unlike(f"{name} is made of what are no pairs"))
        key, item = (None, None) if key is None else key.parts
    if is_certain:
        pairs = [(value, None) if function is set else tuple(value) for value in values.content()]
        keys = [shown_key(pair[0]) for pair in pairs]
        is_certain = UNKNOWN not in keys
        shown = dict(zip(keys, pairs, strict=True)) if is_certain else {}
    kind = MappingKind(key, item, function, factory)
    made = (LoopSet if function is set else LoopDict)(recorder, node, kind, name, place, give_up)
    made.shown, made.is_certain = shown, is_certain
    return made


def opened_table(
    recorder: Capture, value: Any, node: Node, name: str, place: Place | None, give_up: Callable[[], Any] | None
) -> Any:
    """A dict or set of the program as one of which only a run knows the keys, which a node gives. Raises Unlike."""
    kind = kind_of_table(recorder.joining, value, name)
    made: Any = (LoopSet if kind.kind is set else LoopDict)(recorder, node, kind, name, place, give_up)
    made.shown, made.is_certain = shown_of(value), True
    for item in () if kind.kind is set else value.values():
        made._watch(item)
    return made


def _of_table(
    recorder: Capture,
    kind: MappingKind,
    node: Node,
    name: str,
    place: Place | None,
    give_up: Callable[[], Any] | None,
    noted: Callable[[Any], None] | None,
) -> Any:
    return (LoopSet if kind.kind is set else LoopDict)(
        recorder, node, kind, name, place, kind.give_up or give_up, noted
    )


TABLES.append(_of_table)
