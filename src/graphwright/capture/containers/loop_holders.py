"""What all containers share of which only a run knows how much is in them, and how a node's value is made of a kind.

Whoever has such a container may hold the same items: so every read and every write is a node, where it happens.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
import operator
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from graphwright.capture.containers.item_kinds import DICTS
from graphwright.capture.containers.list_items import ItemDict, ItemList
from graphwright.capture.proxies.contents import content
from graphwright.capture.proxies.growing import Growing
from graphwright.capture.state.protocol import with_examples
from graphwright.capture.state.running import refusal, stopping
from graphwright.capture.state.samples import Unlike
from graphwright.capture.state.side_ended import Raised
from graphwright.errors import CaptureError
from graphwright.ir import Node
from graphwright.source import targets_in
from graphwright.values import ConstantKind, MappingKind, RecordKind, SequenceKind, sequence

if TYPE_CHECKING:
    from graphwright.capture.state.places import Place
    from graphwright.capture.state.protocol import Capture

__all__ = ["CLASSES", "TABLES", "Holder", "check_items", "value_of_kind"]

CLASSES: dict[type, Any] = {}  # what stands for a list, tuple or deque of the run: each puts itself here
TABLES: list[Callable[..., Any]] = []  # what makes the dicts and sets of a run: `loop_sets` puts it here
_WATCHED = (list, set, collections.deque, *DICTS)


class Holder(Growing):
    """What all variables share of which only a run knows how much is in them."""

    is_local = True
    base: Any  # the class that it stands for
    node: Any  # None where its items are written as a display
    kind: Any = None  # of what is in it
    place: Any
    is_certain = True  # whether it holds what it does for the example
    _owner: Holder | None = None  # the list or dict that this is an item of, where that does not show it
    _noted: Callable[[Any], None] | None = None  # told of another kind of items, where this is one of a list or dict

    def _told(self, node: Node) -> Node:
        """The node of this, of which a function that a transform or `sorted` is given may want the example."""
        recorder = self.recorder
        if recorder.examples.is_real and any(region.transform for region in recorder.region.all()):
            with_examples(recorder).transforms.note(node, self.example())
        return node

    def content(self) -> Any:
        """What it holds for the example."""
        raise NotImplementedError

    def set_content(self, held: Any) -> None:
        """Say what it holds for the example."""
        raise NotImplementedError

    def as_item(self) -> Any:
        """The kind of an item that this is."""
        raise NotImplementedError

    def copy(self) -> Any:
        """Another one like it."""
        raise NotImplementedError

    def example(self) -> Any:
        """What operations run on."""
        raise NotImplementedError

    def _may_raise(self) -> None:
        """What is done raises where something is not there, which the program must not catch: only a run knows."""
        if self.recorder.questions.raises.is_caught_outside():
            self._refuse()

    def _unlike(self, why: Unlike) -> BaseException:
        """What to raise where something is put here that is of another kind."""
        if self.recorder.region.is_in_loop():
            return why
        if self._give_up is not None:
            self._refuse()
        return refusal(
            CaptureError(
                f"{why}, and a loop fills it",
                at=self.recorder.where(),
                fix="put what is of another kind into a container of its own",
            )
        )

    def _watch(self, item: Any) -> None:
        """Remember what a list or dict holds that becomes an item: the program may change it later on."""
        if type(item) in _WATCHED:
            self.recorder.listed.append((self, item, content(item)))
        held = item.values() if type(item) in DICTS else item if type(item) in (list, tuple, collections.deque) else ()
        for part in held:
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

    def _of_kind(self, kind: type, node: Node, noted: Callable[[Any], None], names: Sequence[str] = ()) -> Any:
        """The value that a node gives, of a kind of item; `noted` is told where it gets items of others."""
        names = names or self.recorder.unpacked_names()
        if kind is None:
            raise self._read_early()
        return value_of_kind(self.recorder, kind, node, self.name, self.place, names, self._give_up, noted)

    def _lend(self, item: Any, show: Callable[[], Any] | None) -> Any:
        """Give an item to the program, which may change it: `show` has this one hold it for the example, if it can."""
        if isinstance(item, Holder):
            if show is None or not self.is_certain:
                item._owner = self
            else:
                show()
        return item

    def _be_unsure(self) -> None:
        """What this one holds for the example is not known any more."""
        self.is_certain = False
        if self._owner is not None:
            self._owner._be_unsure()

    def _is_kept(self) -> bool:
        """Tell whether a change here happens for the example, and say so to what this is an item of."""
        inner = itertools.takewhile(lambda region: region is not self._home, self.recorder.region.all())
        taken = [region.is_taken for region in inner]
        if False in taken:
            return False
        if None in taken:
            self._be_unsure()
        elif self._owner is not None:
            self._owner._be_unsure()
        return True

    def _read_early(self) -> BaseException:
        """What to raise where an item is read before anything is known to be in it.

        In a loop this way through it may be one that only a later iteration goes: it is captured again then.
        """
        if self.recorder.region.note_early_read():
            return Raised()
        return stopping(Unlike(f"{self.name or 'a list'} is read before anything is in it"))

    def _text(self, *spec: Any) -> Any:
        """The text of what is in it: converted functions make a node of that."""
        if self.recorder.questions.messages.is_in_message():
            return f"<{self.name or 'what a loop fills'}>"
        return self._refuse()

    __str__ = __format__ = __repr__ = _text

    def _key(self, key: Hashable) -> Any:
        return self.recorder.argument(key)

    def _written(self, value: Any) -> Any:
        """The argument for an item, sizes as what they are: among the arguments of an operation they are a tuple."""
        if type(value) is not torch.Size:
            return self.recorder.argument(value)
        return self.recorder.make("call_function", torch.Size, (self.recorder.argument(value),), "shape")


def value_of_kind(
    recorder: Capture,
    kind: Any,
    node: Node,
    name: str,
    place: Any,
    names: Sequence[str] = (),
    give_up: Callable[[], Any] | None = None,
    noted: Callable[[Any], None] | None = None,
) -> Any:
    """The value of the program that a node gives, of a kind of item; `names` are what the source calls its parts.

    `noted` is told of its kind where that turns out to be another: it is a list or dict, and gets other items.
    """
    if isinstance(kind, ConstantKind):
        return kind.value
    if isinstance(kind, RecordKind):
        if kind.kind is dict or (kind.kind is list and not (names and len(names) == len(kind.parts))):
            make = functools.partial(_of_kind, recorder, name, place, give_up)
            return (ItemList if kind.kind is list else ItemDict)(recorder, kind, node, name, make, give_up, noted)
        if len(names) == len(kind.parts):
            nodes = recorder.unpacked(node, len(kind.parts), names)
        else:
            names = [""] * len(kind.parts)
            nodes = [
                recorder.node("call_function", operator.getitem, (node, i), {}, "getitem")
                for i in range(len(kind.parts))
            ]
        items = [
            value_of_kind(recorder, part, item, name, place, targets_in(names[i]), give_up, _noted_part(kind, i, noted))
            for i, (part, item) in enumerate(zip(kind.parts, nodes, strict=True))
        ]
        return sequence(kind.kind, items)
    if isinstance(kind, MappingKind):
        return TABLES[0](recorder, kind, node, name, place, give_up, noted)
    if not isinstance(kind, SequenceKind):
        return recorder.joining.stand_in(kind, node, place)
    made: Any = CLASSES[kind.kind](kind.content, recorder, node, name, place, kind.give_up or give_up)
    made.is_certain = kind.is_certain
    made._admit_kind(kind.item)
    made._noted = noted
    return made


def _noted_part(whole: RecordKind, index: int, noted: Callable[[Any], None] | None) -> Callable[[Any], None] | None:
    """What tells of another kind of one part of what is told of as a whole."""
    if noted is None:
        return None
    return lambda kind: noted(dataclasses.replace(whole, items={**whole.items, whole.keys[index]: kind}))


def _of_kind(
    recorder: Capture,
    name: str,
    place: Place | None,
    give_up: Callable[[], Any] | None,
    kind: type,
    node: Node,
    noted: Callable[[Any], None] | None = None,
) -> Any:
    return value_of_kind(recorder, kind, node, name, place, (), give_up, noted)


def check_items(listed: Iterable[tuple[Holder, Any, Any]]) -> None:
    """See that no list or dict was changed after it became an item of a list of which a node knows the items."""
    for owner, container, before in listed:
        now = content(container)
        if isinstance(before, set):
            if now != before:
                owner.give_up()
            continue
        keys = list(before) if isinstance(before, dict) else range(len(before))
        is_same = len(now) == len(before) and (not isinstance(before, dict) or list(now) == keys)
        if not is_same or any(now[key] is not before[key] for key in keys):
            owner.give_up()
