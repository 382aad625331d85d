"""What a program found outside of itself when it was captured: under global names, in classes, in functions.

Kept are the very objects, so nothing of this goes into a file: what another process holds is another outside.
"""

from __future__ import annotations

import array
import collections
import functools
import itertools
import operator
import types
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from types import CellType, FunctionType, MethodType
from typing import Any, NamedTuple

import numpy
import torch

from graphwright.runtime.graph_facts import code_of_function
from graphwright.runtime.objects import MOST_BYTES, attributes_of, slots_of, state_of
from graphwright.runtime.plain_values import has_the_very, tensors_inside

_EXACT = (int, float, bool, str, bytes, complex)
_BOUND = frozenset({MethodType, staticmethod, classmethod})
_SHORT = 60  # how long what a message shows of a container is
_MISSING: Any = object()
ABSENT: Any = object()
NAMES: Any = object()
METHODS: Any = object()
KINDS: Any = object()
NOT_SET: Any = object()


class Found(NamedTuple):
    """One thing that was found: in a dict of global names, a class or a cell (`owner`), under a name.

    `subject` says what it is, as in "the global 'SCALE' of train"; `held` is what a container held, `code` that of a
    function with its defaults; `but` are the places in the container that the program itself writes. A value of ABSENT
    says that an object had no attribute of its own there, which would stand before that of its class, or a dict no such
    key; one of NAMES that its attributes are those whose names were `held`; one of METHODS that a class has the very
    bases and methods of Python's that were `held`; one of KINDS that what a dict has, at the first place of `but`, is
    of the kinds that were.
    """

    subject: str
    owner: Any
    name: str
    value: Any
    held: Any = None
    code: Any = None
    but: tuple[tuple[Any, ...], ...] = ()

    @classmethod
    def of(cls, subject: str, owner: Any, name: str, value: Any) -> Found:
        """Note what there is now."""
        if value is ABSENT:
            return cls(subject, owner, name, value)
        if value is NAMES:
            return cls(subject, owner, name, value, [*_attributes_of(owner)])
        return cls(subject, owner, name, value, kept(value) if _may_be_compared(value) else None, _code(value))

    @classmethod
    def of_methods(cls, kind: type, own: Iterable[type]) -> Found:
        """Note which methods Python itself looks up in a class; `own` are the bases that may get others."""
        subject = f"what Python looks up in {kind.__qualname__}"
        return cls(subject, kind, "__mro__", METHODS, Methods.of(kind, own))

    def kinds_at(self, place: tuple[Any, ...]) -> Found | None:
        """Note of what kinds it is what a dict has that is at a place in it; None where none is."""
        kinds = kinds_of(_inside(self.held, place))
        return self._replace(value=KINDS, held=kinds, but=(place,)) if type(kinds) is dict else None

    def __str__(self) -> str:
        if self.value is KINDS:
            return f"the kinds of what {self.subject} holds"
        return f"{self.subject} is {self.value!r}" if self.is_plain() else self.subject

    def is_plain(self) -> bool:
        """Tell whether people know a value by how it is written."""
        is_marked = self.value is NAMES or self.value is METHODS or self.value is KINDS
        is_short = self.held is not None and not is_marked and len(repr(self.held)) < _SHORT
        return type(self.value) in _EXACT or self.value is None or is_short

    def is_one(self) -> bool:
        """Tell whether all that counts is that the very object is in a dict."""
        is_marked = self.value is NAMES or self.value is METHODS or self.value is KINDS or self.name == "len()"
        return issubclass(type(self.owner), dict) and self.held is None and self.code is None and not is_marked

    def is_size(self) -> bool:
        """Tell whether it is how much a table has."""
        return self.name == "len()" and isinstance(self.owner, dict)

    def now(self) -> Any:
        """What there is now."""
        owner = self.owner
        if self.value is ABSENT:
            return _attributes_of(owner).get(self.name, _MISSING)
        if self.value is NAMES:
            return [*_attributes_of(owner)]
        if self.value is METHODS:
            return owner.__mro__
        if self.is_size():
            return len(owner)
        if issubclass(type(owner), dict):
            return dict.get(owner, self.name, _MISSING)
        if type(owner) is ContextVar:
            return owner.get(NOT_SET)
        if type(owner) is weakref.ref:
            return owner() is None
        if self.name == "len()":  # of what Python itself takes things out of
            return len(owner)
        if type(owner) is CellType:
            try:
                return owner.cell_contents
            except ValueError:
                return _MISSING
        if isinstance(owner, type):  # as it is written there, a static method or a property, or as Python gives it
            written = next((base.__dict__[self.name] for base in owner.__mro__ if self.name in base.__dict__), _MISSING)
            return written if written is self.value else getattr(owner, self.name, _MISSING)
        try:
            return object.__getattribute__(owner, self.name)  # past what its class does about it
        except AttributeError:
            is_of_torch = type(owner).__module__.startswith("torch.backends")  # which computes its flags
            return getattr(owner, self.name, _MISSING) if is_of_torch else state_of(owner).get(self.name, _MISSING)

    def is_there(self) -> bool:
        """Tell whether there still is what was found."""
        now, value = self.now(), self.value
        if value is ABSENT:
            return now is _MISSING
        if value is NAMES:
            return bool(now == self.held)
        if value is METHODS:
            return self.held.are_there(self.owner)  # type: ignore[no-any-return]
        if value is KINDS:
            return _are_kinds(_inside(now, self.but[0]), self.held)
        if now is not value and not (type(now) in _EXACT and not differs(now, value)):
            is_method = type(now) is MethodType and type(value) is MethodType
            if not (is_method and now == value) and (self.held is None or type(now) is not type(value)):
                return False
        if self.held is not None and differs(_without(now, self.but), _without(self.held, self.but)):
            return False
        return self.code is None or _is_code(self.code, _code(now))


def kinds_of(value: Any) -> Any:
    """The class of a value; of a tensor its dtype and rank, of a dict those of what it holds.

    >>> kinds_of({"rows": torch.ones(2), "count": 3})
    {'rows': (torch.float32, 1), 'count': <class 'int'>}
    """
    if type(value) is dict:
        return {key: kinds_of(item) for key, item in value.items()}
    return (value.dtype, value.dim()) if isinstance(value, torch.Tensor) else type(value)


def _inside(value: Any, place: tuple[Any, ...]) -> Any:
    """What is at a place in containers and objects; a value of its own where nothing is.

    >>> _inside([{"a": 3}], (0, "a"))
    3
    """
    for key in place:
        if issubclass(type(value), list | tuple):
            value = value[key] if type(key) is int and key < len(value) else _MISSING
        else:
            value = _all_attributes_of(value).get(key, _MISSING)
    return value


def _are_kinds(now: Any, kinds: Any) -> bool:
    """Tell whether a value is still of these kinds; a dict may have others, too."""
    if type(kinds) is dict:
        return type(now) is dict and all(key in now and _are_kinds(now[key], kind) for key, kind in kinds.items())
    return bool(kinds_of(now) == kinds)


class Methods(NamedTuple):
    """The bases of a class, and what Python itself looks up in it, without a name: `__add__`, `__call__`, `__len__`."""

    bases: tuple[type, ...]
    tables: list[tuple[type, dict[str, Any], int]]  # of the user's: the methods, and how long the whole table is

    @classmethod
    def of(cls, kind: type, own: Iterable[type]) -> Methods:
        """Those that there are now; `own` are the bases that may get others."""
        return cls(kind.__mro__, [(base, _methods_of(base), len(vars(base))) for base in own])

    def are_there(self, kind: type) -> bool:
        """Tell whether a class still has these, and no others."""
        if kind.__mro__ != self.bases:
            return False
        for base, held, size in self.tables:
            table = vars(base)
            if len(table) != size and _methods_of(base).keys() != held.keys():
                return False
            if not all(map(operator.is_, map(table.get, held), held.values())):
                return False
        return True

    def others(self, kind: type) -> str:
        """Name what has become another: methods, or the bases."""
        found = []
        for base, held, _ in self.tables:
            now = _methods_of(base)
            found += [name for name in {**held, **now} if held.get(name) is not now.get(name)]
        return " and ".join(found) or "its bases"


def _methods_of(kind: type) -> dict[str, Any]:
    """The methods of a class itself that Python looks up without a name."""
    named = [name for name in vars(kind) if name.startswith("__") and name.endswith("__") and name not in _NO_METHODS]
    return {name: vars(kind)[name] for name in named if callable(vars(kind)[name]) or name == "__hash__"}


_NO_METHODS = frozenset({"__annotate__", "__annotate_func__", "__class__"})  # which may be made when they are asked for


def _attributes_of(owner: Any) -> Any:
    if isinstance(owner, type):  # Python itself adds others
        return {name: value for name, value in vars(owner).items() if not name.startswith("__")}
    return _all_attributes_of(owner)


def _lacks(owner: Any, names: set[str]) -> bool:
    """Tell whether something has none of some attributes, or keys, of its own."""
    table = vars(owner) if isinstance(owner, type) else _all_attributes_of(owner)
    if names.isdisjoint(table) if len(table) < len(names) else not any(map(table.__contains__, names)):
        return True
    return names.isdisjoint(_attributes_of(owner))


def _all_attributes_of(owner: Any) -> Any:
    return owner if type(owner) is dict else attributes_of(owner) if slots_of(type(owner)) else state_of(owner)


def _without(value: Any, places: tuple[tuple[Any, ...], ...]) -> Any:
    """A container with nothing at some places in it.

    >>> _without({"a": [1, 2], "b": 3}, (("a", 0), ("b",)))
    {'a': [None, 2], 'b': None}
    """
    if type(value) is _Content:
        return value._replace(held=_without(value.held, places))
    if not places or type(value) not in _WRITTEN:
        return value
    left = value.copy()
    for key in {keys[0] for keys in places}:
        below = tuple([keys[1:] for keys in places if keys[0] == key])
        try:
            left[key] = None if () in below else _without(left[key], below)
        except (KeyError, IndexError):
            continue
    return left


_WRITTEN = (dict, list, collections.OrderedDict, collections.defaultdict, collections.Counter, collections.deque)


def bound_in(value: Any) -> Iterator[tuple[str, Any]]:
    """What a function is called with that its call does not give, each with the attribute that has it.

    The arguments of a partial function, and defaults that are more than numbers and texts.

    >>> [*bound_in(functools.partial(max, [1], key=len))]
    [('args', ([1],)), ('keywords', {'key': <built-in function len>})]
    >>> def scale(x, by=[2], times=1): ...
    >>> [*bound_in(scale)]
    [('__defaults__', ([2], 1))]
    """
    if isinstance(value, functools.partial):
        yield from (("args", value.args), ("keywords", value.keywords))
    elif isinstance(value, FunctionType):
        for name, held in ("__defaults__", value.__defaults__), ("__kwdefaults__", value.__kwdefaults__):
            items = held.values() if isinstance(held, dict) else held or ()
            if not all(type(item) in _EXACT or item is None for item in items):
                yield name, held


def _may_be_compared(value: Any) -> bool:
    """Tell whether what a container holds may be compared at each call: that of larger ones is which one it is."""
    items = value.values() if isinstance(value, dict) else value
    is_flat = type(value) in _FLAT and not any(isinstance(item, _HOLDING) for item in items)
    return (is_flat and len(value) <= _MOST) or _count(value, _MOST_NESTED) <= _MOST_NESTED


_MOST, _MOST_NESTED = 65_536, 4_096  # items of a container of plain ones, and with those of what it holds


def _count(value: Any, most: int) -> int:
    """How many items a container has, with those in it, up to a few more than so many."""
    if not isinstance(value, _HOLDING):
        return 1
    value = (*tuple.__iter__(value),) if isinstance(value, tuple) else value  # whatever its class makes of `len`
    count = len(value)
    values = dict.values(value) if isinstance(value, dict) else value.values() if isinstance(value, Mapping) else value
    for item in values:
        if count > most:
            break
        count += _count(item, most - count) - 1
    return max(count, 1)


class _Content(NamedTuple):
    """What a container of a class of its own holds, and its attributes."""

    kind: type
    held: Any
    own: Any

    @classmethod
    def of(cls, value: Any, held: Any) -> _Content:
        return cls(type(value), held, {name: _copied(item) for name, item in attributes_of(value).items()})


def kept(value: Any) -> Any:
    """A copy of what a container holds, with the containers in it; None for what is no container."""
    kind = type(value)
    if kind not in (dict, list, tuple, set) and isinstance(value, (dict, list, set, *_HELD, *_BYTES)):
        held = _held(value)
        return None if held is None else _Content.of(value, held)
    if kind is dict:
        return {key: _copied(item) for key, item in value.items()}
    if isinstance(value, tuple):
        held = _held(value)
        if all(map(operator.is_, held, value)):
            return _Content.of(value, held) if kind is not tuple and attributes_of(value) else None
        return held if kind is tuple else _Content.of(value, held)
    if kind is list:
        return [*map(_copied, value)]
    return set(value) if kind is set else None


_BYTES = (bytearray, numpy.ndarray, array.array)
_TABLES_OF = (types.MappingProxyType, collections.ChainMap, collections.UserDict)
_HELD = (collections.deque, collections.UserList, *_TABLES_OF)
_FLAT = (list, tuple, dict, set, collections.deque, bytearray, array.array)
_HOLDING = (dict, list, tuple, set, *_HELD, bytearray, array.array)


def _held(value: Any) -> Any:
    """What a container holds, as a plain one does; None for an array that is too large, or holds objects."""
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in dict.items(value)}
    if isinstance(value, tuple):
        return tuple(map(_copied, value))
    if isinstance(value, _TABLES_OF):
        return {key: _copied(item) for key, item in value.items()}
    if isinstance(value, set):
        return set(value)
    if isinstance(value, bytearray | array.array):
        return bytes(value)
    if isinstance(value, numpy.ndarray):
        is_large = value.nbytes > MOST_BYTES or value.dtype.hasobject
        return None if is_large else (tuple(value.shape), value.dtype.str, value.tobytes())
    return [*map(_copied, value)]


def _copied(value: Any) -> Any:
    found = kept(value)
    return value if found is None else found


def differs(now: Any, before: Any) -> bool:
    """Tell whether a value is another than a copy of it was: containers by what they hold, numbers with their class.

    >>> differs([1, 2], [1, 2]), differs([1, 2], [1, 2.0]), differs({"a": [1]}, {"a": []})
    (False, True, True)
    """
    if now is before:
        return False
    kind = type(now)
    if type(before) is _Content:
        if kind is not _Content and kind is not before.kind:
            return True
        now = now if kind is _Content else _Content.of(now, _held(now))
        return now.kind is not before.kind or differs(now.held, before.held) or differs(now.own, before.own)
    if kind is not type(before):
        return True
    if kind in (list, tuple, dict) and has_the_very(now, before):
        return False
    if kind is list or kind is tuple:
        return len(now) != len(before) or any(map(differs, now, before))
    if kind is dict:
        return list(now) != list(before) or any(differs(item, before[key]) for key, item in now.items())
    if kind is float:
        return bool(now.hex() != before.hex())  # of 0.0 and -0.0, which are equal
    if kind is set or kind in _EXACT:
        return bool(now != before) and not (now != now and before != before)
    return kind.__hash__ is None or kind.__module__ == "torch" or (now == before) is not True


def _code(value: Any) -> Any:
    """The code of a function and its defaults."""
    value = value.__func__ if type(value) in _BOUND else value
    if type(value) is not FunctionType:
        return None
    named = value.__kwdefaults__
    return value.__code__, value.__defaults__, None if named is None else dict(named)


def _is_code(known: Any, now: Any) -> bool:
    return now is not None and known[0] is now[0] and known[1] is now[1] and not differs(now[2], known[2])


def codes_beside(found: Iterable[Found], functions: Iterable[Any]) -> dict[FunctionType, tuple[Any, ...]]:
    """The code of those functions that were not `found` under a name, where their code is taken for granted already.

    A program starts with one; others are inside of decorators, or the forwards of its classes.
    """
    named = {id(getattr(each.value, "__func__", each.value)) for each in found if each.code is not None}
    own = [each for each in functions if type(each) is FunctionType and id(each) not in named]
    return {each: code_of_function(each) for each in own}


class Outside:
    """What a program found, to be compared with what there is at a call.

    >>> names = {"SCALE": 2}
    >>> outside = Outside([Found.of("the global 'SCALE' of train", names, "SCALE", 2)])
    >>> outside.changed() is None
    True
    >>> names["SCALE"] = 3
    >>> outside.changed().subject
    "the global 'SCALE' of train"
    """

    name_in_text = "graphwright.runtime.outside.NOTHING"

    def __init__(
        self,
        found: Iterable[Found] = (),
        what: Iterable[str] | None = None,
        objects: Iterable[tuple[Any, str]] = (),
    ) -> None:
        self.found, self.objects = tuple(found), tuple(objects)
        plain = [each for each in self.found if each.is_one()]
        self._of_tensors = [each for each in self.found if issubclass(type(each.value), torch.Tensor)]
        self._tensors = [each.value for each in self._of_tensors]
        self._kinds = [*map(_KIND, self._tensors)]
        sized = [each for each in self.found if each.is_size()]
        self._sized, self._sizes = [each.owner for each in sized], [each.value for each in sized]
        lacking: dict[int, tuple[Any, set[str]]] = {}
        for each in self.found:
            if each.value is ABSENT and not each.is_one():
                lacking.setdefault(id(each.owner), (each.owner, set()))[1].add(each.name)
        self._lacking = [*lacking.values()]
        self._rest = [each for each in self.found if not (each.is_one() or each.value is ABSENT or each.is_size())]
        rows = [(each.owner, each.name, _MISSING if each.value is ABSENT else each.value) for each in plain]
        self._plain = tuple(map(list, zip(*rows, strict=True)))
        self.what = tuple(map(str, self.found) if what is None else what)  # what was found, for people

    def changed(self) -> Found | None:
        """What is not there any more as it was, if anything."""
        looked_at: Iterable[Found] = self._rest
        if self._plain:
            owners, names, values = self._plain
            if not all(map(operator.is_, map(dict.get, owners, names, itertools.repeat(_MISSING)), values)):
                looked_at = self.found
        if not all(itertools.starmap(_lacks, self._lacking)) or [*map(len, self._sized)] != self._sizes:
            looked_at = self.found
        if self._tensors:
            with torch._C.DisableTorchFunction():
                kinds = [*map(_KIND, self._tensors)]
            if kinds != self._kinds:
                return self._of_tensors[[*map(operator.eq, kinds, self._kinds)].index(False)]
        return next((found for found in looked_at if not found.is_there()), None)

    def subject_of(self, value: Any) -> str | None:
        """What a value is, if it is one of the `objects` that no argument was when the program was captured."""
        return next((subject for known, subject in self.objects if known is value), None)

    def tensors(self) -> set[int]:
        """The ids of the tensors that were found, in containers too."""
        return {id(tensor) for each in self.found for tensor in tensors_inside(each.value)}

    def __deepcopy__(self, memo: dict[int, Any]) -> Outside:
        return self

    def __reduce__(self) -> Any:
        return Outside, ((), self.what)  # another process has another outside

    def __fx_create_arg__(self, tracer: object) -> Outside:
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Outside) and (self is other or self.what == other.what)

    def __hash__(self) -> int:
        return hash(self.what)

    def __repr__(self) -> str:
        return f"<{', '.join(self.what)}>"


_KIND = operator.attrgetter("dtype", "shape")
NOTHING = Outside()  # in texts and packages
