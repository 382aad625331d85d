"""What containers and objects hold, as one table for each: by key, by place, or by the name of an attribute."""

from __future__ import annotations

import collections
import operator
import types
from collections.abc import Hashable
from typing import Any

from graphwright.capture.effects.variables import Variables
from graphwright.capture.effects.watched_tables import WATCHED
from graphwright.capture.proxies.contents import HOLDERS, content, holds_bytes, refill
from graphwright.capture.proxies.objects import is_plain_object
from graphwright.ops import set_attribute
from graphwright.runtime import attributes_of, slots_of, state_of

FIX_OPTIMIZER = "take the optimizer's step outside of the program; torch.optim.SGD without momentum keeps nothing"


class Field(str):
    """The name of an attribute, as the step from an object to what it holds."""


class Hidden(Field):
    """The name of an attribute that the class of the object answers in its own way."""


def is_closed(value: Any) -> bool:
    """Tell whether a value holds others, or bytes, in a way of its own: what is in it can be seen, but not kept.

    >>> own = type("Own", (dict,), {"__module__": "shop"})
    >>> is_closed(own()), is_closed(bytearray()), is_closed(collections.deque())
    (True, True, False)
    """
    kind = type(value)
    if kind in _OPEN or kind.__module__.startswith("graphwright."):
        return False
    return isinstance(value, _HOLDERS) or holds_bytes(value)


_OPEN = HOLDERS | {Variables}
_HOLDERS = (dict, list, set, collections.deque)


def held_by(container: Any) -> dict[Any, Any]:
    """What a container or object holds.

    >>> held_by([3, 4]), held_by({"a"})
    ({0: 3, 1: 4}, {'a': True})
    """
    if isinstance(container, dict):
        return container
    if isinstance(container, Variables):
        return container.read()
    if isinstance(container, set):
        return dict.fromkeys(container, True)
    if isinstance(container, list | collections.deque):
        return dict(enumerate(container))
    if holds_bytes(container):
        return {0: content(container)}
    return {Field(name): value for name, value in attributes_of(container).items()}


def holds_the_same(container: Any, held: dict[Any, Any]) -> bool:
    """Tell at once that a container or object holds the very things that it held; False where it takes a closer look.

    >>> holds_the_same([3, 4], {0: 3, 1: 4}), holds_the_same({"a": 1}, {"b": 1})
    (True, False)
    """
    kind = type(container)
    if kind is dict:
        values, are_same_keys = container.values(), all(map(operator.is_, container, held))
    elif kind is list:
        values, are_same_keys = container, True
    elif isinstance(container, _HOLDERS) or kind is Variables or slots_of(kind) or holds_bytes(container):
        return False
    else:  # whose names are fields in the table
        state = state_of(container)
        values, are_same_keys = state.values(), all(map(operator.eq, state, held))
    return are_same_keys and len(values) == len(held) and all(map(operator.is_, values, held.values()))


def put(container: Any, key: Hashable, value: Any) -> None:
    """Have a list, dict or object hold a value; sets, deques and tuples keep theirs.

    So do the tables of modules keep their parameters, which are known by themselves.
    """
    if isinstance(key, Field):
        set_attribute(container, str(key), value)
    elif type(container) in _OPEN and type(container) is not set:
        container[key] = value
    elif type(container) in WATCHED and (container.table == "_buffers" or dict.get(container, key) is None):
        dict.__setitem__(container, key, value)


def put_back(container: Any, held: dict[Any, Any]) -> None:
    """Have a container or object hold what it held before."""
    if isinstance(container, dict):
        refill(container, held)
        return
    now = held_by(container)
    if now.keys() == held.keys() and all(now[key] is held[key] for key in held):
        return
    if isinstance(container, list | collections.deque):
        refill(container, [*held.values()])
    elif isinstance(container, set):
        refill(container, {*held})
    elif holds_bytes(container):
        refill(container, held[0])
    elif is_plain_object(container):
        vars(container).clear()
        vars(container).update({str(name): value for name, value in held.items()})
    else:
        for name in now.keys() - held.keys():
            object.__delattr__(container, name)
        for name, value in held.items():
            if now.get(name, _MISSING) is not value:
                set_attribute(container, str(name), value)


_MISSING = object()


# How attributes are read plainly; namespaces have the same under a name of their own before Python 3.13.
_READING: tuple[Any, ...] = (object.__getattribute__, types.SimpleNamespace.__getattribute__)


def reads_plainly(owner: Any, name: str) -> bool:
    """Tell whether `owner.name` gives what the object holds under that name: not what its class makes of it."""
    kind: Any = type(owner)
    if kind.__getattribute__ not in _READING:
        return False
    found = next((base.__dict__[name] for base in kind.__mro__ if name in base.__dict__), None)
    return not hasattr(type(found), "__set__") or type(found).__name__ == "member_descriptor"


def sets_plainly(owner: Any) -> bool:
    """Tell whether `owner.name = value` does no more than that."""
    kind: Any = type(owner)
    plain: Any = object.__setattr__
    return kind.__setattr__ is plain
