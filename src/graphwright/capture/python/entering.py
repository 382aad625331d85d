"""How a function of the program is replaced by its conversion, however the program has it: bound, wrapped, a class."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

from torch import nn

from graphwright.capture.conversion.conversion import convert
from graphwright.capture.conversion.generators import is_generator
from graphwright.capture.python.runtime import RUNTIME
from graphwright.capture.state.plan import Conversions
from graphwright.runtime import Shells


def convert_methods(shells: Shells, codes: Conversions) -> None:
    """Give shells conversions of those forwards and hooks that are to be converted."""

    def convert(module: nn.Module, shell: nn.Module, path: str) -> None:
        if codes:
            forward = shell.forward
            converted = converted_function(forward, codes)
            if converted is not forward:
                shell.__dict__["forward"] = converted
            for table in shell._forward_pre_hooks, shell._forward_hooks:
                for key, hook in table.items():
                    table[key] = converted_function(hook, codes)

    shells.each(convert)


def converted_function(function: Callable[..., Any], codes: Conversions, gathers: bool = False) -> Any:
    """Return what to call in place of a function: its conversion where it, or what it wraps, is to be converted.

    `gathers`: what it gives is gathered, so that a generator function is converted, too, to one that does so.
    """
    if type(function) is FunctionType:
        if function.__code__ not in codes or is_generator(function.__code__) is not gathers:
            return function
        return _conversion(function, codes) or function
    if type(function) is MethodType:
        inner = function.__func__
        if type(inner) is FunctionType and inner.__code__ not in codes:
            return function
        converted = converted_function(inner, codes, gathers)
        return function if converted is inner else MethodType(converted, function.__self__)
    if type(function) is functools.partial:
        inner = converted_function(function.func, codes)
        return function if inner is function.func else functools.partial(inner, *function.args, **function.keywords)
    if isinstance(function, type):
        start = initializer(function)
        is_asked = start is not None and start.__code__ in codes
        return functools.partial(_made, function, _conversion(start, codes) or start) if is_asked else function
    own = getattr(type(function), "__call__", None)  # noqa: B004 - the method, to convert it
    if type(own) is FunctionType and own.__code__ in codes and not isinstance(function, type | nn.Module):
        return MethodType(_conversion(own, codes) or own, function)
    return function


def _conversion(function: FunctionType, codes: Conversions) -> FunctionType | None:
    file = function.__code__.co_filename
    return convert(function, RUNTIME, frozenset(line for known, line in codes.waiting if known == file))


def initializer(kind: Callable[..., Any]) -> Any:
    """The `__init__` of a class in Python, if calling the class does no more than to make an object and call that."""
    makes: Any = object.__new__
    is_plain = isinstance(kind, type) and type(kind).__call__ is type.__call__ and kind.__new__ is makes
    return kind.__init__ if is_plain and isinstance(kind.__init__, FunctionType) else None


def _made(kind: type, start: Callable[..., None], /, *args: Any, **kwargs: Any) -> Any:
    """Make an object as calling its class does, with the conversion of its `__init__`."""
    value: Any = object.__new__(kind)
    start(value, *args, **kwargs)
    return value
