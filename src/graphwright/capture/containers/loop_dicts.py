"""Dicts of which only a run knows the keys: those that a loop of the graph fills, or a comprehension makes.

Keys are of one kind, and so are values. Every read and every write is a node, where it happens; what such a dict holds
here is what it does for the example, as far as that tells the keys.
"""

from __future__ import annotations

import collections
import operator
from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, Any

from graphwright.capture.containers.item_kinds import joined_kinds, kind_of_item, kind_of_table, seen
from graphwright.capture.containers.loop_holders import Holder
from graphwright.capture.containers.loop_lists import LoopList
from graphwright.capture.proxies.growing import Growing
from graphwright.capture.proxies.texts import RunText
from graphwright.capture.state.examples import NeedsRealValues
from graphwright.capture.state.running import stopping
from graphwright.capture.state.samples import Unlike
from graphwright.capture.state.symbols import UNKNOWN, is_symbolic, symbol_of
from graphwright.ir import Node
from graphwright.values import Kind, MappingKind, RecordKind, SequenceKind

if TYPE_CHECKING:
    from graphwright.capture.state.places import Place
    from graphwright.capture.state.protocol import Capture

__all__ = ["Keyed", "LoopDict", "shown_key", "shown_of"]


def _pair_of(kind: MappingKind) -> RecordKind:
    """The kind of the items of a dict."""
    held: dict[Any, Any] = {0: kind.key, 1: kind.item}  # None where none was seen
    return RecordKind(tuple, held)


class Keyed(Holder):
    """What dicts and sets share: the node that gives one, the kind of its keys and values, what the example has."""

    stands_for_plain: type  # of a display
    kind: MappingKind
    shown: dict[Any, tuple[Any, Any]]  # by key of the example: the key and the value

    def __init__(
        self,
        recorder: Capture,
        node: Node,
        kind: MappingKind,
        name: str,
        place: Place | None,
        give_up: Callable[[], Any] | None = None,
        noted: Callable[[Any], None] | None = None,
    ) -> None:
        self._start(name, recorder, lambda: self._told(node), lambda kind, node, name: self._value(kind, node), give_up)
        self.node, self.kind, self.place, self._noted = node, kind, place, noted
        self.shown, self.is_certain, self.base = {}, False, kind.kind

    @classmethod
    def empty(cls, recorder: Capture, node: Node) -> Any:
        """An empty dict or set that a node makes."""
        made = cls(recorder, node, MappingKind(kind=cls.stands_for_plain), node.name, recorder.questions.place())
        made.is_certain = True
        return made

    # ---- kinds

    def as_item(self) -> MappingKind:
        """The kind of an item that this is."""
        return self.kind

    def _admit(self, key: Hashable, value: Any) -> None:
        """Note what kind of key and value there is. Raises Unlike where these are of different kinds."""
        joining, kind = self.recorder.joining, self.kind
        try:
            item = None if kind.kind is set else kind_of_item(joining, value, self.name)
            own = kind_of_item(joining, key, self.name)
        except Unlike as why:
            raise self._unlike(why) from None
        self._admit_kind(MappingKind(own, item, kind.kind, kind.factory))
        self._watch(value)

    def _admit_kind(self, kind: Any) -> None:
        try:
            joined = joined_kinds(self.recorder.joining, self.kind, kind, self.name)
        except Unlike as why:
            raise self._unlike(why) from None
        if joined is not self.kind:
            self.kind = joined
            if self._noted is not None:
                self._noted(joined)

    def _admit_item(self, kind: Kind | None) -> None:
        """A list or dict that is a value of this one has got items of other kinds."""
        self._admit_kind(MappingKind(self.kind.key, kind, self.kind.kind, self.kind.factory))

    def _value(self, kind: Any, node: Node) -> Any:
        return self._of_kind(kind, node, self._admit_item)

    def _shown_at(self, key: Hashable, kind: Any) -> Any:
        """The kind of the value that a key has, which for the example is known where this is."""
        known = shown_key(key)
        if not self.is_certain or known is UNKNOWN or known not in self.shown:
            return kind
        return seen(self.recorder.joining, kind, self.shown[known][1])

    # ---- what it is for the example

    def content(self) -> dict[Any, Any]:
        """What it holds for the example."""
        return dict(self.shown)

    def set_content(self, shown: dict[Any, Any]) -> None:
        """Say what it holds for the example."""
        self.shown = dict(shown)

    def _keep(self, change: Callable[..., Any], *keys: Any) -> None:
        """Change what it holds for the example, given these keys, where that takes this way."""
        if not self._is_kept():
            return
        known = [shown_key(key) for key in keys]
        if UNKNOWN in known:
            self._be_unsure()
        if self.is_certain:
            change(*known)
        else:
            self.shown = {}

    def _need_content(self) -> None:
        examples = self.recorder.examples
        if not self.is_certain and examples.are_there and not examples.is_real:
            raise stopping(NeedsRealValues("what is in a dict or set depends on data"))

    def has(self, key: Hashable) -> Any:
        """`key in self`: a bool of the program."""
        known = shown_key(key)
        hint = UNKNOWN if not self.is_certain or known is UNKNOWN else known in self.shown
        return self.recorder.numbers.of_node(self._function(operator.contains, key, name="contains"), hint, bool)

    def length(self) -> Any:
        """How many keys there are: a number of the program."""
        hint = len(self.shown) if self.is_certain else UNKNOWN
        return self.recorder.numbers.of_node(self._function(len, name="len"), hint, int)

    def truth_hint(self) -> Any:
        """Whether there is anything in it for the example, as far as that is known."""
        return bool(self.shown) if self.is_certain else UNKNOWN

    def _function(self, function: Callable[..., Any], *args: Any, name: str = "") -> Node:
        arguments = (self._read(), *map(self.recorder.argument, args))
        return self.recorder.node("call_function", function, arguments, {}, "", self.recorder.target_name() or name)

    def listed_as(self, node: Node, kind: Kind | None, items: Iterable[Any]) -> LoopList:
        """A list or view of what is in it, which a node gives."""
        made = LoopList(items if self.is_certain else (), self.recorder, node, "", self.place, self._give_up)
        made.is_certain = self.is_certain
        made._admit_kind(kind)
        return made

    # ---- several of them

    def joined_with(self, value: Any) -> Any:
        """This one, with keys and values of the kinds that another one has, too. Raises Unlike."""
        kind = joined_kinds(self.recorder.joining, self.kind, _kind_of(self.recorder, value, self.name), self.name)
        return self if kind is self.kind else self.on(self.node, kind)

    def holding(self, value: Any) -> Any:
        """This one, with what another one holds for the example."""
        made = self.on(self.node)
        if isinstance(value, Keyed):
            made.shown, made.is_certain = dict(value.shown), value.is_certain
        elif type(value) is self.base:
            made.shown, made.is_certain = shown_of(value), True
        return made

    def on(self, node: Node, kind: Any = None) -> Any:
        """One like this that another node gives."""
        made = type(self)(self.recorder, node, kind or self.kind, self.name, self.place, self._give_up)
        made.shown, made.is_certain = dict(self.shown), self.is_certain
        return made

    def copy(self) -> Any:
        return self.on(self._call("copy"))

    def clear(self) -> None:
        self._call("clear")
        self._keep(lambda *known: self.shown.clear())

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return self.kind.kind


class LoopDict(Keyed, dict):  # type: ignore[type-arg]
    """A dict, `defaultdict`, `OrderedDict` or `Counter` of which only a run knows the keys."""

    stands_for_plain = dict

    def example(self) -> Any:
        """What operations run on."""
        self._need_content()
        held = {key: self.recorder.to_examples(value) for key, (_, value) in self.shown.items()}
        return collections.defaultdict(self.kind.factory, held) if self.kind.factory else self.kind.kind(held)

    # ---- reads

    def __getitem__(self, key: Hashable) -> Any:
        if self.kind.factory is None:
            if self.kind.kind is not collections.Counter:
                self._may_raise()
            node = self._function(operator.getitem, key, name="getitem")
        else:  # reading it may put something there
            node = self.recorder.node("call_method", "__getitem__", (self._read(), self.recorder.argument(key)), {}, "")
            start = self.kind.factory()
            self._keep(lambda known: self.shown.setdefault(known, (key, start)), key)
            self._admit(key, self.kind.factory())
        return self._lent(key, node)

    def _lent(self, key: Hashable, node: Node) -> Any:
        """The value of a key that is there, which the program may change."""
        item, known = self._value(self._shown_at(key, self.kind.item), node), shown_key(key)
        is_shown = known is not UNKNOWN and known in self.shown
        return self._lend(item, (lambda: self._show(known, key, item)) if is_shown else None)

    def get(self, key: Hashable, default: Any = None) -> Any:
        return self._or_default("get", key, default)

    def pop(self, key: Hashable, *default: Any) -> Any:
        if default:
            value = self._or_default("pop", key, default[0])
        else:
            self._may_raise()
            kind = self._shown_at(key, self.kind.item)
            value = self._value(kind, self._method("pop", self._key(key)))
        self._keep(lambda known: self.shown.pop(known, None), key)
        return value

    def _or_default(self, method: str, key: Hashable, default: Any) -> Any:
        """What a key has, or a default: of one kind, or of whatever a branch can join."""
        joining = self.recorder.joining
        try:
            kind = joined_kinds(joining, self.kind.item, kind_of_item(joining, default, self.name), self.name)
        except Unlike:
            read = self.__getitem__ if method == "get" and self.kind.factory is None else self.pop
            if method == "get" and self.kind.factory is not None:
                raise
            return self.recorder.questions.branch(self.has(key), lambda: read(key), lambda: default)
        known = shown_key(key)
        if self.is_certain and known is not UNKNOWN:
            kind = seen(joining, kind, self.shown[known][1] if known in self.shown else default)
        if default is None:
            return self._value(kind, self._method(method, self._key(key)) if method == "get" else self._popped(key))
        return self._value(kind, self._method(method, self._key(key), self._written(default)))

    def _popped(self, key: Hashable) -> Node:
        return self._method("pop", self._key(key), None)

    def keys(self) -> Any:
        return self.listed_as(self._call("keys"), self.kind.key, [key for key, _ in self.shown.values()])

    def listed(self) -> LoopList:
        """`list(self)`."""
        node = self._function(list, name="keys")
        return self.listed_as(node, self.kind.key, [key for key, _ in self.shown.values()])

    def values(self) -> Any:
        return self.listed_as(self._call("values"), self.kind.item, [value for _, value in self.shown.values()])

    def items(self) -> Any:
        kind = None if self.kind.key is None else _pair_of(self.kind)
        return self.listed_as(self._call("items"), kind, [*self.shown.values()])

    def elements(self) -> Any:
        """Those of a `Counter`."""
        self._only(collections.Counter)
        node = self.recorder.node("call_function", list, (self._call("elements"),), {}, "elements")
        made = self.listed_as(node, self.kind.key, ())
        made.is_certain = False
        return made

    def most_common(self, *count: Any) -> Any:
        """Those of a `Counter`."""
        self._only(collections.Counter)
        made = self.listed_as(self._call("most_common", *count), _pair_of(self.kind), ())
        made.is_certain = False
        return made

    def total(self) -> Any:
        """That of a `Counter`."""
        self._only(collections.Counter)
        return self._value(self.kind.item, self._call("total"))

    def _only(self, kind: type) -> None:
        if self.kind.kind is not kind:
            self._refuse()

    # ---- writes

    def __setitem__(self, key: Hashable, value: Any) -> None:
        self._admit(key, value)
        arguments = (self._read(), self.recorder.argument(key), self._written(value))
        self.recorder.node("call_function", operator.setitem, arguments, {})
        self._keep(lambda known: self._show(known, key, value), key)

    def _show(self, known: Any, key: Hashable, value: Any) -> None:
        self.shown[known] = (self.shown.get(known, (key,))[0], value)

    def __delitem__(self, key: Hashable) -> None:
        self._may_raise()
        self._function(operator.delitem, key)
        self._keep(lambda known: self.shown.pop(known, None), key)

    def setdefault(self, key: Hashable, default: Any = None) -> Any:
        self._admit(key, default)
        node = self._method("setdefault", self._key(key), self._written(default))
        self._keep(lambda known: self.shown.setdefault(known, (key, default)), key)
        return self._lent(key, node)

    def popitem(self, *last: Any) -> Any:
        self._may_raise()
        node = self._call("popitem", *last)
        self._keep(lambda *known: self.shown.popitem() if self.shown else None)
        return self._value(_pair_of(self.kind), node)

    def update(self, *others: Any, **items: Any) -> None:
        is_counter = self.kind.kind is collections.Counter
        for other in (*others, items):
            if isinstance(other, LoopDict):
                self._admit_kind(MappingKind(other.kind.key, other.kind.item, self.kind.kind, self.kind.factory))
                self._call("update", other)
                self.is_certain &= other.is_certain and not is_counter
                self._keep(lambda *known, other=other: self.shown.update(other.shown))
            elif is_counter:
                self._count(other)
            elif isinstance(other, LoopList):
                self._pairs(other)
            else:
                for key, value in dict(other).items():
                    self[key] = value

    def _count(self, values: Any) -> None:
        """`counter.update(values)`."""
        if isinstance(values, dict):
            if values:
                self._refuse()
            return
        many = values.as_item() if isinstance(values, Holder) else kind_of_item(self.recorder.joining, values, "")
        assert isinstance(many, SequenceKind | RecordKind)
        for kind in (many.item,) if isinstance(many, SequenceKind) else many.parts:
            self._admit_kind(MappingKind(kind, None, self.kind.kind, None))
        self._call("update", values)
        self.is_certain, self.shown = False, {}

    def _pairs(self, pairs: LoopList) -> None:
        """`self.update(pairs)` of a list of the run."""
        kind = pairs.kind
        if kind is not None:
            if not isinstance(kind, RecordKind) or len(kind.parts) != 2:
                self._refuse()
            self._admit_kind(MappingKind(kind.parts[0], kind.parts[1], self.kind.kind, self.kind.factory))
        self._call("update", pairs)
        self.is_certain, self.shown = False, {}

    def move_to_end(self, key: Hashable, last: bool = True) -> None:
        """That of an `OrderedDict`."""
        self._only(collections.OrderedDict)
        self._method("move_to_end", self._key(key), last)
        self.is_certain, self.shown = False, {}

    def __ior__(self, other: Any) -> Any:
        if self.kind.kind is collections.Counter:
            self._refuse()
        self.update(other)
        return self

    def __or__(self, other: Any) -> Any:
        made = self.copy()
        made |= other
        return made

    @property
    def default_factory(self) -> Any:
        """That of a `defaultdict`."""
        self._only(collections.defaultdict)
        return self.kind.factory

    def __ror__(self, other: Any) -> Any:
        node = self.recorder.node(
            "call_function", operator.or_, (self.recorder.argument(other), self._read()), {}, "table"
        )
        made = self.on(node, self.joined_with(other).kind)
        made.shown = {**shown_of(other), **self.shown}
        return made

    __iter__ = __reversed__ = __eq__ = __ne__ = __contains__ = Growing._refuse
    __add__ = __sub__ = __and__ = __iadd__ = __isub__ = __iand__ = subtract = fromkeys = Growing._refuse
    __hash__ = None


def _kind_of(recorder: Capture, value: Any, name: str) -> Any:
    return value.kind if isinstance(value, Keyed) else kind_of_table(recorder.joining, value, name)


def shown_of(value: Any) -> dict[Any, tuple[Any, Any]]:
    """What a dict or set of the program holds for the example."""
    return {key: (key, None if type(value) is set else value[key]) for key in value}


def shown_key(key: Hashable) -> Any:
    """What a key is for the example; UNKNOWN where that cannot tell."""
    if type(key) is tuple:
        parts = [shown_key(part) for part in key]
        return UNKNOWN if UNKNOWN in parts else tuple(parts)
    if is_symbolic(key):
        return symbol_of(key)._hint  # type: ignore[union-attr]
    if type(key) is RunText:
        return key.hint
    return key if type(key) in (int, float, bool, str, bytes, type(None)) else UNKNOWN
