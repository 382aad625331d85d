"""What is in the lists and dicts to which a program adds from call to call: of what kinds it is, and whether it stays.

A list or dict that goes into one of them, or comes out, is a value: what it holds is what it held then. Where the
program changes it later on, it becomes one to which the program adds, too, and every read and write of it a node.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable, Collection, Hashable, Iterable, Sized
from typing import TYPE_CHECKING, Any

from graphwright.capture.effects.kept_kinds import ATTRIBUTE, PLAIN, Grows, Unreadable, emptied, joined
from graphwright.capture.proxies.constructors import lasting
from graphwright.capture.proxies.contents import DICTS, HOLDERS, changeable, content, is_unchanged
from graphwright.capture.proxies.growing import is_growing
from graphwright.capture.proxies.run_keys import form_of_key
from graphwright.capture.state.plan import Restart
from graphwright.capture.state.regions import made_once
from graphwright.capture.state.running import refusal
from graphwright.errors import CaptureError
from graphwright.values import ConstantKind, Kind, RecordKind, SequenceKind, join

if TYPE_CHECKING:
    from graphwright.capture.state.places import Place
    from graphwright.capture.state.protocol import TypedCapture
    from graphwright.capture.state.regions import Region
    from graphwright.capture.state.samples import Growable
    from graphwright.ir import Argument, Node


class KeptItems:
    """Those of one run of a program.

    `kind_of` gives the kind of a value, `value_of` the value of a kind and a node, `held_elsewhere` how the graph reads
    the containers that the program leaves where they are.
    """

    def __init__(
        self,
        recorder: TypedCapture,
        kept_container: Callable[..., Any],
        kind_of: Callable[[Any], Kind],
        value_of: Callable[[Kind, Node, str], Any],
        held_elsewhere: Callable[[], dict[int, Callable[[], Node]]],
    ) -> None:
        self.recorder, self._live = recorder, recorder.plan.kept
        self._kept_container, self._kind_of, self.value_of = kept_container, kind_of, value_of
        self._held_elsewhere = held_elsewhere
        self._grown: dict[Place, Any] = {}
        self._started: list[Any] = []
        self._placed: dict[int, tuple[Any, Argument, Region, str | None]] = {}  # items, their nodes, and where
        self._out: set[int] = set()  # those of them that have come out of one
        self._fixed: list[tuple[Place, str, Any, Any]] = []  # containers that went in or came out, and their content

    def start(self, place: Place, name: str, value: Any, read: Callable[[], Node]) -> Any:
        """What stands for a list, dict or set to which the program adds; for None, one that is there in other calls."""
        kind: Grows = self._live[place]
        value = kind.empty() if value is None else value
        give_up = (lambda: self._live.__setitem__(place, PLAIN)) if kind.is_assumed else None
        items = Items(self, place, kind.are_growing)
        grown = self.stand_in(value, kind.held, name, read, items, give_up)
        if type(value) is not set:
            self._grown[place] = grown
        return grown

    def stand_in(self, value: Any, held: Kind, name: str, read: Callable[[], Node], items: Items, *give_up: Any) -> Any:
        """What stands for a container with items of some kind."""
        self._started.append(self._kept_container(value, held, name, self.recorder, read, items, *give_up))
        return self._started[-1]

    def placed(self, value: Any) -> Argument:
        """The argument for an item: a list, dict or set is made once, for all places where it is."""
        recorder, kind, known = self.recorder, type(value), self._placed.get(id(value))
        if kind not in HOLDERS:
            return lasting(recorder, value)
        around = recorder.region.all()
        if known is not None and known[2] not in around and recorder.region not in known[2].all():
            known = None  # it was on the other side of a branch
        if known is None:
            read = self._held_elsewhere().get(id(value))
            made = self._argument(value) if read is None else read()
            if kind in (list, dict) and read is None:
                made = recorder.node("call_function", kind, (made,), {}, kind.__name__)
            self._placed[id(value)] = value, made, recorder.region, recorder.where()
        if any(state.is_loop and state.watches(value) for state in recorder.states):
            return self._refuse_placed(value)
        return self._again(value)

    def _argument(self, value: Any) -> Argument:
        if type(value) is list:
            return [lasting(self.recorder, item) for item in value]
        if type(value) is dict:
            return {key: lasting(self.recorder, item) for key, item in value.items()}
        return self.recorder.argument(value)

    def there(self, value: Any, node: Node) -> None:
        """An item has come out of a container: it is the one that is there."""
        if type(value) in HOLDERS or is_growing(value) or isinstance(value, tuple):
            self._placed[id(value)] = value, node, self.recorder.region, self.recorder.where()
            reads: dict[int, Any] = {id(value): None}
            self._hold_inside(value, lambda: node, reads)
            self._out |= reads.keys()

    def came_out(self, value: Sized) -> bool:
        """Tell whether a value is an item that has come out of a container."""
        return id(value) in self._out

    def _again(self, value: Growable) -> Argument:
        """The node that has made a container which is an item."""
        _, made, region, _ = self._placed[id(value)]
        return made if region in self.recorder.region.all() else self._refuse_placed(value)

    def _refuse_placed(self, value: Growable) -> Any:
        what = f"the program keeps a {type(value).__name__} in several places, of which some are in a branch or loop"
        raise refusal(CaptureError(what, at=self._placed[id(value)][3], fix="keep a copy of it in each"))

    def held(self) -> dict[int, Callable[[], Any]]:
        """How the graph reads the containers that are items, by their ids."""
        found: dict[int, Callable[[], Any]] = {}
        for key, (value, *_) in self._placed.items():
            found[key] = functools.partial(self._again, value)
        for value, *_ in self._placed.values():
            self._hold_inside(value, found[id(value)], found)
        return found

    def _hold_inside(
        self, value: Growable | tuple[Any, ...], make: Callable[[], Any], found: dict[int, Callable[[], Any]]
    ) -> None:
        if type(value) not in _ORDERED:
            return
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            if type(item) in _ORDERED:
                read: Callable[[], Any] = functools.partial(self._inside, make, key)
                if not isinstance(item, tuple):
                    read = found.setdefault(id(item), made_once(read))
                self._hold_inside(item, read, found)

    def _inside(self, make: Callable[[], Any], key: Hashable) -> Any:
        return self.recorder.node("call_function", operator.getitem, (make(), key), {}, "kept")

    def fix(self, place: Place, name: str, value: Any) -> None:
        """A value has gone into a container, or come out of it."""
        waiting, seen = [value], set()
        while waiting:
            item = waiting.pop()
            for each in () if is_growing(item) else changeable(item):
                if id(each) in seen:
                    continue
                seen.add(id(each))
                held = content(each)
                self._fixed.append((place, name.partition("[")[0], each, held))
                waiting += held.values() if isinstance(held, dict) else held
            if type(item) is tuple:
                waiting += item

    def kind(self, like: Any, held: Iterable[tuple[Hashable, Any]], are_growing: bool = False) -> Grows:
        """The kind of a container that grows, is of the class of another one and has held these keys and items."""
        kind: type = like.stands_for() if is_growing(like) else type(like)
        if kind is set:
            return Grows(SequenceKind(None, set))
        held, factory = [*held], getattr(like, "default_factory", None)
        are_growing = are_growing or factory in HOLDERS or any(type(value) in _GROW for _, value in held)
        kinds: dict[Hashable, Kind] = {}
        for key, value in held:
            form = form_of_key(key) if kind in DICTS else None
            found = self._kind_inside(value, are_growing)
            kinds[form] = join(kinds[form], found, ATTRIBUTE) if form in kinds else found
        grows = Grows(SequenceKind(kinds.get(None), kind))
        if kind in DICTS:
            grows = Grows.dict_of(kinds, kind=kind, factory=factory)
        return dataclasses.replace(grows, are_growing=are_growing)

    def kind_before(self, before: Any, now: Any) -> Kind:
        """The kind of what an attribute held: a list grows in the place of which there is one of another length."""
        is_longer = type(before) is list and isinstance(now, list) and (is_growing(now) or len(before) != len(now))
        if is_longer or (type(before) in _GROW and type(now) is type(before)):
            return self.kind(before, _held(before))
        return self._kind_of(before)

    def _kind_inside(self, value: Any, are_growing: bool) -> Kind:
        if are_growing and (type(value) in HOLDERS or (is_growing(value) and not value.is_local)):
            return self.kind(value, value.held if is_growing(value) else _held(value), True).held
        if are_growing and is_growing(value) and hasattr(value, "as_item"):
            return value.as_item()  # type: ignore[no-any-return]
        return self._kind_of(value)

    def joined(self, known: Kind, now: Any) -> Kind:
        """The kind of an attribute that was known to be of one, and has become a value."""
        if isinstance(known, Grows) and type(now) in HOLDERS:
            return _with(known, self.kind(now, _held(now), known.are_growing))
        if isinstance(known, ConstantKind) and known.value is None and type(now) in _GROW:
            return self.kind(now, _held(now))
        if isinstance(known, Grows) and is_growing(now) and hasattr(now, "as_item"):
            return _with(known, Grows(now.as_item()))
        return joined(known, self._kind_of(now))

    def learn(self) -> bool:
        """Learn what kinds of values lists and dicts hold that grow. Tell whether they were others than was known."""
        changed = self._learn_fixed()
        for grown in self._started:
            if grown.is_past_methods():
                what = f"a function in C, or one without source, changes {grown.name}, to which the program adds"
                fix = "call the methods of it, in a function whose source can be read"
                self.recorder.questions.refusals.refuse(CaptureError(f"{what}, past its methods", fix=fix), "attribute")
        for place, grown in self._grown.items():
            known = self._live[place]
            kind = _with(known, self.kind(grown, grown.held, known.are_growing))
            changed |= kind is not known
            self._live[place] = kind
        return changed

    def _learn_fixed(self) -> bool:
        """Have what is in a container grow, if the program has changed something that went in or came out."""
        others = {place: name for place, name, each, held in self._fixed if not is_unchanged(held, content(each))}
        for place, name in others.items():
            known, grown = self._live[place], self._grown.get(place)
            if known.are_growing or grown is None:
                what = f"the program changes a list, dict or object after it has put it into {name}"
                error = CaptureError(what, fix=f"put it there when it is complete, or change what {name}[...] gives")
                self.recorder.questions.refusals.refuse(error, "attribute")
                continue
            self._live[place] = self.kind(grown, grown.held, True)
        return bool(others)


@dataclasses.dataclass(eq=False)
class Items:
    """What one such container, or one inside of it, does with its items."""

    kept: KeptItems
    place: Place
    are_growing: bool

    def make(self, kind: Kind | None, node: Node, name: str) -> Any:
        """The value of a node that reads an item of a kind, where it is read."""
        if self.are_growing and isinstance(kind, SequenceKind | RecordKind) and kind.kind in HOLDERS:
            value = self.kept.stand_in(emptied(kind), kind, name, lambda: node, self)
        else:
            value = Unreadable(name) if kind is None else self.kept.value_of(kind, node, name)
            self.note(name, value)
        self.kept.there(value, node)
        return value

    def placed(self, value: Any) -> Argument:
        """The argument for an item."""
        return self.kept.placed(value)

    def learn(self) -> None:
        """Start again if what this pass has put there tells of which kinds it is, before all of it is looked at."""
        if self.kept.learn():
            raise self.kept.recorder.questions.restart(Restart("all is looked at that a program keeps"))

    def note_change(self, container: Sized) -> list[Any]:
        """The program changes what is in it, or in one that came out of it: give those put there, which that may be."""
        kept = self.kept
        kept.recorder.plan.changed.add(self.place)
        return [each for place, _, each, _ in kept._fixed if place == self.place] if kept.came_out(container) else []

    def note(self, name: str, value: Any) -> None:
        """A value goes into it, or comes out."""
        self.kept.fix(self.place, name, value)


_ORDERED = (HOLDERS - {set}) | {tuple}
_GROW = HOLDERS - {list, dict}  # of which there are none of a known length


def _with(known: Grows, now: Grows) -> Grows:
    both, are_growing = join(known.held, now.held, ATTRIBUTE), known.are_growing or now.are_growing
    is_known = both is known.held and are_growing == known.are_growing
    return known if is_known else dataclasses.replace(known, held=both, are_growing=are_growing)


def _held(container: Collection[Any]) -> Iterable[tuple[Hashable, Any]]:
    return container.items() if isinstance(container, dict) else ((None, item) for item in container)
