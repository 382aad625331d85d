"""Functions that are recorded as one call instead of being traced through."""

from __future__ import annotations

import builtins
import functools
import sys
from collections.abc import Callable
from typing import Any

from graphwright.capture.proxy import find_tracer

__all__ = ["install_pending", "wrap"]

# (globals of a module, name) for names wrapped before they were defined.
_pending: list[tuple[dict[str, Any], str]] = []


def wrap(fn_or_name: str | Callable[..., Any]) -> Any:
    """Have calls of a function recorded as one node, rather than traced through, when an argument is a proxy.

    As a decorator it returns a function that does so, and otherwise calls the original. With a name, at module
    scope, it does the same to the function that this module knows by that name: its own, an imported one, a builtin.
    Nothing is changed for other modules, and nothing during a capture.

    >>> import graphwright
    >>> @graphwright.wrap
    ... def scaled(x, by):
    ...     return x * by
    >>> [node.name for node in graphwright.symbolic_trace(lambda x: scaled(x, 3)).graph.nodes]
    ['x', 'scaled', 'output']
    """
    if callable(fn_or_name) and not isinstance(fn_or_name, str):
        return _recording(fn_or_name)
    if not isinstance(fn_or_name, str):
        raise RuntimeError(f"wrap takes a function or its name, not {type(fn_or_name).__name__}")
    frame = sys._getframe(1)
    if frame.f_code.co_name != "<module>":
        raise NotImplementedError("wrap must be called at the top level of a module when it is given a name")
    if not _install(frame.f_globals, fn_or_name):
        _pending.append((frame.f_globals, fn_or_name))
    return fn_or_name


def install_pending() -> None:
    """Wrap the functions that were not yet defined when their names were given."""
    for entry in list(_pending):
        if _install(*entry):
            _pending.remove(entry)


def _install(names: dict[str, Any], name: str) -> bool:
    function = names.get(name, getattr(builtins, name, None))
    if function is None:
        return False
    if not hasattr(function, "_graphwright_recorded"):
        names[name] = _recording(function)
    return True


def _recording(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        tracer = find_tracer(args, kwargs)
        if tracer is None:
            return function(*args, **kwargs)
        return tracer.create_proxy("call_function", function, args, kwargs)

    call._graphwright_recorded = function  # type: ignore[attr-defined]
    return call
