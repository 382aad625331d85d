"""The values with which a call starts in attributes that are state: live, or of a few that decide what it does."""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

import torch

from graphwright.capture.effects.first_calls import FirstCalls
from graphwright.capture.effects.held_tables import held_by
from graphwright.capture.effects.kept_kinds import Choice, Either, Unreadable, is_readable, telling
from graphwright.capture.numbers.classes import note_class
from graphwright.capture.proxies.objects import is_plain_kind
from graphwright.capture.state.ledger import Unforeseen
from graphwright.capture.state.regions import made_once
from graphwright.capture.state.symbols import as_number, symbol_of
from graphwright.capture.state.tensor_proxy import TensorProxy
from graphwright.ir import Node
from graphwright.runtime import new_object
from graphwright.values import MIXED, ConstantKind, Kind, NumberKind, OptionalKind, RecordKind, TensorKind, made

if TYPE_CHECKING:
    from graphwright.capture.state.places import Place
    from graphwright.capture.state.protocol import TypedCapture

_NUMBERS = (int, float, bool)


class StartValues:
    """Those of one run of a program. `read` gives the node that reads a place."""

    def __init__(self, recorder: TypedCapture, read: Callable[[Place], Node]) -> None:
        self._recorder, self._read = recorder, read
        self._reads: dict[Place, Callable[[], Node]] = {}
        self.optionals: dict[str, TensorProxy] = {}  # tensors that may be None, by the name of the attribute
        self.names: set[str] = set()  # of attributes and items that have no kind
        self.numbers: set[str] = set()  # of those whose class `type` may ask for
        self._growing: dict[str, set[str]] = {}  # the last names of live containers, by the attributes they are in
        self.first = FirstCalls(recorder.plan, self._starts_as_first)

    def value(self, place: Place, name: str, kind: Kind, value: Any) -> Any:
        """The value of a kind that a call starts with; the example has `value` there."""
        if isinstance(kind, Either) and not self.first.decides(place):
            kind = MIXED
        if isinstance(kind, Either):
            is_first = self.first.finds(place, value)
            value = value if is_first is self._is_first(kind, value) else None
            if is_first:
                return self._value(kind.first, self.reading(place), value, place)
            kind = kind.later
        elif self.first.decides(place):
            if self.first.finds(place, value):
                return self._at_first(place)
            if self._at_first(place) is False:
                return True
            kind = kind.item if isinstance(kind, OptionalKind) else kind.but_none()  # type: ignore[attr-defined]
        left = self.first.kind(place, kind)
        kind, value = (kind, value) if left is None else (left, None)
        if kind is MIXED:
            return self.unreadable(name, last_name(place))
        if isinstance(kind, Choice):
            return self._chosen(kind, value, place)
        return self._value(kind, self.reading(place), value, place)

    def unreadable(self, name: str, key: Hashable) -> Unreadable:
        """What stands for a value of no kind: code that mentions it may ask what it is."""
        self.names.add(str(key))
        return Unreadable(name)

    def note_growing(self, attribute: str, place: Place) -> None:
        """A container is live that is in this attribute, or in a variable outside of modules: `""`."""
        self._growing.setdefault(attribute, set()).add(last_name(place))

    def look_for(self, may_read: Callable[[str], bool]) -> frozenset[str]:
        """The names that code mentions which may ask what is in an attribute."""
        for attribute in [each for each in self._growing if not each or may_read(each)]:
            self.numbers |= self._growing.pop(attribute)
        return frozenset(self.optionals) | self.names | self.numbers

    def overlooked(self, may_read: Callable[[str], bool]) -> str | None:
        """An attribute that the program may read after all, though nothing was looked for that asks what is in it."""
        return next(filter(may_read, self._growing), None)

    def _at_first(self, place: Place) -> Any:
        """What is in an attribute before a first call sets it: None, [] or False."""
        value = self._recorder.plan.at_first.get(place)
        return [] if type(value) is list else value

    def _starts_as_first(self, place: Place, value: Any, answer: bool | None) -> bool:
        kind = self._recorder.plan.kept.get(place)
        if not isinstance(kind, Either):
            return self.starts_with(self._at_first(place), value, place, answer=answer)
        how, *given = telling(kind.first, kind.later) or ()
        node, hint = self._told(place, how, given), self._is_first(kind, value) if answer is None else answer
        when = "before the first call: capture the model after it" if answer is None else "with the others"
        return self._asked(node, hint, ("attribute", place), f"is {kind.first} {when}", answer is not None)

    def _told(self, place: Place, how: Any, given: list[Any]) -> Node:
        """The node that tells whether a place holds what the first call finds."""
        recorder, read = self._recorder, self.reading(place)()
        if not given:
            return recorder.node("call_function", isinstance, (read, how), {}, "is_first")
        held = recorder.node("call_method", how, (read,), {}, how) if how == "dim" else None
        held = held or recorder.node("call_function", getattr, (read, how), {}, how)
        return recorder.node("call_function", operator.eq, (held, *given), {}, "is_first")

    def _is_first(self, kind: Either, value: Any) -> bool:
        """Tell whether the example has what the first call finds."""
        how, *given = telling(kind.first, kind.later) or ()
        if not given:
            return isinstance(value, how)
        return isinstance(value, torch.Tensor) and (value.dim() if how == "dim" else value.dtype) == given[0]

    def reading(self, place: Place) -> Callable[[], Node]:
        """Make the node that reads a place, once."""
        return self._reads.setdefault(place, made_once(lambda: self._read(place)))

    def _chosen(self, kind: Choice, value: Any, place: Place) -> Any:
        """Have the program fork into the calls that start with each of some values; the last is checked for."""
        *others, last = kind.values
        for choice in others:
            if self.starts_with(choice, value, place):
                return choice
        self.starts_with(last, last, place, is_only=True)
        return last

    def item_of_growing(self, kind: Kind, node: Node, name: str) -> Any:
        """The value of a node that reads an item of a growing list or dict, where it is read."""
        if not is_readable(kind):
            return Unreadable(name)
        value = self._value(kind, lambda: node, None, (name, ()))
        note_from_before(self._recorder, node, value)
        return value

    def _value(self, kind: Kind, make: Callable[[], Node], value: Any, place: Place) -> Any:
        recorder = self._recorder
        if may_be_none := isinstance(kind, OptionalKind):
            kind = kind.item
        if isinstance(kind, TensorKind):
            is_tensor = isinstance(value, torch.Tensor)
            example = recorder.example(value) if is_tensor else recorder.examples.like(kind.example)
            proxy = TensorProxy.make(recorder, example, None, make)
            if may_be_none:
                proxy.optional = "attribute", place
                proxy.is_none = value is None
                recorder.questions.optionals.note()
                self.optionals[place[0].rpartition(".")[2]] = proxy
            return proxy
        if isinstance(kind, NumberKind):
            hint = kind.kind(value) if type(value) in _NUMBERS else kind.hint
            node = make()
            if kind.kind is float:  # or an int, which calls may leave there as well
                recorder.ledger.unforeseen[node] = Unforeseen({}, "")
                self.numbers.add(last_name(place))
            return as_number(recorder.numbers.input_symbol(node, hint))
        if isinstance(kind, RecordKind):
            items = {}
            for key, item in kind.items.items():
                own = held_by(value).get(key) if type(value) is kind.kind else None
                if is_readable(item):
                    items[key] = self._value(item, self._item(make, key, is_plain_kind(kind.kind)), own, place)
                else:
                    items[key] = self.unreadable(f"{place[0]}[{key!r}]", key)
            if is_plain_kind(kind.kind):
                return new_object(kind.kind, **items)
            return made(kind.kind, items)
        assert isinstance(kind, ConstantKind)
        return kind.value

    def starts_with(
        self, choice: Any, value: Any, place: Place, is_only: bool = False, answer: bool | None = None
    ) -> bool:
        """Have the program fork into the calls that start with a value and those that do not; or check for it.

        With an `answer` it is checked for that: it is there with the others, or with them it is not.
        """
        recorder = self._recorder
        is_unset = choice is None or choice is False or choice == []
        question = ("attribute", place) if is_unset else ("attribute", place, choice)
        is_object = choice is None or isinstance(choice, enum.Enum) or callable(choice)
        compare: Any = operator.is_ if is_object else operator.eq
        name = "is_none" if choice is None else "is_first" if is_unset else "is_it"
        asked = (compare, choice) if choice is not False else (operator.not_,)
        node = recorder.node("call_function", asked[0], (self.reading(place)(), *asked[1:]), {}, name=name)
        hint = (value is choice or value == choice) if answer is None else answer
        when = "before the first call: capture the model after it" if is_unset else "anew"
        what = f"is {getattr(choice, '__qualname__', repr(choice))} {when if answer is None else 'with the others'}"
        return self._asked(node, hint, question, what, is_only or answer is not None)

    def _asked(self, node: Node, hint: bool, question: Any, what: str, is_checked: bool) -> bool:
        """Have the program fork on what a node tells of a place, or check for it."""
        recorder, place = self._recorder, question[1]
        symbol = recorder.numbers.input_symbol(node, hint)
        is_guarded = recorder.plan.ways.get(question) == "guard" or recorder.questions.forking.follows_start()
        if is_checked or is_guarded:
            where = f"{'.'.join(map(str, (place[0], *place[1])))} {what}"
            return bool(recorder.questions.guards.guard(symbol, where))
        answer = recorder.questions.forking.fork(symbol, question)
        recorder.questions.forking.forks[-1].site = None  # no line of the program asks
        return answer

    def _item(self, make: Callable[[], Node], key: Hashable, is_attribute: bool = False) -> Callable[[], Node]:
        """Read an item of a container, or an attribute of an object, in the graph where that is read."""
        read: Any = getattr if is_attribute else operator.getitem

        def item() -> Node:
            owner = make()
            return owner.graph.create_node("call_function", read, (owner, key), {}, "kept")

        return made_once(item)


def last_name(place: Place) -> str:
    """The name of an attribute, or the key or number of an item.

    >>> last_name(("encoder.steps", ())), last_name(("steps", (0,)))
    ('steps', '0')
    """
    return str(place[1][-1]) if place[1] else str(place[0]).rpartition(".")[2]


def note_from_before(recorder: TypedCapture, node: Node, value: Any) -> None:
    """Note that a node gives an item that a growing container may have held before the call.

    No guard at the start looks at what is in there: what the program asks of the item is checked where that is read.
    """
    symbol = symbol_of(value)
    if type(value) is TensorProxy:
        example, _ = recorder.to_examples(value), value.node_of()
        facts = {"rank": example.dim(), "dtype": example.dtype}
        recorder.ledger.unforeseen[node] = Unforeseen(facts, recorder.where() or "", was_there=True)
    elif symbol is not None and symbol.kind is not float:  # which may be an int there
        note_class(recorder, node, symbol.kind)
