"""The walker of nested values: how each class of containers is taken apart, and made again.

Two readings of "container" are in use. Of `parts` and `rebuild`: tuples, named tuples, lists, dicts and dataclasses,
whose items a program may change one by one. Of `leaves` and `map_leaves`: what has a literal, which is slices, too, but
no objects.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

# A container of which `parts` tells what it holds.
HasParts: TypeAlias = "tuple[Any, ...] | list[Any] | dict[Any, Any] | DataclassInstance"
Parts = dict[Any, Any]  # what a container holds, by key, index or name of a field


@dataclasses.dataclass(frozen=True, slots=True)
class Structure:
    """How the containers of one kind are taken apart into their parts, and made again of a class and parts."""

    parts: Callable[[Any], Parts]
    made: Callable[[Any, Mapping[Any, Any]], Any]


def is_named_tuple(kind: type) -> bool:
    """Tell whether a class is one of `NamedTuple`'s or `namedtuple`'s, which is called with one argument per field.

    >>> is_named_tuple(collections.namedtuple("Point", "x y")), is_named_tuple(tuple)
    (True, False)
    """
    return issubclass(kind, tuple) and hasattr(kind, "_fields")


def is_record(value: Any) -> bool:
    """Tell whether a value is an object of a dataclass: the classes themselves are none.

    >>> is_record(Structure(dict, dict)), is_record(Structure)
    (True, False)
    """
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def sequence(kind: type[Any], items: Iterable[Any]) -> Any:
    """Make a tuple or list of a class: named tuples, `torch.Size` and torch's named results are such classes.

    >>> sequence(list, (1, 2)), sequence(collections.namedtuple("Point", "x y"), (1, 2))
    ([1, 2], Point(x=1, y=2))
    """
    return kind(*items) if hasattr(kind, "_fields") else kind(items)


# ---- one row per kind of container


def _parts_of_list(value: list[Any]) -> Parts:
    return dict(enumerate(list.__iter__(value)))  # not what a subclass would say: one may be a list of a graph


def _parts_of_tuple(value: tuple[Any, ...]) -> Parts:
    return dict(enumerate(value))


def _parts_of_record(value: DataclassInstance) -> Parts:
    names = [field.name for field in dataclasses.fields(value)]
    return {name: getattr(value, name) for name in names if hasattr(value, name)}


def _made_sequence(kind: type[Any], held: Mapping[Any, Any]) -> Any:
    return sequence(kind, held.values())


def _made_dict(kind: type[Any], held: Mapping[Any, Any]) -> Any:
    return kind(held)


def _made_record(kind: type[Any], held: Mapping[Any, Any]) -> Any:
    """Make an object of a dataclass; the fields that its constructor does not take are set afterwards."""
    others = {field.name for field in dataclasses.fields(kind) if not field.init}
    made = kind(**{name: part for name, part in held.items() if name not in others})
    for name in others & held.keys():
        object.__setattr__(made, name, held[name])
    return made


def _made_by_keywords(kind: type[Any], held: Mapping[Any, Any]) -> Any:
    return kind(**held)


_TUPLE, _LIST = Structure(_parts_of_tuple, _made_sequence), Structure(_parts_of_list, _made_sequence)
_DICT, _RECORD = Structure(dict, _made_dict), Structure(_parts_of_record, _made_record)
_DICT_OF_FIELDS = Structure(dict, _made_by_keywords)  # an output class of transformers is a dict and a dataclass

_EXACT: dict[type, Structure] = {tuple: _TUPLE, list: _LIST, dict: _DICT}
_BY_BASE: tuple[tuple[Callable[[type], bool], Structure], ...] = (
    (lambda kind: issubclass(kind, dict) and dataclasses.is_dataclass(kind), _DICT_OF_FIELDS),
    (lambda kind: issubclass(kind, tuple), _TUPLE),
    (lambda kind: issubclass(kind, list), _LIST),
    (lambda kind: issubclass(kind, dict), _DICT),
    (dataclasses.is_dataclass, _RECORD),
)


def _structure_of(kind: type) -> Structure | None:
    """The row for a class; None for one whose objects are no containers."""
    return _EXACT.get(kind) or next((structure for fits, structure in _BY_BASE if fits(kind)), None)


# ---- containers that a program may change


def parts(value: Any) -> Parts | None:
    """What a tuple, list, dict or dataclass holds, by key, index or field; None for a value that is none.

    >>> parts(("a", "b")), parts({"x": 1}), parts(3)
    ({0: 'a', 1: 'b'}, {'x': 1}, None)
    """
    structure = _structure_of(type(value))
    return None if structure is None else structure.parts(value)


def made(kind: type, held: Mapping[Any, Any]) -> Any:
    """Make a container of a class, of its parts by key, index or field.

    >>> made(list, {0: "a", 1: "b"})
    ['a', 'b']
    """
    structure = _structure_of(kind)
    assert structure is not None, kind
    return structure.made(kind, held)


def rebuild(value: Any, held: Mapping[Any, Any]) -> Any:
    """Make a container like another, of other parts.

    >>> rebuild({"a": 1}, {"a": 2}), rebuild((1, 2), {0: 3, 1: 4})
    ({'a': 2}, (3, 4))
    """
    if isinstance(value, collections.defaultdict):
        return type(value)(value.default_factory, held)
    return made(type(value), held)


# ---- values that have a literal

_LITERALS = (tuple, list, dict, slice)


def leaves(value: Any) -> list[Any]:
    """List what nested tuples, lists, dicts and slices hold, in order; a value that is none of these is a leaf itself.

    Lists and dicts are read past what subclasses say: looking at a list of a graph records nothing.

    >>> leaves((1, [2, {"a": 3}], slice(4, 5)))
    [1, 2, 3, 4, 5, None]
    """
    found: list[Any] = []
    if isinstance(value, _LITERALS):
        _gather(value, found)
    else:
        found.append(value)
    return found


def _gather(value: Any, found: list[Any]) -> None:
    for item in _items(value):
        if isinstance(item, _LITERALS):
            _gather(item, found)
        else:
            found.append(item)


def _items(value: Any) -> Iterable[Any]:
    if isinstance(value, tuple):
        return tuple.__iter__(value)
    if isinstance(value, list):
        return list.__iter__(value)
    return dict.values(value) if isinstance(value, dict) else (value.start, value.stop, value.step)


def map_leaves(function: Callable[[Any], Any], value: Any) -> Any:
    """Rebuild nested tuples, lists, dicts and slices with a function applied to each leaf.

    A container in which nothing changes is given back as it is: the caller's own list stays one list.

    >>> map_leaves(lambda leaf: leaf and -leaf, {"a": (1, [2]), "b": slice(3, None)})
    {'a': (-1, [-2]), 'b': slice(-3, None, None)}
    """
    if not isinstance(value, _LITERALS):
        return function(value)
    now = [map_leaves(function, item) for item in _items(value)]
    if all(one is other for one, other in zip(now, _items(value), strict=True)):
        return value
    if isinstance(value, slice):
        return slice(*now)
    keys: Iterator[Any] = dict.__iter__(value) if isinstance(value, dict) else iter(range(len(now)))
    return rebuild(value, dict(zip(keys, now, strict=True)))
