"""Lists that grow in a loop of the graph: how long they are only a run knows.

What they hold are values of one kind each. Every read and write of such a list is a node, where it happens; what the
list holds here is what it does for the example.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch

from graphwright.capture.growing import GrowingList
from graphwright.capture.joining import Sample, Unlike
from graphwright.capture.running import stopping
from graphwright.capture.symbols import UNKNOWN, as_number
from graphwright.ir import Node

if TYPE_CHECKING:
    from graphwright.capture.recorder import Recorder

__all__ = ["LoopList"]


class LoopList(GrowingList):
    """A list of the program's that a loop makes longer; `node` gives it, `place` is the loop's."""

    is_local = True

    def __init__(
        self,
        content: Iterable[Any],
        recorder: Recorder,
        node: Node,
        name: str,
        place: Any,
        give_up: Callable[[], Any] | None = None,
    ) -> None:
        list.__init__(self, content)
        self._start(name, recorder, lambda: node, self._made, give_up)
        self.node, self.place = node, place
        self.is_certain = True  # whether it holds what it does for the example
        self.kind: Any = None  # of its items: samples in tuples and dicts, as the items are
        for item in list.__iter__(self):
            self._admit(item)

    # ---- kinds

    def _admit(self, item: Any) -> None:
        """Note what kind of item there is. Raises Unlike where the items are of different kinds."""
        kind = self._kind_of(item)
        self.kind = kind if self.kind is None else self._same_kind(self.kind, kind, item)

    def _kind_of(self, value: Any) -> Any:
        joining = self.recorder.joining
        if isinstance(value, torch.Tensor) or joining.is_open(value) or type(value) in (int, float, bool):
            return joining.sample(value, value)
        if type(value) in (tuple, list) or hasattr(value, "_fields"):
            return type(value), [self._kind_of(item) for item in value]
        if isinstance(value, str | type(None)):
            return None, value
        raise Unlike(f"{self.name or 'a list'} gets items of class {type(value).__name__}")

    def _same_kind(self, known: Any, kind: Any, item: Any) -> Any:
        if isinstance(known, Sample) and isinstance(kind, Sample):
            return self.recorder.joining.widened(known, item)
        if isinstance(known, tuple) and isinstance(kind, tuple) and known[0] is kind[0]:
            if known[0] is None:
                if known[1] == kind[1]:
                    return known
            elif len(known[1]) == len(kind[1]):
                return known[0], [self._same_kind(*values) for values in zip(known[1], kind[1], item, strict=True)]
        raise Unlike(f"{self.name or 'a list'} gets items of different kinds")

    def item(self, node: Node, index: int | None = None) -> Any:
        """The item that a node gives; for the example it is that at an index, where this is known."""
        kind = self.kind
        if index is not None and self.is_certain and index < list.__len__(self):
            kind = self._seen(kind, list.__getitem__(self, index))
        return self._made(kind, node, "")

    def _seen(self, kind: Any, value: Any) -> Any:
        """A kind of item, with the sizes and numbers of one."""
        if isinstance(kind, Sample):
            own = self.recorder.joining.sample(value, value)
            return dataclasses.replace(kind, example=own.example, hint=own.hint) if kind.kind is own.kind else kind
        if kind is None or kind[0] is None:
            return kind
        return kind[0], [self._seen(part, item) for part, item in zip(kind[1], value, strict=True)]

    def _made(self, kind: Any, node: Node, name: str) -> Any:
        if isinstance(kind, Sample):
            return self.recorder.joining.stand_in(kind, node, self.place)
        if kind is None:
            raise stopping(Unlike(f"{self.name or 'a list'} is read before anything is in it"))
        if kind[0] is None:
            return kind[1]
        nodes = self.recorder.unpacked(node, len(kind[1]), [""] * len(kind[1]))
        items = [self._made(part, node, "") for part, node in zip(kind[1], nodes, strict=True)]
        return kind[0](*items) if hasattr(kind[0], "_fields") else kind[0](items)

    # ---- what changes it

    def append(self, value: Any) -> None:
        self._admit(value)
        self._call("append", value)
        self._keep(lambda: list.append(self, value))

    def insert(self, index: Any, value: Any) -> None:
        self._admit(value)
        self._call("insert", index, value)
        self._keep(lambda: list.insert(self, int(index), value))

    def pop(self, index: Any = -1) -> Any:
        item = super().pop(index)
        self._keep(lambda: list.pop(self) if list.__len__(self) else None)
        return item

    def __setitem__(self, index: Any, value: Any) -> None:
        self._admit(value)
        super().__setitem__(index, value)

    def _keep(self, change: Any) -> None:
        """Change what the list holds for the example, where that takes this way."""
        taken = [region.is_taken for region in self.recorder.region.all()]
        if False in taken:
            return
        self.is_certain &= None not in taken
        change()

    # ---- new lists

    def __getitem__(self, index: Any) -> Any:
        if not isinstance(index, slice):
            return super().__getitem__(index)
        node = self.recorder.node(
            "call_function", operator.getitem, (self._read(), self.recorder.argument(index)), {}, "getitem"
        )
        bounds = self.recorder._to_examples(index)
        return self._like(list.__getitem__(self, bounds), node)

    def __add__(self, values: Any) -> Any:
        return self._sum(self, values)

    def __radd__(self, values: Any) -> Any:
        return self._sum(values, self)

    def _sum(self, one: Any, other: Any) -> Any:
        arguments = tuple(map(self.recorder.argument, (one, other)))
        node = self.recorder.node("call_function", operator.add, arguments, {}, "add")
        return self._like([*_content(one), *_content(other)], node)

    def copy(self) -> Any:
        return self._like(list.__iter__(self), self._call("copy"))

    def listed(self) -> Any:
        """`list(self)`."""
        return self._like(list.__iter__(self), self.recorder.node("call_function", list, (self._read(),), {}, "list_"))

    def on(self, node: Node) -> LoopList:
        """A list like this one that another node gives."""
        return self._like(list.__iter__(self), node)

    def _like(self, content: Iterable[Any], node: Node) -> LoopList:
        made = LoopList(content, self.recorder, node, self.name, self.place, self._give_up)
        made.is_certain, made.is_sized = self.is_certain, self.is_sized
        made.kind = self.kind if made.kind is None else made.kind
        return made

    # ---- its length

    def length(self) -> Any:
        node = self.recorder.node("call_function", len, (self._read(),), {}, "len")
        if self.is_sized and self.is_certain:
            return as_number(self.recorder.numbers.input_symbol(node, list.__len__(self)))
        known = self.is_certain and self.recorder.examples.is_real
        return self.recorder.numbers.of_node(node, list.__len__(self) if known else UNKNOWN, int)

    def content(self) -> list[Any]:
        """What the list holds for the example."""
        return [*list.__iter__(self)]

    def set_content(self, values: Iterable[Any]) -> None:
        """Say what the list holds for the example."""
        list.clear(self)
        list.extend(self, values)


def _content(values: Any) -> Iterable[Any]:
    """What a list holds for the example."""
    return list.__iter__(values) if isinstance(values, list) else values
