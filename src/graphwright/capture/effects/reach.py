"""Where a value leads: what a program that has it may come to, and change, without naming it anywhere else.

Containers and tables of attributes (`contents.py`) are put back and joined where sides of a branch change them. What
is here leads on to such ones, or can only be seen to have changed: an iterator, an array, an object with slots.
"""

from __future__ import annotations

import functools
import gc
import io
import itertools
import random
import types
import warnings
import weakref
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

import numpy
import torch
from torch import nn

from graphwright.capture.proxies.contents import holds_bytes
from graphwright.capture.proxies.objects import is_plain_object
from graphwright.runtime import attributes_of, is_object
from graphwright.source import by_code, content_of, definition_of, walk_own

_CACHE = type(functools.lru_cache(len))
_METHOD_WRAPPER = type([].__len__)
_VIEWS: Any = (type({}.keys()), type({}.values()), type({}.items()), types.MappingProxyType)


def leads_to(value: Any) -> Iterable[Any]:
    """What a value has besides the items of a container and its attributes.

    >>> rows = []
    >>> [*leads_to(rows.append)], [*leads_to(functools.partial(max, rows, key=len))] == [max, rows, len]
    ([[]], True)
    """
    kind = type(value)
    if kind is types.FunctionType:
        own = [vars(value)] if vars(value) else []
        words = value.__kwdefaults__ or {}
        return [*map(content_of, value.__closure__ or ()), *(value.__defaults__ or ()), *words.values(), *own]
    if isinstance(value, tuple | frozenset):  # whatever its own class makes of `len` and `for`
        return tuple.__iter__(value) if isinstance(value, tuple) else frozenset.__iter__(value)
    if kind is types.MethodType:
        return value.__func__, value.__self__
    if kind is types.BuiltinFunctionType or kind is _METHOD_WRAPPER:
        return (value.__self__,)
    if isinstance(value, functools.partial):
        return value.func, *value.args, *value.keywords.values()
    if kind is _CACHE:
        return (value.__wrapped__,)
    if isinstance(value, weakref.ref):
        return (value(),)
    if isinstance(value, types.GeneratorType):
        return [] if value.gi_frame is None else [*value.gi_frame.f_locals.values()]
    if isinstance(value, _VIEWS) or (isinstance(value, Iterator) and kind.__module__ in _OF_PYTHON):
        return gc.get_referents(value)
    if isinstance(value, type):
        return [*vars(value).values()] if "<locals>" in value.__qualname__ else ()
    return attributes_of(value).values() if _has_slots(value) else ()


_OF_PYTHON = ("builtins", "itertools")


def seen_state(value: Any) -> Any:
    """What tells whether a value that cannot be put back has changed; None for what does not change, or is a container.

    >>> items = iter([1, 2])
    >>> before = seen_state(items)
    >>> _ = next(items)
    >>> seen_state(items) == before
    False
    """
    kind = type(value)
    if kind is io.StringIO or kind is io.BytesIO:
        return None if value.closed else (value.tell(), value.getvalue())
    if isinstance(value, Iterator):
        return how_far(value)
    if holds_bytes(value):
        return bytes(value) if kind is bytearray else zlib.crc32(value.tobytes())
    if kind is random.Random:
        return value.getstate()
    if isinstance(value, numpy.random.Generator):
        return repr(value.bit_generator.state)
    if isinstance(value, numpy.random.RandomState):
        return repr(value.get_state())
    if kind is _CACHE:
        return value.cache_info().currsize
    if isinstance(value, type):
        return [(name, id(held)) for name, held in vars(value).items()] if "<locals>" in value.__qualname__ else None
    return [(name, id(held)) for name, held in attributes_of(value).items()] if _has_slots(value) else None


def how_far(value: Iterator[Any]) -> Any:
    """How far an iterator of Python's or a generator is, None for one of which that is not known."""
    kind = type(value)
    if isinstance(value, types.GeneratorType):
        return None if value.gi_frame is None else (value.gi_frame.f_lasti, _Held(value))
    if kind.__module__ not in _OF_PYTHON:
        return None
    if kind is itertools.count or kind is itertools.repeat:
        return repr(value)
    try:
        with warnings.catch_warnings():  # the iterators of itertools are not to have it for much longer
            warnings.simplefilter("ignore", DeprecationWarning)
            made_by = value.__reduce__()
    except (TypeError, AttributeError):
        return None
    return _numbers_in(made_by[1:], kind.__name__.startswith(("dict", "set")))


class _Held:
    """What a generator has in its variables, and in the loops that it is in: the very objects, and how far they are."""

    def __init__(self, generator: types.GeneratorType[Any, Any, Any]) -> None:
        self._values = gc.get_referents(generator, generator.gi_frame)
        self._how_far = [how_far(each) if isinstance(each, Iterator) else None for each in self._values]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Held) and (
            [*map(id, self._values)] == [*map(id, other._values)] and self._how_far == other._how_far
        )


def ends_with_work(value: Iterator[Any]) -> bool:
    """Tell whether an iterator may run code of the program where it is closed: a `finally`, or the end of a `with`.

    >>> ends_with_work(each for each in [1, 2])
    False
    """
    if not isinstance(value, types.GeneratorType):
        held = gc.get_referents(value) if type(value).__module__ in _OF_PYTHON else []
    elif value.gi_frame is None or _tries(value.gi_code):
        return value.gi_frame is not None
    else:
        held = gc.get_referents(value, value.gi_frame)
    return any(ends_with_work(each) for each in held if isinstance(each, Iterator))


@by_code
def _tries(code: types.CodeType) -> bool:
    """Tell whether a function has a `try` or a `with`, or no source that would tell."""
    definition = definition_of(code)
    if definition is None:
        return code.co_name != "<genexpr>"
    return any(type(each).__name__ in ("Try", "TryStar", "With") for each in walk_own(definition))


def _numbers_in(part: Any, are_left: bool) -> Any:
    """The numbers in how an iterator would be made again, and how many items are left where it lists these."""
    if isinstance(part, int | str | float):
        return part
    if isinstance(part, Iterator):  # that of `itertools.cycle`, `islice` and their like
        return how_far(part)
    if type(part) is tuple or (type(part) is list and are_left):
        return [_numbers_in(inner, are_left) for inner in part] if type(part) is tuple else len(part)
    return type(part)


def _has_slots(value: Any) -> bool:
    """Tell whether a value is an object of a class of the user's that keeps attributes in slots."""
    kind = type(value)
    if kind.__module__.startswith(("graphwright.", "builtins")) or isinstance(value, torch.Tensor | nn.Module):
        return False
    return is_object(value) and not is_plain_object(value)
