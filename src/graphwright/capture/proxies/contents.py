"""What a value of the program holds that the program may change: the items of containers, the attributes of objects."""

from __future__ import annotations

import array
import collections
import operator
from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy
from torch import Tensor, nn

from graphwright.capture.proxies.growing import is_growing
from graphwright.capture.proxies.objects import is_plain_object
from graphwright.capture.state.symbols import NUMBERS
from graphwright.values import parts

# What keeps values, or bytes, in a place of its own.
_Bytes: TypeAlias = "bytearray | array.array[Any] | numpy.ndarray[Any, Any]"
Container: TypeAlias = "dict[Any, Any] | list[Any] | set[Any] | collections.deque[Any] | _Bytes"

# What a program may add to, from call to call.
DICTS: tuple[type, ...] = (dict, collections.OrderedDict, collections.defaultdict, collections.Counter)
HOLDERS: frozenset[type] = frozenset({list, set, collections.deque, *DICTS})
_ATOMS = frozenset({int, float, bool, str, bytes, complex, type(None), type, *NUMBERS})
_PLAIN = frozenset({list, dict, set, collections.OrderedDict})


def changeable(value: Any) -> list[Any]:
    """The containers and tables of attributes in which a value keeps what it holds; none for what cannot change.

    >>> changeable([1, 2]), changeable({"a": 1}), changeable("text")
    ([[1, 2]], [{'a': 1}], [])
    """
    kind = type(value)
    if kind in _ATOMS:
        return []
    if kind in _PLAIN:
        return [value]
    if isinstance(value, nn.Module):
        tables = vars(value)  # of which a module that is being made may have none yet
        return [tables, tables.get("_buffers", {}), tables.get("_parameters", {})]
    if isinstance(value, dict | list | set | collections.deque):
        return [] if is_growing(value) else [value, *([value.__dict__] if hasattr(value, "__dict__") else [])]
    is_ours = kind.__module__.startswith("graphwright.capture.")  # the capture itself, and its stand-ins
    return [vars(value)] if not is_ours and is_plain_object(value) else []


def held_parts(value: Any) -> dict[Any, Any] | None:
    """What a container holds, by key, and a plain object, by attribute; None for a value that is neither.

    >>> import types
    >>> held_parts([1, 2]), held_parts(types.SimpleNamespace(x=3)), held_parts(4)
    ({0: 1, 1: 2}, {'x': 3}, None)
    """
    kind: Any = type(value)
    found, plainly = parts(value), object.__setattr__
    is_object = found is None and kind not in _ATOMS and (kind.__setattr__ is plainly or kind is SimpleNamespace)
    return vars(value).copy() if is_object and changeable(value) and is_plain_object(value) else found


def holds_bytes(value: Any) -> bool:
    """Tell whether a value is an array, or another place of bytes, that may be written to.

    >>> holds_bytes(bytearray(b"a")), holds_bytes(numpy.ones(2)), holds_bytes(b"a")
    (True, True, False)
    """
    if isinstance(value, numpy.ndarray):
        return not value.dtype.hasobject and value.flags.writeable
    return isinstance(value, bytearray | array.array)


def content(container: Container) -> Any:
    """A plain copy of what a container holds."""
    if type(container) is dict:
        return container.copy()
    if type(container) is collections.OrderedDict and not container:  # hooks, of which most modules have none
        return {}
    if isinstance(container, bytearray):
        return bytes(container)
    if isinstance(container, array.array | numpy.ndarray):
        return container.tobytes()
    if isinstance(container, dict):
        return dict(_methods(container).items(container))
    if isinstance(container, list):
        return list.__getitem__(container, slice(None))
    return set(_set_of(container)) if isinstance(container, set) else [*collections.deque.__iter__(container)]


def _set_of(container: Any) -> set[Any]:
    """A set, or what the one that stands for it holds for the example."""
    return container.example_of if is_growing(container) else container  # type: ignore[no-any-return]


def is_still(container: Container, held: Any) -> bool:
    """Tell whether a dict or list holds what it did: the same objects, in the same order.

    False of other containers, whose contents have to be taken to be compared.
    """
    if isinstance(container, dict):
        if dict.__len__(container) != len(held):
            return False
        if not held:
            return True
        methods = dict if type(container) is dict else _methods(container)
        items = methods.values(container)  # a table that is read through its own methods may record that
        return all(map(operator.is_, methods.keys(container), held)) and all(map(operator.is_, items, held.values()))
    return type(container) is list and len(container) == len(held) and all(map(operator.is_, container, held))


def refill(container: Container, held: Any) -> None:
    """Give a container what another one held, without touching one that holds it."""
    whole: Any = container
    if is_growing(whole):
        whole.before_refill(held)
    if isinstance(container, dict):
        if not is_still(container, held):
            methods = _methods(container)
            methods.clear(container)
            for key, item in held.items():
                methods.__setitem__(container, key, item)
    elif isinstance(container, list):
        list.__setitem__(container, slice(None), held)
    elif isinstance(container, array.array):
        del container[:]
        container.frombytes(held)
    elif isinstance(container, bytearray):
        container[:] = held
    elif isinstance(container, numpy.ndarray):
        if container.tobytes() != held:
            container[...] = numpy.frombuffer(held, container.dtype).reshape(container.shape)
    elif isinstance(container, collections.deque):
        collections.deque.clear(container)
        collections.deque.extend(container, held)
    elif (inner := _set_of(container)) != held:
        inner.clear()
        inner.update(held)


def is_unchanged(one: Any, other: Any) -> bool:
    """Tell whether two contents of a container, as `content` gives them, are the same."""
    if one is other:
        return True
    if isinstance(one, dict) and isinstance(other, dict):
        if len(one) != len(other) or not all(map(_is_same_key, one, other)):  # the order, too
            return False
        return all(map(operator.is_, one.values(), other.values()))
    if isinstance(one, list) and isinstance(other, list) and not is_growing(one):
        return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))
    return isinstance(one, set | bytes) and bool(one == other)


def _is_same_key(one: Any, other: Any) -> bool:
    return one is other or (type(one) is type(other) and not isinstance(one, Tensor) and bool(one == other))


def _methods(container: dict[Any, Any]) -> Any:
    """The class whose methods act on a dict as such: those of a subclass may do more, or refuse."""
    return collections.OrderedDict if issubclass(type(container), collections.OrderedDict) else dict
