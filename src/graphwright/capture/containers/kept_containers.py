"""Lists, dicts, sets and deques in attributes to which a program adds, from call to call.

What is in them differs from call to call, so nothing of it is known while the program is captured but what kind of
value each holds: every read and every write is a node, where it happens. What is put there stays as an example.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import operator
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from graphwright.capture.containers.item_kinds import FACTORIES, joined_kinds, kind_of_item
from graphwright.capture.containers.loop_dicts import LoopDict
from graphwright.capture.containers.loop_holders import CLASSES
from graphwright.capture.containers.loop_lists import LoopList, OfRun
from graphwright.capture.containers.methods import CONTAINS, DEQUE, DICT, ITEM, KEPT_SET, KEY, LIST, Given, Row, only
from graphwright.capture.containers.opening import is_held
from graphwright.capture.containers.row_engine import Container, with_methods
from graphwright.capture.effects.kept_kinds import ATTRIBUTE
from graphwright.capture.proxies.contents import content as content_of
from graphwright.capture.proxies.contents import is_unchanged
from graphwright.capture.proxies.growing import Growing
from graphwright.capture.proxies.run_keys import TEXT, Blank, example_of_key, form_of_key, may_be
from graphwright.capture.state.protocol import with_examples
from graphwright.capture.state.samples import Growable, Unlike
from graphwright.capture.state.symbols import as_number
from graphwright.ir import Node
from graphwright.source import user_frame
from graphwright.values import Kind, MappingKind, NumberKind, RecordKind, SequenceKind, TextKind, join

if TYPE_CHECKING:
    from graphwright.capture.effects.kept_items import Items
    from graphwright.capture.state.parts import Joining
    from graphwright.capture.state.protocol import Capture
    from graphwright.capture.state.symbols import Number

_C = TypeVar("_C", bound=type)
_COUNT = NumberKind(int, 0)  # what a `Counter` has for a key that it does not have
_CONTAINS = dataclasses.replace(CONTAINS, is_part=True)
_GET = dataclasses.replace(DICT["__getitem__"], is_part=True)


class _Kept(Container):
    """What all of these share: `items` makes the values of items.

    What is asked of all that is in one is asked of `as_of_run()`: the same one, as one whose content only a run knows.
    """

    plain: Any  # the class that holds what there is for the example; `base` is the one of the program's
    as_of_run: Callable[[], Any]
    _is_past = False  # whether a function in C was seen to have changed it

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
        self._plainly("__init__", content, *_maxlen(content))
        # What it has held, on whatever side of a branch: by the form of its key, of a dict.
        self.held: list[tuple[Hashable, Any]] = (
            [*content.items()] if isinstance(content, dict) else [(None, item) for item in content]
        )
        self.kinds, self._items = kinds, items  # of all items of a list; by the key of a dict
        self._start(name, recorder, read, give_up)
        self._show()

    def _plainly(self, method: str, *args: Any) -> Any:
        return getattr(self.plain, method)(self.example_of, *args)

    def _show(self, method: str = "", *args: Any) -> None:
        """Have what there is for the example changed by a method of the plain class."""
        if method:
            self._plainly(method, *args)
        self._shown = self._held_now()

    def _held_now(self) -> Any:
        return content_of(self.example_of)

    def is_past_methods(self) -> bool:
        """Tell whether a function in C has changed it that does not call its methods, as those of `heapq` do not."""
        self._is_past |= not is_unchanged(self._shown, self._held_now())
        return self._is_past

    def before_refill(self, held: Growable) -> None:
        self.is_past_methods()
        self._shown = held

    def _note_change(self) -> None:
        """Raises what ends the capture where this may be one that the program goes on to read by another name."""
        frame = sys._getframe(1)
        if any(is_held(each, frame, only_read=True) for each in self._items.note_change(self)):
            self.recorder.questions.refusals.refuse_here(
                f"the program changes what is in {self.name}, and reads by another name what it has put there",
                f"read it from {self.name}, or put a copy of it there",
            )

    def length(self) -> Any:
        """How many items there are: a number of the program."""
        return self._answer(
            self.recorder.node("call_function", len, (self._read(),), {}, "len"), self._plainly("__len__")
        )

    def truth_hint(self) -> bool:
        """Whether there is anything in it for the example."""
        return self._plainly("__len__") > 0  # type: ignore[no-any-return]

    def has(self, key: Hashable) -> Any:
        """`key in self`: a bool of the program."""
        node = self._row_node("__contains__", _CONTAINS, [(KEY, key)])
        return self._answer(node, self._plainly("__contains__", example_of_key(key)))

    def _answer(self, node: Node, hint: Number) -> Any:
        return as_number(with_examples(self.recorder).numbers.input_symbol(node, hint))

    def __contains__(self, key: Hashable) -> bool:
        return bool(self.has(key))

    def _written(self, value: Any) -> Any:
        return self._items.placed(value)

    def _admit_given(self, given: Given) -> None:
        """The kinds are learned from all that is there in the end."""

    def _may_raise(self) -> None:
        """A key may not be there; an index is an error of the operation, like any other."""
        if self.plain in (dict, set):
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

    def __iter__(self) -> Iterator[Any]:
        if self._give_up is None:  # a converted function goes over it in another way
            self.recorder.questions.staging.stage(user_frame(sys._getframe(1)))
        return self._refuse()  # type: ignore[no-any-return]

    __reversed__ = __iter__


def _asked_of_run(*methods: str) -> Callable[[_C], _C]:
    """Give a class methods that are those of the same container as one of the run."""

    def fill(cls: _C) -> _C:
        for name in methods:
            setattr(cls, name, _of_run(name))
        return cls

    return fill


def _of_run(name: str) -> Callable[..., Any]:
    def method(self: _Kept, *args: Any, **named: Any) -> Any:
        if self._give_up is not None:
            return self._refuse()
        self._note_change()
        return getattr(self.as_of_run(), name)(*args, **named)

    method.__name__ = name
    return method


class KeptSequence(_Kept):
    """A list or deque to which the program adds: its items are of one kind."""

    append: Callable[[Any], None]

    def __radd__(self, other: Any) -> Any:  # without it Python puts what the example holds at the end of a list
        return other + self.as_of_run()

    def as_item(self) -> SequenceKind:
        """The kind of an item that this is."""
        return SequenceKind(self.kinds, self.base)

    def example(self) -> Any:
        """What operations run on: where nobody knows what is in it, an item of the kind of all."""
        content = self.recorder.to_examples([*self.plain.__iter__(self)])
        return self.base(content or ([] if self.kinds is None else [self.kinds.instance()]))

    def as_of_run(self) -> OfRun:
        """The same one, for who goes over it: of what is in it only a run knows how much there is."""
        if self.kinds is None:
            self._items.learn()
        return self._listed(self.plain.__iter__(self), self._read())

    def _listed(self, items: Iterable[Any], node: Node) -> OfRun:
        kind = None if self.kinds is None else SequenceKind(self.kinds, self.base)
        items = self.plain(items, *_maxlen(self))
        made: OfRun = CLASSES[self.base](items, self.recorder, node, self.name, None, kind=kind)
        made.is_certain = False
        return made

    def _same(self, given: Given, node: Node) -> OfRun:
        return self._listed(self.plain.__getitem__(self, self.recorder.to_examples(given[0][1])), node)

    def extend(self, values: Iterable[Any]) -> None:
        for value in [*values]:
            self.append(value)

    def __iadd__(self, values: Iterable[Any]) -> Any:
        self.extend(values)
        return self

    def _change(self, method: str, row: Row, given: Given) -> None:
        self._note_change()
        if ITEM in row.takes:
            self._taken_in(None, given[-1][1])
        if method in _ADDING:
            self._show(_ADDING[method], given[-1][1])


_ADDING = {"append": "append", "insert": "append", "appendleft": "appendleft"}  # how the example shows it
_WHOLE = ("__add__", "__contains__", "has", "copy", "count", "index", "remove", "reverse")


@with_methods(only(LIST, "append", "insert", "pop", "clear", "__getitem__", "__setitem__", "__delitem__"), list)
@_asked_of_run(*_WHOLE, "__mul__", "__rmul__")
class KeptList(KeptSequence, list):  # type: ignore[type-arg]
    """Such a list."""

    base = plain = list


@with_methods(
    only(
        DEQUE,
        *("append", "appendleft", "insert", "pop", "popleft", "clear", "__getitem__", "__setitem__", "__delitem__"),
    ),
    collections.deque,
)
@_asked_of_run(*_WHOLE, "rotate")
class KeptQueue(KeptSequence, collections.deque):  # type: ignore[type-arg]
    """Such a deque."""

    base = plain = collections.deque

    def extendleft(self, values: Iterable[Any]) -> None:
        for value in [*values]:
            self.appendleft(value)

    @property
    def maxlen(self) -> Any:
        """How long it may get: what another one says that somebody puts there."""
        recorder, (longest,) = with_examples(self.recorder), _maxlen(self)
        node = recorder.node("call_function", getattr, (self._read(), "maxlen"), {}, "maxlen")
        if longest is not None:
            return self._answer(node, longest)
        is_none = recorder.node("call_function", operator.is_, (node, None), {}, "is_none")
        recorder.questions.guards.guard(recorder.numbers.input_symbol(is_none, True), f"{self.name}.maxlen is None")
        return None


@with_methods(KEPT_SET, set)
class _KeptSet(_Kept):
    """A set to which the program adds: nothing is read of what is in it but whether it is.

    It is no `set` to functions in C, which would go past its methods.
    """

    base = plain = set
    __repr__ = __reduce_ex__ = Growing._refuse

    def __init__(self, content: Iterable[Any], *start: Any) -> None:
        self._example: set[Any] = set()
        super().__init__(content, *start)

    @property
    def example_of(self) -> set[Any]:
        return self._example

    def update(self, *others: Any) -> None:
        for other in others:
            for item in other:
                self.add(item)  # type: ignore[attr-defined]

    def _change(self, method: str, row: Row, given: Given) -> None:
        self._note_change()
        if method == "add":
            self._show("add", example_of_key(given[0][1]))


@with_methods(only(DICT, "__setitem__", "__delitem__", "clear", "move_to_end"), dict, collections.OrderedDict)
@_asked_of_run("keys", "values", "items", "most_common", "total", "elements", "copy", "__or__", "__ror__")
class KeptDict(_Kept, dict):  # type: ignore[type-arg]
    """A dict to which the program adds, or an `OrderedDict`, `defaultdict` or `Counter`.

    A key that has no kind was not there before. For the example it holds keys as they are for that.
    """

    plain = dict
    __add__ = __sub__ = __and__ = __iadd__ = __isub__ = __iand__ = __ior__ = __pos__ = __neg__ = Growing._refuse

    def __init__(self, content: Any, kind: RecordKind, *start: Any) -> None:
        self.base, self._factory = kind.kind, kind.factory
        super().__init__(content, kind.items, *start)

    @property
    def default_factory(self) -> Any:
        """That of a `defaultdict`."""
        if self.base is not collections.defaultdict:
            raise AttributeError(f"{self.base.__name__!r} object has no attribute 'default_factory'")
        return self._factory

    def as_of_run(self) -> LoopDict:
        """The same one, for who goes over it: of what is in it only a run knows the keys."""
        if not self.kinds:
            self._items.learn()
        joining, key, item = self.recorder.joining, None, None
        try:
            for form, kind in self.kinds.items():
                key = joined_kinds(joining, key, _kind_of_form(joining, form), self.name)
                item = joined_kinds(joining, item, kind, self.name)
        except Unlike:
            return self._refuse()  # type: ignore[no-any-return]
        kind = MappingKind(key, item, self.base, self._factory)
        made = LoopDict((), self.recorder, self._read(), self.name, None, kind=kind)
        made.is_certain = False
        return made

    def listed(self) -> LoopList:
        """The list of its keys."""
        return self.as_of_run().listed()

    def popitem(self, last: bool = True) -> Any:
        item = _of_run("popitem")(self, *(() if last is True else (last,)))
        if dict.__len__(self):
            self._show("__delitem__", [*dict.keys(self)][-1 if last is True else 0])
        return item

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
        if self.base is collections.Counter:
            return self._given_out(kind or _COUNT, self._row_node("", _GET, [(KEY, key)]), form_of_key(key))
        if self._factory is not None:
            return self._found_or_made(key, kind)
        if kind is not None:
            self._may_raise()
        return self._there(key, kind)

    def _there(self, key: Hashable, kind: Kind | None) -> Any:
        """What there is for a key; as long as no pass has shown that the program stores it, what it has just stored."""
        if kind is None:
            self._missed(key)
            return dict.__getitem__(self, example_of_key(key))
        return self._given_out(kind, self._row_node("", _GET, [(KEY, key)]), form_of_key(key))

    def _make(self, key: Hashable) -> None:
        self[key] = self._factory()

    def _found_or_made(self, key: Hashable, kind: Kind | None) -> Any:
        """What a `defaultdict` has for a key: what its class makes it of itself, or a function of the program."""
        if self._factory not in FACTORIES:
            is_there = self.has(key)
            if type(is_there) is not bool:
                self.recorder.questions.branch(is_there, lambda: None, lambda: self._make(key))
            elif not is_there:
                self._make(key)
            return self._there(key, self._kind_of(key))
        if kind is None or not dict.__contains__(self, example_of_key(key)):
            self._show("__setitem__", example_of_key(key), self._factory())
            self.held.append((form_of_key(key), dict.__getitem__(self, example_of_key(key))))
        if kind is None:  # a later pass knows it
            return dict.__getitem__(self, example_of_key(key))
        self._note_change()  # the read puts it there, whatever becomes of the item
        node = self._row_node("setdefault", DICT["setdefault"], [(KEY, key), (ITEM, self._factory())])
        return self._given_out(kind, node, form_of_key(key))

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
        if self.base is collections.Counter:
            for key, count in collections.Counter(*others, **items).items():
                self[key] += count
            return
        for key, value in dict(*others, **items).items():
            self[key] = value

    def subtract(self, *others: Any, **items: Any) -> None:
        """What a `Counter` does."""
        if self.base is not collections.Counter:
            self._refuse()
        for key, count in collections.Counter(*others, **items).items():
            self[key] -= count

    def _change(self, method: str, row: Row, given: Given) -> None:
        self._note_change()
        if ITEM in row.takes:
            (_, key), (_, value) = given
            if self._items.are_growing and self._kind_of(key) is None:  # the next pass sees what becomes of it
                self.held.append((form_of_key(key), value))
            else:
                self._taken_in(form_of_key(key), value)
            self._show("__setitem__", example_of_key(key), value)


def kept_container(content: Iterable[Any], kind: Kind, *start: Any) -> Any:
    """What stands for a container in an attribute; `start` is what `_Kept` takes after the kinds."""
    if isinstance(kind, RecordKind):
        return KeptDict(content, kind, *start)
    assert isinstance(kind, SequenceKind)
    return _SEQUENCES[kind.kind](content, kind.item, *start)


_SEQUENCES: dict[type, Any] = {list: KeptList, collections.deque: KeptQueue, set: _KeptSet}


def _maxlen(container: Any) -> tuple[int | None, ...]:
    """How long a deque may get, for its constructor; nothing for others."""
    if not isinstance(container, collections.deque):
        return ()
    return (collections.deque.maxlen.__get__(container),)


def _kind_of_form(joining: Joining, form: Hashable) -> Kind:
    """The kind of the keys of a form. Raises Unlike."""
    if isinstance(form, Blank):
        return TextKind() if form == TEXT else NumberKind(int)
    if type(form) is tuple:
        return RecordKind(tuple, {i: _kind_of_form(joining, part) for i, part in enumerate(form)})
    return kind_of_item(joining, form, "")
