"""Dicts and sets that a loop of the graph makes: which keys they have only a run knows.

A comprehension gives them, made of a list of the run. Every read of one is a node, where it happens.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from graphwright.capture.growing import Growing
from graphwright.capture.item_kinds import Parts, joined_kinds, kind_of_item
from graphwright.capture.joining import Unlike
from graphwright.capture.loop_lists import LoopList, value_of_kind
from graphwright.capture.symbols import UNKNOWN
from graphwright.ir import Node

if TYPE_CHECKING:
    pass

__all__ = ["LoopDict", "LoopSet"]


class _Keyed(Growing):
    """What the two share: the node that gives it, and the kind of its keys."""

    is_local = True
    is_certain = False
    base = None  # no list stands for one

    def _begin(self, pairs: LoopList, function: Callable[..., Any]) -> None:
        recorder = pairs.recorder
        name = recorder.target_name() or function.__name__
        node = recorder.node("call_function", function, (recorder.argument(pairs),), {}, name)
        self.node, self.place, self._pairs = node, pairs.place, pairs
        self._start(name, recorder, lambda: node, lambda kind, node, name: self._made(kind, node), pairs._give_up)

    def _made(self, kind: Any, node: Node) -> Any:
        return value_of_kind(self.recorder, kind, node, self.name, self.place, (), self._give_up)

    def _listed(self, node: Node, kind: Any) -> LoopList:
        made = LoopList([], self.recorder, node, "", self.place, self._give_up)
        made.is_certain = False
        made._admit_kind(kind)
        return made

    @property
    def kind(self) -> Any:
        """No list of a run holds one."""
        raise Unlike(f"{self.name} is put into a list that a loop makes longer")

    def has(self, key: Any) -> Any:
        """`key in self`: a bool of the program."""
        arguments = (self.node, self.recorder.argument(key))
        node = self.recorder.node("call_function", operator.contains, arguments, {}, "contains")
        return self.recorder.numbers.of_node(node, UNKNOWN, bool)

    def length(self) -> Any:
        node = self.recorder.node("call_function", len, (self.node,), {}, "len")
        return self.recorder.numbers.of_node(node, UNKNOWN, int)

    def truth_hint(self) -> Any:
        return UNKNOWN

    def joined_with(self, value: Any) -> Any:
        """This one stands for itself only. Raises Unlike for another."""
        if value is not self:
            raise Unlike(f"{self.name} is another object on each side")
        return self

    def holding(self, value: Any) -> Any:
        """This one, with what another one holds for the example."""
        return self


class LoopDict(_Keyed, dict):  # type: ignore[type-arg]
    """A dict that a comprehension makes in a loop of the graph."""

    def __init__(self, pairs: LoopList) -> None:
        self.kinds: Any = pairs.kind.parts if isinstance(pairs.kind, Parts) else (None, None)
        self._begin(pairs, dict)

    def example(self) -> Any:
        """What operations run on."""
        return dict(self._pairs.example())

    def __getitem__(self, key: Any) -> Any:
        arguments = (self.node, self.recorder.argument(key))
        return self._made(self.kinds[1], self.recorder.node("call_function", operator.getitem, arguments, {}, ""))

    def get(self, key: Any, default: Any = None) -> Any:
        return self[key] if self.has(key) else default

    def __setitem__(self, key: Any, value: Any) -> None:
        joining = self.recorder.joining
        given = tuple([kind_of_item(joining, item, self.name) for item in (key, value)])
        self.kinds = tuple([joined_kinds(joining, a, b, self.name) for a, b in zip(self.kinds, given, strict=True)])
        arguments = (self.node, self.recorder.argument(key), self.recorder.argument(value))
        self.recorder.node("call_function", operator.setitem, arguments, {})

    def keys(self) -> Any:
        return self.listed()

    def listed(self) -> LoopList:
        """`list(self)`."""
        node = self.recorder.node("call_function", list, (self.node,), {}, "keys")
        return self._listed(node, self.kinds[0])

    def values(self) -> Any:
        return self._listed(self.recorder.node("call_function", list, (self._call("values"),), {}, ""), self.kinds[1])

    def items(self) -> Any:
        node = self.recorder.node("call_function", list, (self._call("items"),), {}, "")
        return self._listed(node, Parts(tuple, self.kinds))

    __iter__ = __delitem__ = __reversed__ = pop = popitem = setdefault = copy = update = clear = Growing._refuse
    __or__ = __ior__ = __eq__ = __ne__ = __contains__ = Growing._refuse
    __hash__ = None


class LoopSet(_Keyed, set):  # type: ignore[type-arg]
    """A set that a comprehension makes in a loop of the graph."""

    def __init__(self, items: LoopList) -> None:
        self.item_kind = items.kind
        self._begin(items, set)

    def example(self) -> Any:
        """What operations run on."""
        return set(self._pairs.example())

    def listed(self) -> LoopList:
        """`list(self)`."""
        return self._listed(self.recorder.node("call_function", list, (self.node,), {}, ""), self.item_kind)

    def add(self, item: Any) -> None:
        self.item_kind = joined_kinds(
            self.recorder.joining, self.item_kind, kind_of_item(self.recorder.joining, item, self.name), self.name
        )
        self._call("add", item)

    __iter__ = remove = discard = pop = clear = copy = update = union = intersection = difference = Growing._refuse
    __or__ = __and__ = __sub__ = __xor__ = __ior__ = __iand__ = __isub__ = __ixor__ = __contains__ = Growing._refuse
    __eq__ = __ne__ = __lt__ = __gt__ = __le__ = __ge__ = Growing._refuse
    __hash__ = None
