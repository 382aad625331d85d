"""Lists and tuples that grow in a loop of the graph: how long they are only a run knows.

What they hold are values of one kind each. Every read and write of such a list is a node, where it happens; what the
list holds here is what it does for the example.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from graphwright.capture.containers.item_kinds import joined_kinds, kind_of_item, seen
from graphwright.capture.containers.loop_holders import CLASSES, Holder
from graphwright.capture.proxies.growing import GrowingList
from graphwright.capture.state.examples import NeedsRealValues
from graphwright.capture.state.protocol import with_examples
from graphwright.capture.state.running import stopping
from graphwright.capture.state.samples import Unlike
from graphwright.capture.state.symbols import UNKNOWN, as_number, symbol_of
from graphwright.ir import Node
from graphwright.values import SequenceKind

if TYPE_CHECKING:
    from graphwright.capture.state.places import Place
    from graphwright.capture.state.protocol import Capture

__all__ = ["LoopList", "LoopTuple", "OfRun"]


class OfRun(Holder):
    """What lists, tuples and deques share whose length only a run knows."""

    is_sized = False  # whether sizes alone decide how long it is

    def _begin(self, recorder: Capture, node: Any, name: str, place: Any, give_up: Callable[[], Any] | None) -> None:
        read = (lambda: self._literal()) if node is None else (lambda: self._told(node))
        self._start(name, recorder, read, self._made, give_up)
        self.node, self.place = node, place
        for item in self.content():
            self._admit(item)

    def _literal(self) -> Any:
        """What is written for one that no node gives: a display of its items."""
        return self.base([self.recorder.argument(item) for item in self.content()])

    # ---- kinds

    def _admit(self, item: Any) -> None:
        """Note what kind of item there is. Raises Unlike where the items are of different kinds."""
        try:
            kind = self._kind_of(item)
        except Unlike as why:
            raise self._unlike(why) from None
        self._admit_kind(kind)
        self._watch(item)

    def _admit_kind(self, kind: Any) -> None:
        try:
            joined = joined_kinds(self.recorder.joining, self.kind, kind, self.name)
        except Unlike as why:
            raise self._unlike(why) from None
        if joined is not self.kind:
            self.kind = joined
            if self._noted is not None:
                self._noted(SequenceKind(joined, self.base, give_up=self._give_up))

    def _admit_item(self, kind: type) -> None:
        """A list or dict that is an item has got items of other kinds."""
        self._admit_kind(kind)

    def as_item(self) -> SequenceKind:
        """The kind of an item that this is."""
        return SequenceKind(self.kind, self.base, tuple(self.content()), self.is_certain, self._give_up)

    def item(self, node: Node, index: int | None = None, names: Sequence[str] = ()) -> Any:
        """The item that a node gives; for the example it is that at an index, where this is known.

        `names` are what the source calls the parts of the item.
        """
        return self._made(self._kind_at(index), node, "", names)

    def _has(self, index: int) -> bool:
        """Tell whether the example has an item there."""
        length: int = self.base.__len__(self)
        return -length <= index < length

    def _kind_at(self, index: Any) -> Any:
        if type(index) is not int or not self.is_certain or not self._has(index):
            return self.kind
        return seen(self.recorder.joining, self.kind, self.content()[index])

    def _made(self, kind: type, node: Node, name: str, names: Sequence[str] = ()) -> Any:
        return self._of_kind(kind, node, self._admit_item, names)

    # ---- what it is for the example

    def content(self) -> list[Any]:
        """What it holds for the example."""
        return [*self.base.__iter__(self)]

    def example(self) -> Any:
        """What operations run on."""
        if not self.is_certain and self.recorder.examples.are_there and not self.recorder.examples.is_real:
            raise stopping(NeedsRealValues("how long a list is depends on data"))
        content = self.recorder.to_examples(self.content())
        if not content and not self.is_certain and self.kind is not None:
            content = [self.kind.instance()]
        return self.base(content)

    def length(self) -> Any:
        """How many items there are: a number of the program."""
        node = self.recorder.node("call_function", len, (self._read(),), {}, "len")
        if self.is_sized and self.is_certain:
            return as_number(with_examples(self.recorder).numbers.input_symbol(node, self.base.__len__(self)))
        known = self.is_certain and self.recorder.examples.is_real
        return self.recorder.numbers.of_node(node, self.base.__len__(self) if known else UNKNOWN, int)

    def truth_hint(self) -> Any:
        """Whether there is anything in it for the example, as far as that is known."""
        known = self.is_certain and self.recorder.examples.is_real
        return self.base.__len__(self) > 0 if known else UNKNOWN

    def _keep(self, change: Callable[[], Any]) -> None:
        """Change what it holds for the example, where that takes this way."""
        if self._is_kept():
            change()

    def _show(self, change: Callable[[list[Any]], Any], *given: Any) -> None:
        """Change a copy of what it holds for the example, as far as that tells what is given."""
        held = self.content()
        try:
            if not all(map(_is_known, given)):
                raise LookupError
            change(held)
        except (LookupError, ValueError):  # the example does not come here with these items
            self.is_certain = False
        self.set_content(held)

    # ---- what is asked of it, and what changes single items

    def has(self, item: Any) -> Any:
        """`item in self`: a bool of the program."""
        return self._asked(operator.contains, bool, item)

    def index(self, item: Any, *bounds: Any) -> Any:
        self._may_raise()
        return self._asked("index", int, item, *bounds)

    def count(self, item: Any) -> Any:
        return self._asked("count", int, item)

    def _asked(self, function: Any, kind: type, *args: Any) -> Any:
        """A number that is computed of it."""
        arguments = (self._read(), *map(self.recorder.argument, args))
        op, name = ("call_method", function) if isinstance(function, str) else ("call_function", "contains")
        node = self.recorder.node(op, function, arguments, {}, "", self.recorder.target_name() or name)
        return self.recorder.numbers.of_node(node, UNKNOWN, kind)

    def _set(self, index: Any, value: Any) -> None:
        self._may_raise()
        self._admit(value)
        self._written_at(index, value)
        self._keep(lambda: self._show(lambda held: held.__setitem__(_hinted(index), value), index))

    def _written_at(self, index: Any, value: Any) -> None:
        arguments = (self._read(), self.recorder.argument(index), self._written(value))
        self.recorder.node("call_function", operator.setitem, arguments, {})

    def _delete(self, index: Any) -> None:
        self._may_raise()
        self.recorder.node("call_function", operator.delitem, (self._read(), self.recorder.argument(index)), {})
        self._keep(lambda: self._show(lambda held: held.__delitem__(_hinted(index)), index))

    # ---- new ones

    def __getitem__(self, index: Any) -> Any:
        if not isinstance(index, slice):
            self._may_raise()
        node = self.recorder.node(
            "call_function", operator.getitem, (self._read(), self.recorder.argument(index)), {}, "getitem"
        )
        if not isinstance(index, slice):
            item = self._made(self._kind_at(index), node, self.name)
            is_shown = self.base is not tuple and type(index) is int and self._has(index)
            place = index % self.base.__len__(self) if is_shown else 0
            return self._lend(item, (lambda: self.base.__setitem__(self, place, item)) if is_shown else None)
        bounds = self.recorder.to_examples(index)
        return self._like(self.base.__getitem__(self, bounds), node)

    def __add__(self, values: Any) -> Any:
        return self._sum(self, values)

    def __radd__(self, values: Any) -> Any:
        return self._sum(values, self)

    def _sum(self, one: Any, other: Any) -> Any:
        if not isinstance(one, self.base) or not isinstance(other, self.base):
            return NotImplemented
        arguments = tuple(map(self.recorder.argument, (one, other)))
        node = self.recorder.node("call_function", operator.add, arguments, {}, "add")
        return self._joined(one, other, node)

    def _joined(self, one: Any, other: Any, node: Node) -> Any:
        """The value of a node that gives what two lists hold, one after the other."""
        made = self._like([*_content(one), *_content(other)], node)
        for part in (one, other):
            if isinstance(part, OfRun):
                made._admit_kind(part.kind)
                made.is_certain &= part.is_certain
        return made

    def listed(self, base: Any) -> Any:
        """`list(self)` or `tuple(self)`."""
        return self._like(self.content(), self.recorder.node("call_function", base, (self._read(),), {}, ""), base)

    def on(self, node: Node) -> Any:
        """One like this that another node gives."""
        return self._like(self.content(), node)

    def joined_with(self, value: Any) -> Any:
        """This one, with items of a kind that those of another list have, too. Raises Unlike."""
        kind = self.kind
        for item in [value.kind] if isinstance(value, OfRun) else map(self._kind_of, self._items_of(value)):
            kind = joined_kinds(self.recorder.joining, kind, item, self.name)
        if kind is self.kind:
            return self
        made = self._like(self.content(), self.node)
        made.kind = kind
        return made

    def _kind_of(self, item: Any) -> Any:
        return kind_of_item(self.recorder.joining, item, self.name)

    def _items_of(self, value: Any) -> Iterable[Any]:
        return value if type(value) is self.base else ()

    def holding(self, value: Any) -> Any:
        """This one, with what another list holds for the example."""
        if type(value) not in (self.base, type(self)):
            return self
        made = self._like(_content(value), self.node)
        made.is_certain = value.is_certain if isinstance(value, OfRun) else True
        return made

    def taken(self, content: Iterable[Any], node: Node, is_certain: bool) -> Any:
        """A list of some of these items that a node gives."""
        made = self._like(content, node, list)
        made.is_certain &= is_certain
        return made

    def _like(self, content: Iterable[Any], node: Node, base: Any = None) -> Any:
        made = CLASSES[base or self.base](content, self.recorder, node, self.name, self.place, self._give_up)
        made.is_certain, made.is_sized = self.is_certain, self.is_sized
        made._admit_kind(self.kind)
        return made


class LoopList(OfRun, GrowingList):
    """A list of the program's that a loop makes longer; `node` gives it, `place` is the loop's."""

    base = list

    def __init__(
        self,
        content: Iterable[Any],
        recorder: Capture,
        node: Node | None,
        name: str,
        place: Place | None,
        give_up: Callable[[], Any] | None = None,
    ) -> None:
        list.__init__(self, content)
        self._begin(recorder, node, name, place, give_up)

    # ---- what changes it

    def append(self, value: Any) -> None:
        self._admit(value)
        self._method("append", self._written(value))
        self._keep(lambda: list.append(self, value))

    def extend(self, values: Iterable[Any]) -> None:
        if not isinstance(values, OfRun):
            super().extend(values)
            return
        self._admit_kind(values.kind)
        self._call("extend", values)
        self.is_certain &= values.is_certain
        self._keep(lambda: list.extend(self, values.content()))

    def insert(self, index: Any, value: Any) -> None:
        self._admit(value)
        self._method("insert", self.recorder.argument(index), self._written(value))
        self._keep(lambda: list.insert(self, int(index), value))

    def pop(self, *index: Any) -> Any:
        self._may_raise()
        where = index[0] if index else -1
        item = self._made(self._kind_at(where), self._call("pop", *index), self.name)
        self._keep(lambda: self._show(lambda held: held.pop(_hinted(where)), where))
        return item

    def clear(self) -> None:
        self._call("clear")
        self._keep(lambda: self.set_content(()))

    def sort(self, *, key: Hashable = None, reverse: Any = False) -> Any:
        """Refuse: converted functions have it recorded by `orderings`."""
        self._refuse()

    def reverse(self) -> None:
        self._call("reverse")
        self._keep(lambda: list.reverse(self))

    def __setitem__(self, index: Any, value: Any) -> None:
        if not isinstance(index, slice):
            self._set(index, value)
            return
        items = value if isinstance(value, OfRun) else [*value]
        if isinstance(items, OfRun):
            self._admit_kind(items.kind)
            self.is_certain &= items.is_certain
        else:
            for item in items:
                self._admit(item)
        self._written_at(index, items)
        self._keep(lambda: self._show(lambda held: held.__setitem__(_hinted(index), _content(items)), index))

    def __delitem__(self, index: Any) -> None:
        self._delete(index)

    def remove(self, value: Any) -> None:
        self._may_raise()
        self._call("remove", value)
        self._keep(lambda: self._show(lambda held: held.remove(value), value))

    def __mul__(self, times: Any) -> Any:
        arguments = (self._read(), self.recorder.argument(times))
        node = self.recorder.node("call_function", operator.mul, arguments, {}, "mul")
        made = self._like(self.content() * int(_hinted(times)) if _is_known(times) else (), node)
        made.is_certain &= _is_known(times)
        return made

    __rmul__ = __mul__

    def copy(self) -> Any:
        return self._like(self.content(), self._call("copy"))

    def set_content(self, values: Iterable[Any]) -> None:
        """Say what the list holds for the example."""
        list.__setitem__(self, slice(None), [*values])


CLASSES[list] = LoopList


class LoopTuple(OfRun, tuple):  # type: ignore[type-arg]
    """A tuple of the program's that a loop makes longer."""

    base = tuple

    def __new__(cls, content: Iterable[Any], *start: Any) -> LoopTuple:
        return tuple.__new__(cls, content)

    def __init__(
        self,
        content: Iterable[Any],
        recorder: Capture,
        node: Node | None,
        name: str,
        place: Place | None,
        give_up: Callable[[], Any] | None = None,
    ) -> None:
        self._begin(recorder, node, name, place, give_up)

    index, count = OfRun.index, OfRun.count
    __iter__ = __mul__ = __rmul__ = __contains__ = __reversed__ = OfRun._refuse
    __eq__ = __ne__ = __lt__ = __gt__ = __le__ = __ge__ = OfRun._refuse
    __hash__ = None  # type: ignore[assignment]


CLASSES[tuple] = LoopTuple


def _content(value: Any) -> list[Any]:
    return value.content() if isinstance(value, OfRun) else [*value]


def _is_known(value: Any) -> bool:
    """Tell whether the example tells a number, or the bounds of a slice."""
    if isinstance(value, slice):
        return all(map(_is_known, (value.start, value.stop, value.step)))
    symbol = symbol_of(value)
    return value is None or type(value) is int or (symbol is not None and symbol.has_value)


def _hinted(value: Any) -> Any:
    """A number, or a slice, as the example has it."""
    if isinstance(value, slice):
        return slice(_hinted(value.start), _hinted(value.stop), _hinted(value.step))
    symbol = symbol_of(value)
    return value if symbol is None else symbol.hint
