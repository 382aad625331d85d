"""Lists and dicts that are items of a list whose length only a run knows.

Whoever has such a list may hold the same item: so every read and every write of one is a node, where it happens, and
nothing is read ahead. How many items or which keys there are is the same for all of them, and known.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, SupportsIndex

from graphwright.capture.containers.item_kinds import joined_kinds, kind_of_item
from graphwright.capture.containers.methods import CONTAINS, DICT, KEY, Given, Row
from graphwright.capture.containers.row_engine import Container, with_methods
from graphwright.capture.state.plan import Restart
from graphwright.capture.state.samples import Unlike
from graphwright.capture.state.symbols import UNKNOWN
from graphwright.ir import Node
from graphwright.values import Kind, RecordKind

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import Capture

Make = Callable[..., Any]  # the value that a node gives, of a kind, and what is told of another kind of it
_GET = dataclasses.replace(DICT["__getitem__"], is_part=True)
_CONTAINS = dataclasses.replace(CONTAINS, is_part=True)


class _Item(Container):
    """What the two share: `kinds` tells what is in it, by index or key; `make` makes a value of one."""

    is_local = True
    is_certain = True
    base = None  # no other list or dict stands for one
    plain: Any  # the class that it is of
    node: Node

    def __init__(
        self,
        recorder: Capture,
        kind: RecordKind,
        node: Node,
        name: str,
        make: Make,
        give_up: Callable[[], Any] | None,
        noted: Callable[[Kind], None] | None = None,
    ) -> None:
        self.node, self.kinds, self._loose, self._make, self._noted = node, dict(kind.items), kind.loose, make, noted
        self._start(name or "a list's item", recorder, lambda: node, give_up)
        self.plain.__init__(self, self._all([key for key in self.kinds if key not in kind.loose]))  # for the example

    def stands_for(self) -> type:
        return self.plain  # type: ignore[no-any-return]

    @property
    def kind(self) -> RecordKind:
        """What kind of item it is."""
        return RecordKind(self.plain, dict(self.kinds), self._loose)

    def as_item(self) -> RecordKind:
        """The kind of an item that this is."""
        return self.kind

    def joined_with(self, value: Any) -> Any:
        """This one, where another one is of the same kind. Raises Unlike."""
        joined_kinds(self.recorder.joining, self.kind, kind_of_item(self.recorder.joining, value, self.name), self.name)
        return self

    def holding(self, value: Any) -> Any:
        """This one, with what another one holds for the example."""
        return self

    def on(self, node: Node) -> Any:
        """One like this that another node gives."""
        return type(self)(self.recorder, self.kind, node, self.name, self._make, self._give_up)

    # ---- all that is in it

    def _keys(self) -> list[Any]:
        """All indices or keys, where these are certain."""
        return [*self.kinds]

    def _all(self, keys: Sequence[Any]) -> Any:
        """What these have, as a plain list or dict."""
        items = [self._get(key) for key in keys]
        return items if self.plain is list else dict(zip(keys, items, strict=True))

    def copy(self) -> Any:
        return self._all(self._keys())

    def length(self) -> int:
        return len(self._keys())

    def truth_hint(self) -> bool:
        return bool(self.kinds)

    # ---- one of them

    def _get(self, key: Hashable) -> Any:
        return self._do("__getitem__", _GET, (key,))

    def _part(self, row: Row, given: Given, node: Node) -> Any:
        key = given[0][1]
        return self._make(self.kinds[key], node, lambda kind: self._note(key, kind))

    def _set(self, key: Hashable, value: Any) -> None:
        self._do("__setitem__", DICT["__setitem__"], (key, value))

    def _admit_given(self, given: Given) -> None:
        if len(given) == 1:
            return
        (_, key), (_, value) = given
        joining, known = self.recorder.joining, self.kinds.get(key)
        try:
            kind = joined_kinds(joining, known, kind_of_item(joining, value, self.name), self.name)
        except Unlike:
            self._refuse()
        if kind is not known:
            self._note(key, kind)

    def _note(self, key: Hashable, kind: Kind) -> None:
        """What is in one place is of another kind from now on."""
        self.kinds[key] = kind
        if self._noted is not None:
            self._noted(self.kind)

    def _change(self, method: str, row: Row, given: Given) -> None:
        self.plain.__setitem__(self, given[0][1], given[1][1])

    def _grow(self, *args: Any, **kwargs: Any) -> NoReturn:
        """It gets longer: start again with items of any length."""
        plan = self.recorder.plan
        if plan.items_grow:
            self._refuse()
        plan.items_grow = True
        raise self.recorder.questions.restart(Restart(f"lists and dicts in {self.name} get longer"))

    clear = pop = __delitem__ = _grow


@with_methods({}, list)
class ItemList(_Item, list):  # type: ignore[type-arg]
    """A list in a list."""

    plain = list

    def content(self) -> list[Any]:
        """What it holds for the example."""
        return [*list.__iter__(self)]

    def example(self) -> Any:
        """What operations run on."""
        return self.recorder.to_examples(self.content())

    def _index(self, index: SupportsIndex | slice) -> Any:
        if type(index) is not int and not isinstance(index, slice):
            self._refuse()
        return self._keys()[index]

    def __getitem__(self, index: SupportsIndex | slice) -> Any:
        found = self._index(index)
        return self._all(found) if isinstance(found, list) else self._get(found)

    def __setitem__(self, index: SupportsIndex | slice, value: Any) -> None:
        if isinstance(index, slice):
            self._refuse()
        self._set(self._index(index), value)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.copy())

    def __reversed__(self) -> Iterator[Any]:
        return iter(self._all(self._keys()[::-1]))

    def __add__(self, others: Iterable[Any]) -> Any:
        return [*self, *others]

    def __radd__(self, others: Iterable[Any]) -> Any:
        return [*others, *self]

    append = extend = insert = __iadd__ = remove = _Item._grow


@with_methods({}, dict)
class ItemDict(_Item, dict):  # type: ignore[type-arg]
    """A dict in a list. Where dicts in lists get further keys, whether it has one of these is asked of the run."""

    plain = dict

    def content(self) -> list[Any]:
        """What it holds for the example."""
        return [*dict.values(self)]

    def example(self) -> Any:
        """What operations run on."""
        return {key: self.recorder.to_examples(item) for key, item in dict.items(self)}

    def _keys(self) -> list[Any]:
        if self.recorder.plan.further_keys:
            self._grow()
        return super()._keys()

    def has(self, key: Hashable) -> Any:
        if key in self.kinds and key not in self._loose:
            return True
        if key not in self.recorder.plan.further_keys:
            return False
        node = self._row_node("__contains__", _CONTAINS, [(KEY, key)])
        return self.recorder.numbers.of_node(node, UNKNOWN, bool)

    def __getitem__(self, key: Hashable) -> Any:
        if key not in self.kinds and key in self.recorder.plan.further_keys:
            self._refuse()
        return self._get(key)

    def get(self, key: Hashable, default: Any = None) -> Any:
        has = self.has(key)
        if type(has) is bool:
            return self._get(key) if has else default
        return self.recorder.questions.branch(has, lambda: self[key], lambda: default)

    def __setitem__(self, key: Hashable, value: Any) -> None:
        if key not in self.kinds:
            self._add(key)
        self._set(key, value)

    def _add(self, key: Hashable) -> None:
        """It gets a further key: others that stand for the same dict do not know of it."""
        plan = self.recorder.plan
        if not isinstance(key, str) or self._noted is None:
            self._grow()
        if key not in plan.further_keys:
            plan.further_keys.add(key)
            raise self.recorder.questions.restart(Restart(f"dicts in {self.name} get the key {key!r}"))
        self._loose |= {key}

    def __iter__(self) -> Iterator[Any]:
        return iter(self._keys())

    def keys(self) -> Any:
        return dict.fromkeys(self._keys()).keys()

    def values(self) -> Any:
        return self.copy().values()

    def items(self) -> Any:
        return self.copy().items()

    setdefault = popitem = update = _Item._grow
