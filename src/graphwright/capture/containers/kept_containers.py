"""Lists, dicts and sets in attributes to which a program adds, from call to call.

What is in them differs from call to call, so nothing of it is known while the program is captured but what kind of
value each holds: every read and every write is a node, where it happens. What is put there stays as an example.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from graphwright.capture.containers.loop_lists import LoopList
from graphwright.capture.containers.methods import CONTAINS, DICT, ITEM, KEPT_SET, KEY, LIST, Given, Row, only
from graphwright.capture.containers.row_engine import Container, with_methods
from graphwright.capture.effects.kept_kinds import ATTRIBUTE
from graphwright.capture.proxies.growing import Growing
from graphwright.capture.proxies.run_keys import example_of_key, form_of_key, may_be
from graphwright.capture.state.protocol import with_examples
from graphwright.capture.state.symbols import as_number
from graphwright.ir import Node
from graphwright.source import user_frame
from graphwright.values import Kind, RecordKind, SequenceKind, join

if TYPE_CHECKING:
    from graphwright.capture.effects.kept_items import Items
    from graphwright.capture.state.protocol import Capture
    from graphwright.capture.state.symbols import Number

_CONTAINS = dataclasses.replace(CONTAINS, is_part=True)
_GET = dataclasses.replace(DICT["__getitem__"], is_part=True)


class _Kept(Container):
    """What these lists, dicts and sets share: `items` makes the values of items."""

    base: Any

    def __init__(
        self,
        content: Iterable[Any],
        kinds: Any,
        name: str,
        recorder: Capture,
        read: Callable[[], Node],
        items: Items,
        give_up: Callable[[], None] | None = None,
    ) -> None:
        self.base.__init__(self, content)
        # What it has held, on whatever side of a branch: by the form of its key, of a dict.
        self.held: list[tuple[Hashable, Any]] = (
            [*content.items()] if isinstance(content, dict) else [(None, item) for item in content]
        )
        self.kinds, self._items = kinds, items  # of all items of a list; by the key of a dict
        self._start(name, recorder, read, give_up)

    def length(self) -> Any:
        """How many items there are: a number of the program."""
        return self._answer(
            self.recorder.node("call_function", len, (self._read(),), {}, "len"), self.base.__len__(self)
        )

    def truth_hint(self) -> bool:
        """Whether there is anything in it for the example."""
        return self.base.__len__(self) > 0  # type: ignore[no-any-return]

    def has(self, key: Hashable) -> Any:
        """`key in self`: a bool of the program."""
        node = self._row_node("__contains__", _CONTAINS, [(KEY, key)])
        return self._answer(node, self.base.__contains__(self, example_of_key(key)))

    def _answer(self, node: Node, hint: Number) -> Any:
        return as_number(with_examples(self.recorder).numbers.input_symbol(node, hint))

    def __contains__(self, key: Hashable) -> bool:
        return bool(self.has(key))

    def _admit_given(self, given: Given) -> None:
        """The kinds are learned from all that is there in the end."""

    def _may_raise(self) -> None:
        """A key may not be there; an index is an error of the operation, like any other."""
        if self.base is not list:
            with_examples(self.recorder).attempts.look_up()

    def _part(self, row: Row, given: Given, node: Node) -> Any:
        return self._given_out(self.kinds, node, None)

    def _given_out(self, kind: Kind | None, node: Node, key: Hashable) -> Any:
        """An item that a node reads."""
        item = self._items.make(kind, node, self.name if key is None else f"{self.name}[{key!r}]")
        if isinstance(item, _Kept):
            self.held.append((key, item))
        return item

    def _taken_in(self, key: Hashable, value: Any) -> None:
        """Note an item that is put there."""
        self.held.append((key, value))
        self._items.note(self.name, value)

    _same = Growing._refuse


@with_methods(only(LIST, "append", "insert", "pop", "clear", "__getitem__", "__setitem__", "__delitem__"), list)
class KeptList(_Kept, list):  # type: ignore[type-arg]
    """A list to which the program adds: its items are of one kind."""

    base = list
    __contains__ = has = Growing._refuse

    def __iter__(self) -> Iterator[Any]:
        if self._give_up is None:  # a converted function goes over it in another way
            self.recorder.questions.staging.stage(user_frame(sys._getframe(1)))
        return self._refuse()  # type: ignore[no-any-return]

    def __add__(self, other: Any) -> Any:
        return self.as_of_run() + other

    def __radd__(self, other: Any) -> Any:  # without it Python puts what the example holds at the end of a list
        return other + self.as_of_run()

    def copy(self) -> Any:
        return self.as_of_run().copy()

    def as_item(self) -> SequenceKind:
        """The kind of an item that this is."""
        return SequenceKind(self.kinds, list)

    def as_of_run(self) -> LoopList:
        """The same list, for who goes over it: of what is in it only a run knows how much there is."""
        return self._listed(list.__iter__(self), self._read())

    def _listed(self, items: Iterable[Any], node: Node) -> LoopList:
        kind = None if self.kinds is None else SequenceKind(self.kinds, list)
        made = LoopList(items, self.recorder, node, self.name, None, kind=kind)
        made.is_certain = False
        return made

    def _same(self, given: Given, node: Node) -> LoopList:
        return self._listed(list.__getitem__(self, self.recorder.to_examples(given[0][1])), node)

    def extend(self, values: Iterable[Any]) -> None:
        for value in [*values]:
            self.append(value)

    def __iadd__(self, values: Iterable[Any]) -> KeptList:  # type: ignore[misc]
        self.extend(values)
        return self

    def _change(self, method: str, row: Row, given: Given) -> None:
        self._items.note_change()
        if ITEM in row.takes:
            self._taken_in(None, given[-1][1])
        if method in ("append", "insert"):
            list.append(self, given[-1][1])


@with_methods(KEPT_SET, set)
class _KeptSet(_Kept, set):  # type: ignore[type-arg]
    """A set to which the program adds: nothing is read of what is in it but whether it is."""

    base = set

    def update(self, *others: Any) -> None:
        for other in others:
            for item in other:
                self.add(item)

    def _change(self, method: str, row: Row, given: Given) -> None:
        self._items.note_change()
        if method == "add":
            set.add(self, example_of_key(given[0][1]))


@with_methods(only(DICT, "__setitem__", "__delitem__", "clear"), dict)
class _KeptDict(_Kept, dict):  # type: ignore[type-arg]
    """A dict to which the program adds: a key that has no kind was not there before.

    For the example it holds keys as they are for that.
    """

    base = dict

    def _kind_of(self, key: Hashable) -> Kind | None:
        """The kind of what a key may lead to, None as long as no pass has shown that the program stores it."""
        form = form_of_key(key)
        kinds = [kind for known, kind in self.kinds.items() if may_be(known, form)]
        return functools.reduce(lambda one, other: join(one, other, ATTRIBUTE), kinds) if kinds else None

    def has(self, key: Hashable) -> Any:
        """`key in self`: a bool of the program; False as long as no pass has shown that the program stores it."""
        is_there = dict.__contains__(self, example_of_key(key))
        if self._kind_of(key) is None:
            self._missed(key)
            return is_there
        return self._answer(self._row_node("__contains__", _CONTAINS, [(KEY, key)]), is_there)

    def __getitem__(self, key: Hashable) -> Any:
        kind = self._kind_of(key)
        if kind is None:
            self._missed(key)
            return dict.__getitem__(self, example_of_key(key))  # just stored, for the first time
        self._may_raise()
        return self._given_out(kind, self._row_node("", _GET, [(KEY, key)]), form_of_key(key))

    def get(self, key: Hashable, default: Any = None) -> Any:
        if self._kind_of(key) is None:
            self._missed(key)
            return default
        return self[key] if self.has(key) else default

    def _missed(self, key: Hashable) -> None:
        """The program looks for a key that it does not store: that it is not there is taken for granted."""
        reads, node = with_examples(self.recorder).reads, self._read()
        if reads is not None and node.op == "get_attr" and type(key) in (str, int, bool):
            reads.missed_key(str(node.target), key)

    def setdefault(self, key: Hashable, default: Any = None) -> Any:
        if self.has(key):
            return self[key]
        self[key] = default
        return self[key]

    def pop(self, key: Hashable, *default: Any) -> Any:
        if default and not self.has(key):
            return default[0]
        value = self[key]
        del self[key]
        return value

    def update(self, *others: Any, **items: Any) -> None:
        for key, value in dict(*others, **items).items():
            self[key] = value

    def _change(self, method: str, row: Row, given: Given) -> None:
        self._items.note_change()
        if ITEM in row.takes:
            (_, key), (_, value) = given
            self._taken_in(form_of_key(key), value)
            dict.__setitem__(self, example_of_key(key), value)


def kept_container(content: Iterable[Any], kind: Kind, *start: Any) -> Any:
    """What stands for a list, dict or set in an attribute; `start` is what `_Kept` takes after the kinds."""
    if isinstance(kind, RecordKind):
        return _KeptDict(content, kind.items, *start)
    assert isinstance(kind, SequenceKind)
    return (_KeptSet if kind.kind is set else KeptList)(content, kind.item, *start)
