"""Functions behind a `functools` cache: a capture calls them without it, so that it keeps no value of a capture."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from graphwright.source.positions import qualname_of

_CACHE = type(functools.lru_cache(len))


def cache_around(frame: FrameType) -> Any:
    """The cache of the running function, where its module, class, object or caller knows that; else None."""
    code = frame.f_code
    *owners, name = qualname_of(code).split(".")
    space: Any = frame.f_globals
    for owner in owners:
        space = getattr(space.get(owner), "__dict__", {})
    value = space.get(name)
    value = getattr(value, "__func__", value)
    if type(value) is _CACHE and _leads_to(value, code):
        return value
    first = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
    caller = {} if frame.f_back is None else frame.f_back.f_locals  # a decorator closes over it
    held = [*getattr(first, "__dict__", {}).values(), *caller.values()]
    return next((value for value in held if type(value) is _CACHE and _leads_to(value, code)), None)


def without_cache(function: Callable[..., Any]) -> Any:
    """What a cached function calls when it has to compute; other functions are answered as they are."""
    if type(function) is _CACHE:
        return function.__wrapped__
    owner = getattr(function, "__self__", None)
    inner = getattr(function, "__func__", None)
    return functools.partial(inner.__wrapped__, owner) if type(inner) is _CACHE else function


def cache_of(function: Callable[..., Any]) -> Any:
    """The cache in front of a cached function or method; None of other functions."""
    inner = getattr(function, "__func__", function)
    return inner if type(inner) is _CACHE else None


def _leads_to(function: Callable[..., Any] | None, code: CodeType) -> bool:
    """Tell whether a wrapper calls, through others perhaps, the function of this code."""
    for _ in range(10):
        function = getattr(function, "__wrapped__", None)
        if getattr(function, "__code__", None) is code:
            return True
    return False
