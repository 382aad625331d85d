"""Lists, tuples and deques that grow in a loop of the graph: how long they are only a run knows.

What they hold are values of one kind each. Every read and write of such a list is a node, where it happens; what the
list holds here is what it does for the example. What their methods do says `methods.py`; here is what is their own.
"""

from __future__ import annotations

import collections
import operator
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, SupportsIndex

import torch

from graphwright.capture.containers.item_kinds import joined_kinds, seen
from graphwright.capture.containers.loop_holders import CLASSES, Holder
from graphwright.capture.containers.methods import (
    CONTAINS,
    DEQUE,
    HEAP,
    INDEX,
    ITEMS,
    KEY,
    LIST,
    TUPLE,
    Given,
    Part,
    Row,
)
from graphwright.capture.containers.row_engine import Shown, shown_key, with_methods
from graphwright.capture.state.examples import NeedsRealValues
from graphwright.capture.state.protocol import with_examples
from graphwright.capture.state.running import stopping
from graphwright.capture.state.symbols import UNKNOWN, as_number, symbol_of
from graphwright.capture.state.tensor_proxy import TensorProxy
from graphwright.ir import Node
from graphwright.values import Kind, SequenceKind


class OfRun(Holder):
    """What lists, tuples and deques share whose length only a run knows."""

    __iter__: Callable[[], Iterator[Any]]  # refused: a loop goes over it in another way

    def _fill(self, content: Iterable[Any], kind: SequenceKind | None) -> None:
        if self.base is not tuple:
            longest = getattr(content, "maxlen", None)
            self.base.__init__(self, content, *(() if longest is None else (longest,)))
        for item in self.content():
            self._admit(item)
        if kind is not None:
            self._admit_kind(kind.item)

    # ---- kinds

    def _whole(self) -> SequenceKind:
        return SequenceKind(self.kind, self.base, give_up=self._give_up)

    def as_item(self) -> SequenceKind:
        """The kind of an item that this is."""
        return SequenceKind(self.kind, self.base, tuple(self.content()), self.is_certain, self._give_up)

    def _kind_of(self, *entering: Any) -> Kind:
        return self._kind(entering[-1])

    def _kind_of_all(self, values: Iterable[Any]) -> Kind | None:
        if isinstance(values, OfRun):
            return values.kind  # type: ignore[no-any-return]
        kind: Kind | None = None
        for item in values if type(values) is self.base else ():
            kind = joined_kinds(self.recorder.joining, kind, self._kind(item), self.name)
        return kind

    def _kind_at(self, index: int | None) -> Any:
        if index is None or not self.is_certain or not self._has(index):
            return self.kind
        return seen(self.recorder.joining, self.kind, self.content()[index])

    def _has(self, index: int | None) -> bool:
        """Tell whether the example has an item there."""
        length: int = self.base.__len__(self)
        return type(index) is int and -length <= index < length

    # ---- what a node gives

    def item(self, node: Node, index: int | None = None, names: Sequence[str] = ()) -> Any:
        """The item that a node gives; for the example it is that at an index, where this is known.

        `names` are what the source calls the parts of the item.
        """
        return self._value(self._kind_at(index), node, self._admit_kind, names)

    def _part(self, row: Row, given: Given, node: Node) -> Any:
        index = given[0][1] if given and given[0][0] is INDEX else row.default
        item = self.item(node, index)
        if not row.keeps:
            return item
        is_shown = self.base is not tuple and self._has(index)
        return self._lend(item, (lambda: self.base.__setitem__(self, index, item)) if is_shown else None)

    def _same(self, given: Given, node: Node) -> Any:
        if not given:
            return self._like(node)
        try:
            return self._like(node, self.base.__getitem__(self, _known(given[0][1])))
        except LookupError:  # only a run knows which items these are
            made = self._like(node)
            made.is_certain = False
            return made

    # ---- what it is for the example

    def content(self) -> list[Any]:
        """What it holds for the example."""
        return [*self.base.__iter__(self)]

    def _content_of(self, value: Iterable[Any]) -> Any:
        return value

    def example(self) -> Any:
        """What operations run on."""
        if not self.is_certain and self.recorder.examples.are_there and not self.recorder.examples.is_real:
            raise stopping(NeedsRealValues("how long a list is depends on data"))
        content = self.recorder.to_examples(self.content())
        if not content and not self.is_certain and self.kind is not None:
            content = [self.kind.instance()]
        return self.base(content)

    def _apply(self, method: str, row: Row, args: list[Any]) -> None:
        if row.calls not in HEAP and KEY not in row.takes:
            getattr(self.base, method)(self, *args)
            return
        if row.calls in HEAP and not self.recorder.examples.is_real:
            raise LookupError  # what comes first is not known
        held = [self._compared(row, item) for item in self.content()]
        (row.calls or getattr(list, method))(held, *args)
        self.set_content([shown.value for shown in held])

    def _as_example(self, row: Row, role: Part, arg: Any) -> Any:
        if role is INDEX:
            return _known(arg)
        if role is ITEMS:
            return arg.content() if isinstance(arg, OfRun) else [*arg]
        return self._compared(row, arg) if role is KEY or row.calls in HEAP else arg

    def _compared(self, row: Row, item: Any) -> Shown:
        """An item, compared as what it is for the example: in a heap whatever it is."""
        return Shown(item, self.recorder.to_examples(item)) if row.calls in HEAP else shown_key(item)

    # ---- what is asked of it as a whole

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

    def has(self, item: Any) -> Any:
        """`item in self`: a bool of the program."""
        return self._do("__contains__", CONTAINS, (item,))

    # ---- new ones

    def __add__(self, values: Any) -> Any:
        return self._sum(self, values)

    def __radd__(self, values: Any) -> Any:
        return self._sum(values, self)

    def _sum(self, one: Any, other: Any) -> Any:
        if not isinstance(one, self.base) or not isinstance(other, self.base):
            return NotImplemented
        arguments = tuple(map(self.recorder.argument, (one, other)))
        node = self.recorder.node("call_function", operator.add, arguments, {}, "add")
        parts = [part.content() if isinstance(part, OfRun) else [*part] for part in (one, other)]
        made = self._like(node, [*parts[0], *parts[1]])
        made._admit_kind(self._kind_of_all(other if one is self else one))
        made.is_certain = all(not isinstance(part, OfRun) or part.is_certain for part in (one, other))
        return made

    def listed(self, base: Any) -> Any:
        """`list(self)` or `tuple(self)`."""
        return self._like(self.recorder.node("call_function", base, (self._read(),), {}, ""), base=base)

    def taken(self, content: Iterable[Any], node: Node, is_certain: bool) -> Any:
        """A list of some of these items that a node gives."""
        made = self._like(node, content, list)
        made.is_certain &= is_certain
        return made


@with_methods(LIST, list)
class LoopList(OfRun, list):  # type: ignore[type-arg]
    """A list of the program's that a loop makes longer."""

    base = list

    def sort(self, *, key: Hashable = None, reverse: bool = False) -> Any:
        """Refuse: converted functions have it recorded by `orderings`."""
        self._refuse()

    def set_content(self, held: Iterable[Any]) -> None:
        """Say what the list holds for the example."""
        list.__setitem__(self, slice(None), [*held])

    def __iadd__(self, values: Iterable[Any]) -> LoopList:  # type: ignore[misc]
        self.extend(values)
        return self

    def __mul__(self, times: SupportsIndex) -> Any:
        arguments = (self._read(), self.recorder.argument(times))
        node = self.recorder.node("call_function", operator.mul, arguments, {}, "mul")
        try:
            return self._like(node, self.content() * _known(times))
        except LookupError:
            made = self._like(node, ())
            made.is_certain = False
            return made

    __rmul__ = __mul__

    def __imul__(self, times: SupportsIndex) -> LoopList:
        self[:] = self * times
        return self


@with_methods(TUPLE, tuple)
class LoopTuple(OfRun, tuple):  # type: ignore[type-arg]
    """A tuple of the program's that a loop makes longer."""

    base = tuple

    def __new__(cls, content: Iterable[Any], *start: Any) -> LoopTuple:
        return tuple.__new__(cls, content)


@with_methods(DEQUE, collections.deque)
class LoopQueue(OfRun, collections.deque):  # type: ignore[type-arg]
    """A deque of the program's that a loop makes longer."""

    base = collections.deque

    def set_content(self, held: Iterable[Any]) -> None:
        """Say what the deque holds for the example."""
        collections.deque.clear(self)
        collections.deque.extend(self, held)

    def __iadd__(self, values: Iterable[Any]) -> LoopQueue:  # type: ignore[misc]
        self.extend(values)
        return self

    def _like(self, node: Node, content: Iterable[Any] | None = None, base: type | None = None) -> Any:
        content = self.content() if content is None else content
        return super()._like(node, collections.deque(content, self.maxlen) if base is None else content, base)


CLASSES.update({list: LoopList, tuple: LoopTuple, collections.deque: LoopQueue})


def _known(value: SupportsIndex | slice | None) -> Any:
    """A number, or a slice, as the example has it. Raises LookupError where that does not tell."""
    if isinstance(value, slice):
        return slice(_known(value.start), _known(value.stop), _known(value.step))
    symbol = symbol_of(value)
    if symbol is None and (value is None or type(value) in (int, bool)):
        return value
    if isinstance(value, TensorProxy) and value.recorder.examples.is_real:
        with torch._C.DisableTorchFunction():
            return operator.index(value.example)
    if symbol is None or not symbol.has_value:
        raise LookupError
    return symbol.hint
