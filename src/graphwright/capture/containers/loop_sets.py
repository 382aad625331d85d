"""Sets of which only a run knows what is in them, and what makes dicts and sets of other values of the run."""

from __future__ import annotations

import collections
import operator
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from graphwright.capture.containers.item_kinds import kind_of_table
from graphwright.capture.containers.loop_dicts import Keyed, LoopDict
from graphwright.capture.containers.loop_holders import CLASSES, Holder
from graphwright.capture.containers.loop_lists import LoopList, OfRun
from graphwright.capture.containers.methods import SET, Part, Row
from graphwright.capture.containers.row_engine import shown_key, with_methods
from graphwright.capture.state.symbols import UNKNOWN
from graphwright.ir import Node
from graphwright.values import MappingKind

if TYPE_CHECKING:
    from graphwright.capture.state.places import Place
    from graphwright.capture.state.protocol import Capture


@with_methods(SET, set)
class LoopSet(Keyed):
    """A set of which only a run knows what is in it: no `set` to functions in C, which would take it for empty."""

    plain = base = set

    def _content_of(self, value: Iterable[Any]) -> Any:
        return {shown_key(item) for item in value}

    def example(self) -> Any:
        """What operations run on."""
        self._need_content()
        return {item.known() for item in self.shown}

    def listed(self) -> LoopList:
        made = super().listed()
        made.is_certain &= len(self.shown) < 2  # its order is another one
        return made

    def _as_example(self, row: Row, role: Part, arg: Any) -> Any:
        return shown_key(arg)

    def update(self, *others: Any) -> None:
        for other in others:
            if isinstance(other, LoopSet | OfRun):
                self._do("update", SET["update"], (other,))
            else:
                for item in other:
                    self.add(item)  # type: ignore[attr-defined]

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
        made._be_unsure()
        return made

    def compared(self, function: Callable[[Any, Any], Any], other: Any) -> Any:
        """`self <= other` and its like."""
        if not isinstance(other, set):
            return NotImplemented
        arguments = self._read(), self.recorder.argument(other)
        name = self.recorder.target_name() or "compared"
        return self.recorder.numbers.of_node(
            self.recorder.node("call_function", function, arguments, {}, "", name), UNKNOWN, bool
        )


def _define_operators() -> None:
    for name in ("or", "and", "sub", "xor"):
        function = getattr(operator, name, None) or getattr(operator, f"{name}_")
        setattr(LoopSet, f"__{name}__", lambda self, other, f=function: self.combined(f, other))
        setattr(LoopSet, f"__r{name}__", lambda self, other, f=function: self.combined(f, other, True))
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        function = getattr(operator, name)
        setattr(LoopSet, f"__{name}__", lambda self, other, f=function: self.compared(f, other))


_define_operators()
CLASSES[set] = LoopSet


def table_of(values: Holder, function: type, *first: Any) -> Any:
    """`dict(pairs)`, `set(items)` or `Counter(items)` of a list of the run, or a copy of a dict of the run."""
    recorder = values.recorder
    name = recorder.target_name() or function.__name__
    node = recorder.node("call_function", function, (*first, recorder.argument(values)), {}, name)
    kind = MappingKind(kind=function, factory=first[0] if first else None)
    if function is collections.Counter and not isinstance(values, LoopDict):
        kind = kind_of_table(recorder.joining, collections.Counter(), name)
    made: Any = CLASSES[function]((), recorder, node, name, values.place, values._give_up, kind)
    made._admit_all(values)
    try:
        if isinstance(values, LoopDict):
            made.set_content(values.content())
        elif function is not collections.Counter and values.is_certain:
            made.set_content(made._content_of(values.content()))
        else:
            made._be_unsure()
    except LookupError:
        made._be_unsure()
    return made


def opened_table(
    recorder: Capture,
    value: Any,
    node: Node,
    name: str,
    place: Place | None,
    give_up: Callable[[], Any] | None,
) -> Any:
    """A dict or set of the program as one of which only a run knows the keys, which a node gives. Raises Unlike."""
    kind = kind_of_table(recorder.joining, value, name)
    made: Any = CLASSES[kind.kind]((), recorder, node, name, place, give_up, kind)
    made.set_content(made._content_of(value))
    for item in () if kind.kind is set else value.values():
        made._watch(item)
    return made
