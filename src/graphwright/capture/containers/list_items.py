"""Lists and dicts that are items of a list whose length only a run knows.

Whoever has such a list may hold the same item: so every read and every write of one is a node, where it happens, and
nothing is read ahead. How many items or which keys there are is the same for all of them, and known.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from graphwright.capture.containers.item_kinds import joined_kinds, kind_of_item
from graphwright.capture.proxies.growing import Growing, GrowingDict, GrowingList
from graphwright.capture.state.plan import Restart
from graphwright.capture.state.samples import Unlike
from graphwright.capture.state.symbols import UNKNOWN
from graphwright.ir import Node
from graphwright.values import RecordKind

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import Capture

__all__ = ["ItemDict", "ItemList"]

Make = Callable[..., Any]  # the value that a node gives, of a kind, and what is told of another kind of it


class _Item(Growing):
    """What the two share: `kinds` tells what is in it, by index or key; `make` makes a value of one."""

    is_local = True
    is_certain = True
    base = None  # no other list or dict stands for one
    kinds: dict[Any, Any]
    node: Node

    def _begin(
        self,
        recorder: Capture,
        kind: RecordKind,
        node: Node,
        name: str,
        make: Make,
        give_up: Callable[[], Any] | None,
        noted: Callable[[Any], None] | None = None,
    ) -> None:
        self._noted = noted
        self.node, self.kinds, self._make = node, dict(kind.items), make
        self._whole, self._loose = kind, kind.loose
        self._start(name or "a list's item", recorder, lambda: node, give_up)

    @property
    def kind(self) -> RecordKind:
        """What kind of item it is."""
        return RecordKind(self._whole.kind, dict(self.kinds), self._loose)

    def _get(self, key: Any) -> Any:
        node = self.recorder.node("call_function", operator.getitem, (self.node, key), {}, "getitem")
        return self._make(self.kinds[key], node, lambda kind: self._note(key, kind))

    def _note(self, key: Any, kind: Any) -> None:
        """What is in one place is of another kind from now on."""
        self.kinds[key] = kind
        if self._noted is not None:
            self._noted(self.kind)

    def as_item(self) -> RecordKind:
        """The kind of an item that this is."""
        return self.kind

    def _set(self, key: Any, value: Any) -> None:
        joining = self.recorder.joining
        try:
            kind = joined_kinds(joining, self.kinds[key], kind_of_item(joining, value, self.name), self.name)
        except Unlike:
            self._refuse()
        if kind is not self.kinds[key]:
            self._note(key, kind)
        arguments = (self.node, key, self.recorder.argument(value))
        self.recorder.node("call_function", operator.setitem, arguments, {})

    def length(self) -> int:
        return len(self.kinds)

    def _grow(self, *args: Any, **kwargs: Any) -> Any:
        """It gets longer: start again with items of any length."""
        plan = self.recorder.plan
        if plan.items_grow:
            self._refuse()
        plan.items_grow = True
        raise self.recorder.questions.restart(Restart(f"lists and dicts in {self.name} get longer"))

    def truth_hint(self) -> bool:
        return bool(self.kinds)

    def joined_with(self, value: Any) -> Any:
        """This one, where another one is of the same kind. Raises Unlike."""
        joined_kinds(self.recorder.joining, self.kind, kind_of_item(self.recorder.joining, value, self.name), self.name)
        return self

    def holding(self, value: Any) -> Any:
        """This one, with what another one holds for the example."""
        return self

    def on(self, node: Node) -> Any:
        """One like this that another node gives."""
        return type(self)(self.recorder, self.kind, node, self.name, self._make, self._give_up)  # type: ignore[call-arg]


class ItemList(_Item, GrowingList):
    """A list in a list."""

    def __init__(self, recorder: Capture, kind: RecordKind, node: Node, *rest: Any) -> None:
        self._begin(recorder, kind, node, *rest)
        list.__init__(self, [self._get(index) for index in self.kinds])  # for the example

    def content(self) -> list[Any]:
        """What it holds for the example."""
        return [*list.__iter__(self)]

    def example(self) -> Any:
        """What operations run on."""
        return [self.recorder.to_examples(item) for item in list.__iter__(self)]

    def _index(self, index: Any) -> int:
        if type(index) is not int:
            self._refuse()
        return range(len(self.kinds))[int(index)]

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self._get(each) for each in range(*index.indices(len(self.kinds)))]
        return self._get(self._index(index))

    def __setitem__(self, index: Any, value: Any) -> None:
        self._set(self._index(index), value)
        list.__setitem__(self, index, value)

    def __iter__(self) -> Iterator[Any]:
        return iter([self._get(index) for index in self.kinds])

    def __reversed__(self) -> Iterator[Any]:
        return iter([self._get(index) for index in reversed(self.kinds)])

    def __add__(self, others: Any) -> Any:
        return [*self, *others]

    def __radd__(self, others: Any) -> Any:
        return [*others, *self]

    def copy(self) -> Any:
        return [*self]

    append = extend = insert = pop = clear = __iadd__ = __delitem__ = remove = _Item._grow


class ItemDict(_Item, GrowingDict):
    """A dict in a list. Where dicts in lists get further keys, whether it has one of these is asked of the run."""

    def __init__(self, recorder: Capture, kind: RecordKind, node: Node, *rest: Any) -> None:
        self._begin(recorder, kind, node, *rest)
        dict.__init__(self, {key: self._get(key) for key in self.kinds if key not in kind.loose})  # for the example

    def content(self) -> list[Any]:
        """What it holds for the example."""
        return [*dict.values(self)]

    def example(self) -> Any:
        """What operations run on."""
        return {key: self.recorder.to_examples(item) for key, item in dict.items(self)}

    def has(self, key: Any) -> Any:
        if key in self.kinds and key not in self._loose:
            return True
        if key not in self.recorder.plan.further_keys:
            return False
        node = self.recorder.node("call_function", operator.contains, (self.node, key), {}, "contains")
        return self.recorder.numbers.of_node(node, UNKNOWN, bool)

    def __getitem__(self, key: Any) -> Any:
        if key not in self.kinds and key in self.recorder.plan.further_keys:
            self._refuse()
        return self._get(key)

    def get(self, key: Any, default: Any = None) -> Any:
        has = self.has(key)
        if type(has) is bool:
            return self._get(key) if has else default
        return self.recorder.questions.branch(has, lambda: self[key], lambda: default)

    def __setitem__(self, key: Any, value: Any) -> None:
        if key not in self.kinds:
            self._get_key(key, value)
        self._set(key, value)
        dict.__setitem__(self, key, value)

    def _get_key(self, key: Any, value: Any) -> None:
        """It gets a further key: others that stand for the same dict do not know of it."""
        plan = self.recorder.plan
        if type(key) is not str or self._noted is None:
            self._grow()
        if key not in plan.further_keys:
            plan.further_keys.add(key)
            raise self.recorder.questions.restart(Restart(f"dicts in {self.name} get the key {key!r}"))
        try:
            kind = kind_of_item(self.recorder.joining, value, self.name)
        except Unlike:
            self._refuse()
        self._loose |= {key}
        self._note(key, kind)

    def _keys(self) -> list[Any]:
        """All of its keys, where that is certain."""
        if self.recorder.plan.further_keys:
            self._grow()
        return [*self.kinds]

    def length(self) -> int:
        return len(self._keys())

    def __iter__(self) -> Iterator[Any]:
        return iter(self._keys())

    def keys(self) -> Any:
        return dict.fromkeys(self._keys()).keys()

    def values(self) -> Any:
        return [self._get(key) for key in self._keys()]

    def items(self) -> Any:
        return [(key, self._get(key)) for key in self._keys()]

    def copy(self) -> Any:
        return dict(self.items())

    clear = __delitem__ = setdefault = pop = popitem = update = _Item._grow
