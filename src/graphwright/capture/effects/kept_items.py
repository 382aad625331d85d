"""What is in the lists and dicts to which a program adds from call to call: of what kinds it is, and whether it stays.

A list or dict that goes into one of them, or comes out, is a value: what it holds is what it held then. Where the
program changes it later on, it becomes one to which the program adds, too, and every read and write of it a node.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Hashable, Iterable
from typing import TYPE_CHECKING, Any

from graphwright.capture.effects.kept_kinds import ATTRIBUTE, PLAIN, Grows, Unreadable, joined
from graphwright.capture.proxies.contents import changeable, content, is_unchanged
from graphwright.capture.proxies.growing import is_growing
from graphwright.capture.proxies.run_keys import form_of_key
from graphwright.errors import CaptureError
from graphwright.values import Kind, RecordKind, SequenceKind, join

if TYPE_CHECKING:
    from graphwright.capture.state.places import Place
    from graphwright.capture.state.protocol import TypedCapture
    from graphwright.ir import Node


class KeptItems:
    """Those of one run of a program. `kind_of` gives the kind of a value, `value_of` the value of a kind and a node."""

    def __init__(
        self,
        recorder: TypedCapture,
        kept_container: Callable[..., Any],
        kind_of: Callable[[Any], Kind],
        value_of: Callable[[Kind, Node, str], Any],
    ) -> None:
        self.recorder, self._live = recorder, recorder.plan.kept
        self.kept_container, self._kind_of, self.value_of = kept_container, kind_of, value_of
        self._grown: dict[Place, Any] = {}
        self._fixed: list[tuple[Place, str, Any, Any]] = []  # containers that went in or came out, and their content

    def start(self, place: Place, name: str, value: Any, read: Callable[[], Node]) -> Any:
        """What stands for a list, dict or set to which the program adds; for None, one that is there in other calls."""
        kind: Grows = self._live[place]
        value = kind.empty() if value is None else value
        give_up = (lambda: self._live.__setitem__(place, PLAIN)) if kind.is_assumed else None
        items = Items(self, place, kind.are_growing)
        grown = self.kept_container(value, kind.held, name, self.recorder, read, items, give_up)
        if type(value) is not set:
            self._grown[place] = grown
        return grown

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

    def kind(self, kind: type, held: Iterable[tuple[Hashable, Any]], are_growing: bool = False) -> Grows:
        """The kind of a list, dict or set that grows and has held these keys and items."""
        if kind is set:
            return Grows(SequenceKind(None, set))
        kinds: dict[Hashable, Kind] = {}
        for key, value in held:
            form = form_of_key(key) if kind is dict else None
            found = self._kind_inside(value, are_growing)
            kinds[form] = join(kinds[form], found, ATTRIBUTE) if form in kinds else found
        grows = Grows.dict_of(kinds) if kind is dict else Grows(SequenceKind(kinds.get(None), list))
        return dataclasses.replace(grows, are_growing=are_growing)

    def _kind_inside(self, value: Any, are_growing: bool) -> Kind:
        kind = next((kind for kind in (list, dict) if isinstance(value, kind)), None)
        if are_growing and kind is not None:
            return self.kind(kind, value.held if is_growing(value) else _held(value), True).held
        return self._kind_of(value)

    def joined(self, known: Kind, now: Any) -> Kind:
        """The kind of an attribute that was known to be of one, and has become a value."""
        if isinstance(known, Grows) and type(now) in (list, dict, set):
            return _with(known, self.kind(type(now), _held(now), known.are_growing).held)
        if isinstance(known, Grows) and is_growing(now) and hasattr(now, "as_item"):
            return _with(known, now.as_item())
        return joined(known, self._kind_of(now))

    def learn(self) -> bool:
        """Learn what kinds of values lists and dicts hold that grow. Tell whether they were others than was known."""
        changed = self._learn_fixed()
        for place, grown in self._grown.items():
            known = self._live[place]
            kind = _with(known, self.kind(grown.base, grown.held, known.are_growing).held)
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
            self._live[place] = self.kind(grown.base, grown.held, True)
        return bool(others)


@dataclasses.dataclass(eq=False)
class Items:
    """What one such container, or one inside of it, does with its items."""

    kept: KeptItems
    place: Place
    are_growing: bool

    def make(self, kind: Kind | None, node: Node, name: str) -> Any:
        """The value of a node that reads an item of a kind, where it is read."""
        if self.are_growing and isinstance(kind, SequenceKind | RecordKind) and kind.kind in (list, dict):
            return self.kept.kept_container(kind.kind(), kind, name, self.kept.recorder, lambda: node, self)
        value = Unreadable(name) if kind is None else self.kept.value_of(kind, node, name)
        self.note(name, value)
        return value

    def note_change(self) -> None:
        """The program changes what is in it."""
        self.kept.recorder.plan.changed.add(self.place)

    def note(self, name: str, value: Any) -> None:
        """A value goes into it, or comes out."""
        self.kept.fix(self.place, name, value)


def _with(known: Grows, held: Kind) -> Grows:
    both = join(known.held, held, ATTRIBUTE)
    return known if both is known.held else dataclasses.replace(known, held=both)


def _held(container: Collection[Any]) -> Iterable[tuple[Hashable, Any]]:
    return container.items() if isinstance(container, dict) else ((None, item) for item in container)
