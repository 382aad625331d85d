"""What all containers share of which only a run knows how much is in them, and how a node's value is made of a kind.

Whoever has such a container may hold the same items: so every read and every write is a node, where it happens.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from graphwright.capture.containers.item_kinds import joined_kinds, kind_of_item
from graphwright.capture.containers.list_items import ItemDict, ItemList
from graphwright.capture.containers.methods import ITEM, ITEMS, KEY, Given, Part, Row
from graphwright.capture.containers.row_engine import Container
from graphwright.capture.effects.start_values import note_from_before
from graphwright.capture.proxies.contents import DICTS, content
from graphwright.capture.state.protocol import with_examples
from graphwright.capture.state.running import refused, stopping
from graphwright.capture.state.samples import Growable, Unlike
from graphwright.capture.state.side_ended import Raised
from graphwright.ir import Node
from graphwright.source import targets_in
from graphwright.values import ConstantKind, Kind, MappingKind, RecordKind, SequenceKind, sequence

if TYPE_CHECKING:
    from graphwright.capture.state.places import Place
    from graphwright.capture.state.protocol import Capture
    from graphwright.capture.state.regions import Region

CLASSES: dict[type, Any] = {}  # what stands for a list, dict, set or deque of the run: each puts itself here
_WATCHED = (list, set, collections.deque, *DICTS)


class Holder(Container):
    """A container that is a variable of the program: of what is in it the kind and the example are known.

    `content()` is what it holds for the example, `node` gives it, and `place` is where the plan says so: None for one
    that is there from call to call.
    """

    is_local = True
    base: Any  # the class that it stands for
    node: Any  # None where its items are written as a display
    kind: Any = None  # of what is in it
    place: Place | None
    is_certain = True  # whether it holds what it does for the example
    _owner: Holder | None = None  # the list or dict that this is an item of, where that does not show it
    _noted: Callable[[Kind], None] | None = None  # told of another kind of items, where this is one of a list or dict

    def __init__(
        self,
        content: Iterable[Any],
        recorder: Capture,
        node: Node | None,
        name: str,
        place: Place | None,
        give_up: Callable[[], Any] | None = None,
        kind: Kind | None = None,
    ) -> None:
        self._start(name, recorder, lambda: self._told(node), give_up)
        self.node, self.place = node, place
        self._fill(content, kind)

    @classmethod
    def empty(cls, recorder: Capture, node: Node) -> Any:
        """An empty one that a node makes."""
        return cls((), recorder, node, node.name, recorder.questions.place())

    def _told(self, node: Node | None) -> Any:
        """The node of this, of which a function that a transform or `sorted` is given may want the example."""
        recorder = self.recorder
        if node is None:  # what is written is a display of its items
            return self.base([recorder.argument(item) for item in self.content()])
        if recorder.examples.is_real and any(region.transform for region in recorder.region.all()):
            with_examples(recorder).transforms.note(node, self.example())
        return node

    def _may_raise(self) -> None:
        """What is done raises where something is not there, which the program must not catch: only a run knows."""
        if self.recorder.questions.raises.is_caught_outside():
            self._refuse()

    # What sequences do in their own way, and dicts and sets in theirs:
    content: Callable[[], Any]  # what it holds for the example
    set_content: Callable[[Any], None]  # say so
    _content_of: Callable[[Any], Any]  # what one of the program's own holds, as `content` has it
    _fill: Callable[[Any, Any], None]  # what it holds when it is made, and of which kind it is then
    example: Callable[[], Any]  # what operations run on
    copy: Callable[[], Any]
    has: Callable[[Any], Any]  # `item in self`: a bool of the program
    as_item: Callable[[], Kind]  # the kind of an item that this is
    _kind_of: Callable[..., Kind]  # the kind of an item, or of one that holds a key and a value; raises Unlike
    _kind_of_all: Callable[[Any], Kind | None]  # that of all that is in another one; raises Unlike
    _apply: Callable[[str, Row, list[Any]], None]  # call a method of what it holds; LookupError where that is unknown
    _as_example: Callable[[Row, Part, Any], Any]  # an argument of that; LookupError, too

    # ---- kinds

    def _admit_given(self, given: Given) -> None:
        roles = [role for role, _ in given]
        if ITEM in roles:
            self._see_new(given[-1][1])
            self._admit(*[arg for role, arg in given if role in (KEY, ITEM)])
        if ITEMS in roles:
            for item in () if isinstance(given[-1][1], Holder) else given[-1][1]:
                self._see_new(item)
            self._admit_all(given[-1][1])

    def _admit(self, *entering: Any) -> None:
        """Note what kind of item, or of key and value, there is. Raises Unlike where these are different ones."""
        try:
            kind = self._kind_of(*entering)
        except Unlike as why:
            raise self._unlike(why) from None
        self._admit_kind(kind)
        self._watch(entering[-1])

    def _admit_all(self, values: Iterable[Any]) -> None:
        """Note what kind the items are of that are in another iterable."""
        if not isinstance(values, Holder):
            for item in values:
                self._admit(item)
            return
        self._admit_kind(self._kind_of_all(values))
        if not values.is_certain:
            self.is_certain = False

    def _admit_kind(self, kind: Any) -> None:
        try:
            joined = joined_kinds(self.recorder.joining, self.kind, kind, self.name)
        except Unlike as why:
            raise self._unlike(why) from None
        if joined is not self.kind:
            self.kind = joined
            if self._noted is not None:
                self._noted(self._whole())

    def _whole(self) -> Kind:
        """The kind that this is of as a whole, whatever is in it for the example."""
        return self.kind  # type: ignore[no-any-return]

    def _kind(self, value: Any) -> Kind:
        return kind_of_item(self.recorder.joining, value, self.name)

    def _unlike(self, why: Unlike) -> BaseException:
        """What to raise where something is put here that is of another kind."""
        if self.recorder.region.is_in_loop():
            return why
        if self._give_up is not None:
            self._refuse()
        return refused(
            self.recorder, f"{why}, and a loop fills it", "put what is of another kind into a container of its own"
        )

    # ---- others like it

    def on(self, node: Node, kind: Kind | None = None) -> Any:
        """One like this that another node gives."""
        made = self._like(node)
        if kind is not None:
            made.kind = kind
        return made

    def _like(self, node: Node, content: Iterable[Any] | None = None, base: type | None = None) -> Any:
        """Another one that a node gives, with what is in this one or something else."""
        content = self.content() if content is None else content
        kind: Any = CLASSES[base or self.base]
        made = kind(content, self.recorder, node, self.name, self.place, self._give_up, self._whole())
        made.is_certain, made.is_sized = self.is_certain, self.is_sized
        return made

    def joined_with(self, value: Any) -> Any:
        """This one, with what is in it of the kinds that another one has, too. Raises Unlike."""
        inner = [*_containers_in(value)][1:]
        if len({*map(id, inner)}) < len(inner) or any(map(self._is_elsewhere, inner)):
            raise Unlike(f"{self.name or 'a list'} gets what is elsewhere, too")
        kind = joined_kinds(self.recorder.joining, self.kind, self._kind_of_all(value), self.name)
        return self if kind is self.kind else self.on(self.node, kind)

    def holding(self, value: Any) -> Any:
        """This one, with what another one holds for the example."""
        is_of_run = type(value) is type(self)
        if not is_of_run and type(value) is not self.base:
            return self
        made = self._like(self.node, value.content() if is_of_run else self._content_of(value))
        made.is_certain = value.is_certain if is_of_run else True
        return made

    def _same(self, given: Given, node: Node) -> Any:
        return self._like(node)

    # ---- what it is for the example

    def _change(self, method: str, row: Row, given: Given) -> None:
        """Do the same to what it holds for the example, where that takes this way and tells what is given."""
        if not self._is_kept():
            return
        try:
            if row.is_hidden:
                raise LookupError
            with torch._C.DisableTorchFunction():
                self._apply(method, row, [self._as_example(row, role, arg) for role, arg in given])
        except (LookupError, TypeError, ValueError, RuntimeError):
            self._be_unsure()

    def _watch(self, item: Any) -> None:
        """Remember what a list or dict holds that becomes an item: the program may change it later on."""
        for each in _containers_in(item):
            check = functools.partial(_check_item, self, each, content(each), self.recorder.region)
            self.recorder.at_end.append(check)

    def _see_new(self, item: Any) -> None:
        """See that no list or dict which becomes an item is elsewhere, too: it would be another one there."""
        for each in _containers_in(item):
            if self._is_elsewhere(each):
                what = f"{self.name or 'a list'} gets a {type(each).__name__} that is elsewhere, too"
                raise self._unlike(Unlike(what))

    def _is_elsewhere(self, item: Growable) -> bool:
        """Tell whether a list or dict is an item already, or one for all iterations of a loop: no display is that."""
        recorder = self.recorder
        if any(state.is_loop and state.watches(item) for state in recorder.states):
            return True
        around = [*recorder.region.all()]
        for check in recorder.at_end:
            if type(check) is functools.partial and check.func is _check_item and check.args[1] is item:
                where = check.args[3]
                if where in around or recorder.region in where.all():  # else on two sides of a branch
                    return True
        return False

    def give_up(self) -> None:
        """An item was changed by a name of its own: start again without this list, where that can be."""
        if self._give_up is not None:
            self._refuse()
        raise refused(
            self.recorder,
            f"the program changes a list or dict that it has put into {self.name}, to which a loop adds",
            "change it before it is put there, or as an item of that list",
        )

    def _value(self, kind: Kind | None, node: Node, noted: Callable[[Kind], None], names: Sequence[str] = ()) -> Any:
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


def value_of_kind(
    recorder: Capture,
    kind: Kind,
    node: Node,
    name: str,
    place: Place | None,
    names: Sequence[str] = (),
    give_up: Callable[[], Any] | None = None,
    noted: Callable[[Kind], None] | None = None,
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
    if not isinstance(kind, SequenceKind | MappingKind):
        value = recorder.joining.stand_in(kind, node, place)
        if place is None:
            note_from_before(with_examples(recorder), node, value)
        return value
    content, is_certain = (kind.content, kind.is_certain) if isinstance(kind, SequenceKind) else ((), False)
    made = CLASSES[kind.kind](content, recorder, node, name, place, kind.give_up or give_up, kind)
    made.is_certain, made._noted = is_certain, noted
    return made


def _noted_part(whole: RecordKind, index: int, noted: Callable[[Kind], None] | None) -> Callable[[Any], None] | None:
    """What tells of another kind of one part of what is told of as a whole."""
    if noted is None:
        return None
    return lambda kind: noted(dataclasses.replace(whole, items={**whole.items, whole.keys[index]: kind}))


def _of_kind(
    recorder: Capture,
    name: str,
    place: Place | None,
    give_up: Callable[[], Any] | None,
    kind: Kind,
    node: Node,
    noted: Callable[[Kind], None] | None = None,
) -> Any:
    return value_of_kind(recorder, kind, node, name, place, (), give_up, noted)


def _containers_in(item: Any) -> Iterator[Any]:
    """The lists, dicts, sets and deques of the program's among an item and what it holds."""
    if type(item) in _WATCHED:
        yield item
    held = item.values() if type(item) in DICTS else item if type(item) in (list, tuple, collections.deque) else ()
    for part in held:
        yield from _containers_in(part)


def _check_item(owner: Holder, container: Growable, before: Any, where: Region) -> None:
    """See that a list, dict or set was not changed since it became an item of one of which a node knows the items."""
    now = content(container)
    if isinstance(before, set):
        is_same = now == before
    else:
        keys = list(before) if isinstance(before, dict) else range(len(before))
        is_same = len(now) == len(before) and (not isinstance(before, dict) or list(now) == keys)
        is_same = is_same and all(now[key] is before[key] for key in keys)
    if not is_same:
        owner.give_up()
