"""Dicts of which only a run knows the keys: those that a loop of the graph fills, or a comprehension makes.

Keys are of one kind, and so are values. Every read and every write is a node, where it happens; what such a dict holds
here is what it does for the example, as far as that tells the keys.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import operator
from collections.abc import Hashable, Iterable
from typing import Any

from graphwright.capture.containers.item_kinds import joined_kinds, kind_of_table, seen
from graphwright.capture.containers.loop_holders import CLASSES, Holder
from graphwright.capture.containers.loop_lists import LoopList, OfRun
from graphwright.capture.containers.methods import BOTH, CONTAINS, COUNT, DICT, ITEM, ITEMS, KEY, Given, Part, Row
from graphwright.capture.containers.row_engine import Shown, shown_key, with_methods
from graphwright.capture.proxies.contents import DICTS
from graphwright.capture.state.examples import NeedsRealValues
from graphwright.capture.state.running import stopping
from graphwright.capture.state.samples import Unlike
from graphwright.capture.state.symbols import UNKNOWN
from graphwright.ir import Node
from graphwright.values import Kind, MappingKind, RecordKind


class Keyed(Holder):
    """What dicts and sets share: the kind of its keys and values, and what there is for the example."""

    plain: type  # of what is in it for the example
    kind: MappingKind
    shown: Any  # a dict or set; its keys are compared as they are for the example

    def _fill(self, content: Iterable[Any], kind: MappingKind | None) -> None:
        self.kind = kind or MappingKind(kind=self.plain)
        self.base, self.shown = self.kind.kind, self.plain(content)

    # ---- kinds

    def as_item(self) -> MappingKind:
        """The kind of an item that this is."""
        return self.kind

    def _admit_kind(self, kind: MappingKind) -> None:
        super()._admit_kind(MappingKind(kind.key, kind.item, self.kind.kind, self.kind.factory))

    def _kind_of(self, *entering: Any) -> MappingKind:
        key, *value = map(self._kind, entering)
        return MappingKind(key, value[0] if value else None)

    def _admit_item(self, kind: Kind | None) -> None:
        """A list or dict that is a value of this one has got items of other kinds."""
        self._admit_kind(MappingKind(None, kind))

    def _kind_of_all(self, values: Iterable[Any]) -> MappingKind:
        if isinstance(values, Keyed):
            return values.kind
        if isinstance(values, dict | set):
            return kind_of_table(self.recorder.joining, values, self.name)
        kind = values.kind if isinstance(values, OfRun) else None
        for item in () if isinstance(values, OfRun) else values:
            kind = joined_kinds(self.recorder.joining, kind, self._kind(item), self.name)
        if kind is None or self.base in (set, collections.Counter):
            return MappingKind(kind)
        if not isinstance(kind, RecordKind) or len(kind.parts) != 2:
            raise stopping(Unlike(f"{self.name} is made of what are no pairs"))
        return MappingKind(*kind.parts)

    # ---- what a node gives

    def _part(self, row: Row, given: Given, node: Node) -> Any:
        kind = self._kind_of_part(row.gives)  # type: ignore[arg-type]
        if row.gives is not ITEM or not given:
            return self._value(kind, node, self._admit_item)
        key, show = given[0][1], None
        with contextlib.suppress(LookupError):
            kind = seen(self.recorder.joining, kind, self._found(key))  # type: ignore[arg-type]
            show = functools.partial(self._show, key)
        item = self._value(kind, node, self._admit_item)
        return self._lend(item, show and functools.partial(show, item)) if row.keeps else item

    def _show(self, key: Hashable, item: Any) -> None:
        self.shown[shown_key(key)] = item

    def _list_of(self, part: Part, node: Node, is_hidden: bool) -> LoopList:
        made = LoopList(self._parts(part) if not is_hidden else (), self.recorder, node, "", self.place, self._give_up)
        made.is_certain = self.is_certain and not is_hidden
        made._admit_kind(self._kind_of_part(part))
        return made

    def _kind_of_part(self, part: Part) -> Kind | None:
        if part is not BOTH:
            return self.kind.key if part is KEY else self.kind.item  # type: ignore[no-any-return]
        held: dict[Any, Any] = {0: self.kind.key, 1: self.kind.item}  # None where none was seen
        return None if self.kind.key is None else RecordKind(tuple, held)

    def _parts(self, part: Part) -> list[Any]:
        """All keys, values or both that there are for the example."""
        keys = [key.value for key in self.shown]
        if part is KEY:
            return keys
        values = self.shown.values()
        return list(values) if part is ITEM else list(zip(keys, values, strict=True))

    def listed(self) -> LoopList:
        """`list(self)`."""
        recorder = self.recorder
        node = recorder.node("call_function", list, (self._read(),), {}, "", recorder.target_name() or self._LISTED)
        return self._list_of(KEY, node, False)

    _LISTED = ""  # what a list of it is called

    # ---- what it is for the example

    def content(self) -> Any:
        """What it holds for the example."""
        return self.plain(self.shown if self.is_certain else ())

    def set_content(self, held: Iterable[Any]) -> None:
        """Say what it holds for the example."""
        self.shown = self.plain(held)

    def _be_unsure(self) -> None:
        super()._be_unsure()
        self.shown.clear()

    def _apply(self, method: str, row: Row, args: list[Any]) -> None:
        if self.is_certain:
            getattr(self.plain, method)(self.shown, *args)

    def _as_example(self, row: Row, role: Part, arg: Any) -> Any:
        return shown_key(arg) if role is KEY else arg

    def _found(self, key: Hashable) -> Any:
        """What a key has for the example. Raises LookupError where that does not tell, or it has nothing."""
        if not self.is_certain:
            raise LookupError
        return self.shown[shown_key(key)]

    def _need_content(self) -> None:
        examples = self.recorder.examples
        if not self.is_certain and examples.are_there and not examples.is_real:
            raise stopping(NeedsRealValues("what is in a dict or set depends on data"))

    # ---- what is asked of it as a whole

    def has(self, key: Hashable) -> Any:
        """`key in self`: a bool of the program."""
        node = self._row_node("__contains__", CONTAINS, [(KEY, key)])
        try:
            hint = shown_key(key) in self.shown if self.is_certain else UNKNOWN
        except LookupError:
            hint = UNKNOWN
        return self.recorder.numbers.of_node(node, hint, bool)

    def length(self) -> Any:
        """How many keys there are: a number of the program."""
        node = self.recorder.node("call_function", len, (self._read(),), {}, "", self.recorder.target_name() or "len")
        return self.recorder.numbers.of_node(node, len(self.shown) if self.is_certain else UNKNOWN, int)

    def truth_hint(self) -> Any:
        """Whether there is anything in it for the example, as far as that is known."""
        return bool(self.shown) if self.is_certain else UNKNOWN

    def stands_for(self) -> type:
        return self.kind.kind


@with_methods(DICT, dict, collections.Counter, collections.OrderedDict)
class LoopDict(Keyed, dict):  # type: ignore[type-arg]
    """A dict, `defaultdict`, `OrderedDict` or `Counter` of which only a run knows the keys."""

    plain = dict
    _LISTED = "keys"

    def _content_of(self, value: Iterable[Any]) -> dict[Shown, Any]:
        pairs = value.items() if isinstance(value, dict) else [tuple(pair) for pair in value]
        return {shown_key(key): item for key, item in pairs}

    def example(self) -> Any:
        """What operations run on."""
        self._need_content()
        held = {key.known(): self.recorder.to_examples(value) for key, value in self.shown.items()}
        return collections.defaultdict(self.kind.factory, held) if self.kind.factory else self.kind.kind(held)

    def _as_example(self, row: Row, role: Part, arg: Any) -> Any:
        if role is ITEMS:
            if self.base is collections.Counter or not isinstance(arg, LoopDict):
                raise LookupError
            return arg.content()
        return super()._as_example(row, role, arg)

    # ---- reads

    def __getitem__(self, key: Hashable) -> Any:
        if self.kind.factory is None:
            return self._do(
                "__getitem__", DICT["__getitem__"] if self.base is not collections.Counter else COUNT, (key,)
            )
        node = self.recorder.node("call_method", "__getitem__", (self._read(), self.recorder.argument(key)), {}, "")
        row = DICT["setdefault"]  # reading it may put something there
        self._change("setdefault", row, [(KEY, key), (ITEM, self.kind.factory())])
        self._admit(key, self.kind.factory())
        return self._part(row, [(KEY, key)], node)

    def get(self, key: Hashable, default: Any = None) -> Any:
        return self._or_default("get", key, default)

    def pop(self, key: Hashable, *default: Any) -> Any:
        if not default:
            return self._do("pop", DICT["pop"], (key,))
        value = self._or_default("pop", key, default[0])
        self._change("pop", DICT["pop"], [(KEY, key), (ITEM, None)])
        return value

    def _or_default(self, method: str, key: Hashable, default: Any) -> Any:
        """What a key has, or a default: of one kind, or of whatever a branch can join."""
        joining = self.recorder.joining
        try:
            kind = joined_kinds(joining, self.kind.item, self._kind(default), self.name)
        except Unlike:
            read = self.__getitem__ if method == "get" and self.kind.factory is None else self.pop
            if method == "get" and self.kind.factory is not None:
                raise
            return self.recorder.questions.branch(self.has(key), lambda: read(key), lambda: default)
        with contextlib.suppress(LookupError):
            known = shown_key(key)
            known.known()
            kind = seen(joining, kind, self.shown.get(known, default)) if self.is_certain else kind
        defaults = [] if default is None and method == "get" else [(ITEM, default)]
        node = self._row_node(method, DICT["get"], [(KEY, key), *defaults])
        return self._value(kind, node, self._admit_item)

    def setdefault(self, key: Hashable, default: Any = None) -> Any:
        return self._do("setdefault", DICT["setdefault"], (key, default))

    def elements(self) -> Any:
        """Those of a `Counter`."""
        self._only(collections.Counter)
        node = self.recorder.node(
            "call_function", list, (self._row_node("elements", DICT["keys"], []),), {}, "elements"
        )
        return self._list_of(KEY, node, True)

    @property
    def default_factory(self) -> Any:
        """That of a `defaultdict`."""
        self._only(collections.defaultdict)
        return self.kind.factory

    def _only(self, kind: type) -> None:
        if self.base is not kind:
            self._refuse()

    # ---- writes

    def update(self, *others: Any, **items: Any) -> None:
        counts = self.base is collections.Counter
        for other in (*others, items):
            if isinstance(other, LoopDict | LoopList) or (counts and not isinstance(other, dict)):
                self._do("update", DICT["update"], (other,))
            elif counts and other:
                self._refuse()
            else:
                for key, value in dict(other).items():
                    self[key] = value

    def __ior__(self, other: Any) -> Any:
        if self.base is collections.Counter:
            self._refuse()
        self.update(other)
        return self

    def __or__(self, other: Any) -> Any:
        made = self.copy()
        made |= other
        return made

    def __ror__(self, other: dict[Any, Any]) -> Any:
        arguments = self.recorder.argument(other), self._read()
        made = self.on(self.recorder.node("call_function", operator.or_, arguments, {}, "table"))
        made.kind = self.joined_with(other).kind
        made.shown = {**self._content_of(other), **self.shown}
        return made


CLASSES.update(dict.fromkeys(DICTS, LoopDict))
