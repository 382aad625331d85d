"""Containers that have no literal: what to call so that the captured program makes them again."""

from __future__ import annotations

import copy
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch

from graphwright.capture.proxies.objects import constructor_fields

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import Capture
    from graphwright.ir import Argument

_MAPPINGS = (dict.__init__, OrderedDict.__init__)


def container_call(value: Any) -> tuple[Callable[..., Any], tuple[Any, ...]] | None:
    """The function and its arguments that make a container again; None for what this does not know.

    >>> container_call(deque([1, 2], maxlen=3))
    (<class 'collections.deque'>, ([1, 2], 3))
    >>> container_call({"a": 1}) is None
    True
    """
    kind = type(value)
    if kind is defaultdict:
        return defaultdict, (value.default_factory, dict(value))
    if kind is deque:
        return deque, (list(value),) if value.maxlen is None else (list(value), value.maxlen)
    if kind is Counter:
        return Counter, (dict(value),)
    if kind is MappingProxyType:
        return MappingProxyType, (dict(value),)
    if kind is type(iter([])):
        return iter, (list(copy.copy(value)),)
    if kind in (set, frozenset):
        return kind, (list(value),)
    if not getattr(value, "__dict__", None):
        call = call_without_attributes(value)
        if call is not None:
            return call
    if is_named_result(value):
        return kind, (tuple(value),)
    return None


def lasting(recorder: Capture, value: Any) -> Argument:
    """The argument for a value that stays where it is put: a size as one, which an operation gets as a tuple."""
    if type(value) is torch.Size:
        return recorder.make("call_function", torch.Size, (recorder.argument(value),), "shape")
    return tuple([lasting(recorder, part) for part in value]) if type(value) is tuple else recorder.argument(value)


def call_without_attributes(value: Any) -> tuple[Callable[..., Any], tuple[Any, ...]] | None:
    """What makes a dict, list or tuple of a class of its own again, but for its attributes; None for others.

    >>> call_without_attributes(OrderedDict(a=1))
    (<class 'collections.OrderedDict'>, ([('a', 1)],))
    """
    kind = type(value)
    if isinstance(value, dict) and kind is not dict and kind.__init__ in _MAPPINGS:
        return kind, (list(value.items()),)
    if isinstance(value, list) and kind is not list and kind.__init__ is list.__init__:
        return kind, (list(value),)
    if not isinstance(value, tuple) or kind is tuple:
        return None
    makes: Any = tuple.__new__
    if kind.__new__ is makes:
        return kind, (list(value),)
    return (kind, tuple(value)) if hasattr(kind, "_fields") and hasattr(value, "__dict__") else None


def made_by(value: Any) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]] | None:
    """What to call, and with what, to make again a dict, set or deque of a class of its own; None for other values."""
    fields = constructor_fields(value) if isinstance(value, dict) else None
    if fields is not None:
        return type(value), (), fields
    call = None if isinstance(value, tuple) else container_call(value)
    return None if call is None else (*call, {})


def is_named_result(value: Any) -> bool:
    """Tell whether a value is of one of the named tuples that torch's C functions return, as `x.max(0)`."""
    return isinstance(value, tuple) and hasattr(type(value), "n_sequence_fields")


def viewed(value: Any) -> tuple[str, dict[Any, Any]] | None:
    """The method of a dict that gives a view, and the dict; None for a value that is none.

    >>> viewed({"a": 1}.keys())
    ('keys', {'a': 1})
    """
    method = next((name for name, kinds in _VIEWS.items() if type(value) in kinds), None)
    if method is None:
        return None
    kind = OrderedDict if type(value).__name__.startswith("odict") else dict
    return method, kind(value.mapping)


_VIEWS = {
    name: (type(getattr({}, name)()), type(getattr(OrderedDict(), name)())) for name in ("keys", "values", "items")
}
