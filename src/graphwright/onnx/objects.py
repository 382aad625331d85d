"""Objects among the inputs and the results of a program: taken apart into what they hold, and made again."""

from __future__ import annotations

import enum
import functools
import types
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils import _pytree as pytree

from graphwright.errors import ExportError
from graphwright.ops import delete_attribute, set_attribute
from graphwright.runtime import attributes_of, new_object
from graphwright.values import made, parts


class Opened:
    """An object, or a container of a class that torch's pytrees do not know, by what it holds.

    Objects have a number, so that one in two places is one again; containers have none.
    """

    def __init__(self, kind: type, number: int | None, held: dict[Any, Any]) -> None:
        self.kind, self.number, self.held = kind, number, held


class Again:
    """The place of an object that was opened before."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Again) and other.number == self.number

    def __hash__(self) -> int:
        return hash(self.number)


class Opening:
    """Opens values, and knows the objects that it has met: those `known` keep their numbers, the others follow.

    With `is_wanted` other objects stay whole in which no leaf is wanted.

    >>> opening = Opening()
    >>> shared = types.SimpleNamespace(x=1)
    >>> pytree.tree_leaves(opening.opened([shared, 2])), opening.objects == [shared]
    ([1, 2], True)
    """

    def __init__(self, known: Sequence[Any] = (), is_wanted: Callable[[Any], bool] | None = None) -> None:
        self.objects, self._is_wanted, self._least = list(known), is_wanted, len(known)
        self._numbers = {id(each): number for number, each in enumerate(known)}
        self._met: set[int] = set()

    def opened(self, value: Any) -> Any:
        """A value with objects opened, each where it is met first."""
        return pytree.tree_map(self._leaf, value)

    def _leaf(self, leaf: Any) -> Any:
        if isinstance(leaf, list | tuple | dict):  # of a class of its own, or it would be no leaf
            return Opened(type(leaf), None, self._held(parts(leaf) or {}))
        held = None if isinstance(leaf, _WHOLE) or type(leaf).__module__.startswith("graphwright.") else _held(leaf)
        if not held:
            return leaf
        number = self._numbers.setdefault(id(leaf), len(self.objects))
        if number == len(self.objects):
            self.objects.append(leaf)
        if number in self._met:
            return Again(number)
        before = {*self._met}
        self._met.add(number)
        opened = Opened(type(leaf), number, self._held(held))
        if number < self._least or self._is_wanted is None or any(map(self._is_wanted, pytree.tree_leaves(opened))):
            return opened
        self._met = before
        return leaf

    def _held(self, held: dict[Any, Any]) -> dict[Any, Any]:
        return {name: self.opened(each) for name, each in held.items()}


def _held(leaf: Any) -> dict[str, Any]:
    try:
        return attributes_of(leaf)
    except (AttributeError, TypeError):
        return {}


def closed(value: Any, known: Iterable[Any] = ()) -> Any:
    """What was opened: objects that are `known` by their numbers get what they hold now, the others are made.

    >>> point = types.SimpleNamespace(x=1)
    >>> other = types.SimpleNamespace(x=2)
    >>> closed(Opening().opened((point, point)), [other]), other is point
    ((namespace(x=1), namespace(x=1)), False)
    """
    return _closed(value, dict(enumerate(known)))


def _closed(value: Any, known: dict[int, Any]) -> Any:
    def leaf(each: Any) -> Any:
        if isinstance(each, Again):
            return known[each.number]
        if not isinstance(each, Opened):
            return each
        if each.number is None:
            return made(each.kind, {name: _closed(held, known) for name, held in each.held.items()})
        if each.number not in known:
            known[each.number] = new_object(each.kind)
        target = known[each.number]
        own = attributes_of(target)
        for name in own.keys() - each.held.keys():
            delete_attribute(target, name)
        for name, held in each.held.items():
            _set(target, name, own.get(name), _closed(held, known))
        return target

    return pytree.tree_map(leaf, value, is_leaf=lambda each: isinstance(each, Opened))


def _set(target: Any, name: str, was: Any, item: Any) -> None:
    """Have an object hold an item; a list or dict that it held stays the one that it was."""
    if type(was) is type(item) is list:
        was[:] = item
    elif type(was) is type(item) is dict:
        was.clear()
        was.update(item)
    elif was is not item or item is None:
        set_attribute(target, name, item)


class State:
    """What the arguments of a program hold, to see afterwards what the program has written to them."""

    def __init__(self, arguments: Any) -> None:
        self._arguments = arguments
        opening = Opening()
        opening.opened(arguments)
        self.objects = opening.objects
        self._before = [_shallow(each, self.objects) for each in (arguments, *map(_held, self.objects))]

    def written(self) -> list[Any]:
        """The objects that hold something else now. Raises ExportError where a list or a dict does outside of them."""
        after = [_shallow(each, self.objects) for each in (self._arguments, *map(_held, self.objects))]
        is_new = [not _is_same(one, other) for one, other in zip(self._before, after, strict=True)]
        if is_new[0]:
            raise ExportError(
                "the program writes to a list or dict that it is given, and an ONNX model cannot",
                fix="give what is written as a result",
            )
        return [each for each, changed in zip(self.objects, is_new[1:], strict=True) if changed]


def _shallow(value: Any, objects: Sequence[Any]) -> tuple[list[Any], Any]:
    """The leaves of a value without what is in the objects."""
    numbers = {id(each): Again(number) for number, each in enumerate(objects)}
    return pytree.tree_flatten(pytree.tree_map(lambda leaf: numbers.get(id(leaf), leaf), value))


def _is_same(one: tuple[list[Any], Any], other: tuple[list[Any], Any]) -> bool:
    pairs = zip(one[0], other[0], strict=False)
    return one[1] == other[1] and all(a is b or (type(a) is type(b) is Again and a == b) for a, b in pairs)


def check_known(leaf: Any, is_of_run: Callable[[Any], bool]) -> None:
    """Refuse a set, slice or partial function of values that only a run knows, as a result."""
    inside: Any = ()
    if isinstance(leaf, set | frozenset):
        inside = leaf
    elif isinstance(leaf, slice):
        inside = (leaf.start, leaf.stop, leaf.step)
    elif isinstance(leaf, functools.partial):
        inside = pytree.tree_leaves((leaf.args, leaf.keywords))
    if any(is_of_run(each) for each in inside):
        raise ExportError(
            f"the program gives a {type(leaf).__name__} of values that only a run knows", fix="give them as a tuple"
        )


_WHOLE = (torch.Tensor, nn.Module, np.ndarray, type, enum.Enum, weakref.ref, types.ModuleType, types.FunctionType,
          types.MethodType, functools.partial, torch.SymInt, torch.SymFloat, torch.SymBool, int, float,
          complex, str, bytes, Again)  # fmt: skip


def _flatten(value: Opened) -> tuple[list[Any], Any]:
    return list(value.held.values()), (value.kind, value.number, tuple(value.held))


def _unflatten(values: Iterable[Any], context: Any) -> Opened:
    kind, number, names = context
    return Opened(kind, number, dict(zip(names, values, strict=True)))


def _flatten_with_keys(value: Opened) -> tuple[list[tuple[Any, Any]], Any]:
    values, context = _flatten(value)
    key: Callable[[Any], Any] = pytree.MappingKey if value.number is None else pytree.GetAttrKey
    return [(key(name), each) for name, each in zip(value.held, values, strict=True)], context


pytree.register_pytree_node(Opened, _flatten, _unflatten, flatten_with_keys_fn=_flatten_with_keys)
