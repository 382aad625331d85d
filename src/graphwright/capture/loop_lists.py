"""Lists and tuples that grow in a loop of the graph: how long they are only a run knows.

What they hold are values of one kind each. Every read and write of such a list is a node, where it happens; what the
list holds here is what it does for the example.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from graphwright.capture.contents import content
from graphwright.capture.examples import NeedsRealValues
from graphwright.capture.growing import Growing, GrowingList
from graphwright.capture.item_kinds import Parts, Same, joined_kinds, kind_of_item, seen
from graphwright.capture.joining import Sample, Unlike
from graphwright.capture.list_items import ItemDict, ItemList
from graphwright.capture.running import refusal, stopping
from graphwright.capture.symbols import UNKNOWN, as_number
from graphwright.errors import CaptureError
from graphwright.ir import Node

if TYPE_CHECKING:
    from graphwright.capture.recorder import Recorder

__all__ = ["LoopList", "LoopTuple", "check_items", "value_of_kind"]


class _OfRun(Growing):
    """What lists and tuples share whose length only a run knows."""

    is_local = True
    base: Any  # list or tuple
    node: Any  # None where its items are written as a display
    place: Any
    kind: Any = None  # of its items
    is_certain = True  # whether it holds what it does for the example
    is_sized = False  # whether sizes alone decide how long it is

    def _begin(self, recorder: Recorder, node: Any, name: str, place: Any, give_up: Callable[[], Any] | None) -> None:
        read = (lambda: self._literal()) if node is None else (lambda: node)
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
        self._admit_kind(self._kind_of(item))
        self._watch(item)

    def _watch(self, item: Any) -> None:
        """Remember what a list or dict holds that becomes an item: the program may change it later on."""
        if type(item) in (list, dict):
            self.recorder.listed.append((self, item, content(item)))
        for part in item.values() if type(item) is dict else item if type(item) in (list, tuple) else ():
            self._watch(part)

    def give_up(self) -> None:
        """An item was changed by a name of its own: start again without this list, where that can be."""
        if self._give_up is not None:
            self._refuse()
        raise refusal(
            CaptureError(
                f"the program changes a list or dict that it has put into {self.name}, to which a loop adds",
                at=self.recorder.where(),
                fix="change it before it is put there, or as an item of that list",
            )
        )

    def _admit_kind(self, kind: Any) -> None:
        self.kind = joined_kinds(self.recorder.joining, self.kind, kind, self.name)

    def item(self, node: Node, index: int | None = None, names: Sequence[str] = ()) -> Any:
        """The item that a node gives; for the example it is that at an index, where this is known.

        `names` are what the source calls the parts of the item.
        """
        return self._made(self._kind_at(index), node, "", names)

    def _kind_at(self, index: Any) -> Any:
        length = self.base.__len__(self)
        if type(index) is not int or not self.is_certain or not -length <= index < length:
            return self.kind
        return seen(self.recorder.joining, self.kind, self.base.__getitem__(self, index))

    def _made(self, kind: Any, node: Node, name: str, names: Sequence[str] = ()) -> Any:
        names = names or self.recorder.unpacked_names()
        if kind is None:
            raise stopping(Unlike(f"{self.name or 'a list'} is read before anything is in it"))
        return value_of_kind(self.recorder, kind, node, self.name, self.place, names, self._give_up)

    # ---- what it is for the example

    def content(self) -> list[Any]:
        """What it holds for the example."""
        return [*self.base.__iter__(self)]

    def example(self) -> Any:
        """What operations run on."""
        if not self.is_certain and self.recorder.examples.are_there and not self.recorder.examples.is_real:
            raise stopping(NeedsRealValues("how long a list is depends on data"))
        content = self.recorder._to_examples(self.content())
        if not content and not self.is_certain and self.kind is not None:
            content = [_example(self.kind)]
        return self.base(content)

    def length(self) -> Any:
        """How many items there are: a number of the program."""
        node = self.recorder.node("call_function", len, (self._read(),), {}, "len")
        if self.is_sized and self.is_certain:
            return as_number(self.recorder.numbers.input_symbol(node, self.base.__len__(self)))
        known = self.is_certain and self.recorder.examples.is_real
        return self.recorder.numbers.of_node(node, self.base.__len__(self) if known else UNKNOWN, int)

    def truth_hint(self) -> Any:
        """Whether there is anything in it for the example, as far as that is known."""
        known = self.is_certain and self.recorder.examples.is_real
        return self.base.__len__(self) > 0 if known else UNKNOWN

    # ---- new ones

    def __getitem__(self, index: Any) -> Any:
        node = self.recorder.node(
            "call_function", operator.getitem, (self._read(), self.recorder.argument(index)), {}, "getitem"
        )
        if not isinstance(index, slice):
            return self._made(self._kind_at(index), node, self.name)
        bounds = self.recorder._to_examples(index)
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
            if isinstance(part, _OfRun):
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
        for item in [value.kind] if isinstance(value, _OfRun) else map(self._kind_of, self._items_of(value)):
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
        made.is_certain = value.is_certain if isinstance(value, _OfRun) else True
        return made

    def taken(self, content: Iterable[Any], node: Node, is_certain: bool) -> Any:
        """A list of some of these items that a node gives."""
        made = self._like(content, node, list)
        made.is_certain &= is_certain
        return made

    def _like(self, content: Iterable[Any], node: Node, base: Any = None) -> Any:
        kind: Any = LoopList if (base or self.base) is list else LoopTuple
        made = kind(content, self.recorder, node, self.name, self.place, self._give_up)
        made.is_certain, made.is_sized = self.is_certain, self.is_sized
        made._admit_kind(self.kind)
        return made


class LoopList(_OfRun, GrowingList):
    """A list of the program's that a loop makes longer; `node` gives it, `place` is the loop's."""

    base = list

    def __init__(
        self,
        content: Iterable[Any],
        recorder: Recorder,
        node: Node | None,
        name: str,
        place: Any,
        give_up: Callable[[], Any] | None = None,
    ) -> None:
        list.__init__(self, content)
        self._begin(recorder, node, name, place, give_up)

    # ---- what changes it

    def append(self, value: Any) -> None:
        self._admit(value)
        self._call("append", self._sized(value))
        self._keep(lambda: list.append(self, value))

    def _sized(self, value: Any) -> Any:
        """An item, sizes as what they are: among the arguments of an operation they are a tuple."""
        if type(value) is not torch.Size:
            return value
        return self.recorder.make("call_function", torch.Size, (self.recorder.argument(value),), "shape")

    def extend(self, values: Iterable[Any]) -> None:
        if not isinstance(values, _OfRun):
            super().extend(values)
            return
        self._admit_kind(values.kind)
        self._call("extend", values)
        self.is_certain &= values.is_certain
        self._keep(lambda: list.extend(self, values.content()))

    def insert(self, index: Any, value: Any) -> None:
        self._admit(value)
        self._call("insert", index, self._sized(value))
        self._keep(lambda: list.insert(self, int(index), value))

    def pop(self, *index: Any) -> Any:
        item = super().pop(*index)
        self._keep(lambda: list.pop(self) if list.__len__(self) else None)
        return item

    def sort(self, *, key: Any = None, reverse: Any = False) -> Any:
        """Refuse: converted functions have it recorded by `orderings`."""
        self._refuse()

    def reverse(self) -> None:
        self._call("reverse")
        self._keep(lambda: list.reverse(self))

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(index, slice):
            if not isinstance(value, LoopList) or index != slice(None):
                self._refuse()
            self._admit_kind(value.kind)
            self._keep(lambda: self.set_content(value.content()))
        else:
            self._admit(value)
        super().__setitem__(index, value)

    def _keep(self, change: Any) -> None:
        """Change what the list holds for the example, where that takes this way."""
        taken = [region.is_taken for region in self.recorder.region.all()]
        if False in taken:
            return
        self.is_certain &= None not in taken
        change()

    def copy(self) -> Any:
        return self._like(self.content(), self._call("copy"))

    def set_content(self, values: Iterable[Any]) -> None:
        """Say what the list holds for the example."""
        list.__setitem__(self, slice(None), [*values])


class LoopTuple(_OfRun, tuple):  # type: ignore[type-arg]
    """A tuple of the program's that a loop makes longer."""

    base = tuple

    def __new__(cls, content: Iterable[Any], *start: Any) -> LoopTuple:
        return tuple.__new__(cls, content)

    def __init__(
        self,
        content: Iterable[Any],
        recorder: Recorder,
        node: Node | None,
        name: str,
        place: Any,
        give_up: Callable[[], Any] | None = None,
    ) -> None:
        self._begin(recorder, node, name, place, give_up)

    __iter__ = index = count = __mul__ = __rmul__ = __contains__ = __reversed__ = _OfRun._refuse
    __eq__ = __ne__ = __lt__ = __gt__ = __le__ = __ge__ = _OfRun._refuse
    __hash__ = None  # type: ignore[assignment]


def value_of_kind(
    recorder: Recorder,
    kind: Any,
    node: Node,
    name: str,
    place: Any,
    names: Sequence[str] = (),
    give_up: Callable[[], Any] | None = None,
) -> Any:
    """The value of the program that a node gives, of a kind of item; `names` are what the source calls its parts."""
    if isinstance(kind, Sample):
        return recorder.joining.stand_in(kind, node, place)
    if isinstance(kind, Same):
        return kind.value
    if isinstance(kind, Parts):
        if kind.kind in (list, dict) and len(names) != len(kind.parts):
            make = functools.partial(_of_kind, recorder, name, place, give_up)
            return (ItemList if kind.kind is list else ItemDict)(recorder, kind, node, name, make, give_up)
        if len(names) == len(kind.parts):
            nodes = recorder.unpacked(node, len(kind.parts), names)
        else:
            nodes = [
                recorder.node("call_function", operator.getitem, (node, i), {}, "getitem")
                for i in range(len(kind.parts))
            ]
        pairs = zip(kind.parts, nodes, strict=True)
        items = [value_of_kind(recorder, part, item, name, place, (), give_up) for part, item in pairs]
        return kind.kind(*items) if hasattr(kind.kind, "_fields") else kind.kind(items)
    made = (LoopList if kind.kind is list else LoopTuple)(
        kind.content, recorder, node, name, place, kind.give_up or give_up
    )
    made.is_certain = kind.is_certain
    made._admit_kind(kind.item)
    return made


def _of_kind(
    recorder: Recorder, name: str, place: Any, give_up: Callable[[], Any] | None, kind: Any, node: Node
) -> Any:
    return value_of_kind(recorder, kind, node, name, place, (), give_up)


def check_items(listed: Iterable[tuple[_OfRun, Any, Any]]) -> None:
    """See that no list or dict was changed after it became an item of a list of which a node knows the items."""
    for owner, container, before in listed:
        now = content(container)
        keys = list(before) if isinstance(before, dict) else range(len(before))
        is_same = len(now) == len(before) and (not isinstance(before, dict) or list(now) == keys)
        if not is_same or any(now[key] is not before[key] for key in keys):
            owner.give_up()


def _content(value: Any) -> list[Any]:
    return value.content() if isinstance(value, _OfRun) else [*value]


_NUMBERS: dict[Any, Any] = {int: 3, float: 1.5, bool: True}


def _example(kind: Any) -> Any:
    """An example of a kind of item."""
    if isinstance(kind, Sample):
        return _NUMBERS[kind.kind] if kind.example is None else kind.example
    if isinstance(kind, Same):
        return kind.value
    if isinstance(kind, Parts):
        items = [_example(part) for part in kind.parts]
        if kind.kind is dict:
            return dict(zip(kind.keys, items, strict=True))
        return kind.kind(*items) if hasattr(kind.kind, "_fields") else kind.kind(items)
    return kind.kind([] if kind.item is None else [_example(kind.item)])
