"""Functions that stand for others in graphs of torch.fx: guards, which its tracer must record, and what it cannot name.

That is the `apply` of autograd functions: torch.fx writes it as a function of the module of torch that it comes from.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch.fx
import torch.fx.node
from torch.utils import _pytree as pytree

from graphwright.interop.operands import kept
from graphwright.runtime import EXPECTATIONS


def _recorded(function: Callable[..., Any]) -> Callable[..., Any]:
    @torch.fx.node.has_side_effect
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        leaves = pytree.tree_leaves((args, kwargs))
        proxy = next((leaf for leaf in leaves if isinstance(leaf, torch.fx.Proxy)), None)
        if proxy is not None:
            return proxy.tracer.create_proxy("call_function", call, args, kwargs)
        return function(*args, **kwargs)

    call.__module__ = __name__  # where generated code finds it
    call.__doc__ = f"`{function.__name__}`, recorded where its arguments are proxies of torch.fx."
    return call


_RECORDED = {function: _recorded(function) for function in (*EXPECTATIONS, kept)}
_CHECKING = {made: function for function, made in _RECORDED.items()}
globals().update({made.__name__: made for made in _CHECKING})


_APPLIED: weakref.WeakSet[Callable[..., Any]] = weakref.WeakSet()


def _applied(owner: type[torch.autograd.Function], function: Callable[..., Any]) -> Callable[..., Any]:
    def apply(*args: Any) -> Any:
        return function(*args)

    apply.__name__ = apply.__qualname__ = f"{owner.__name__}_apply"
    apply.__module__ = owner.__module__
    apply.__wrapped__ = function  # type: ignore[attr-defined]
    _APPLIED.add(apply)
    return apply


def recorded(function: Any) -> Any:
    """What a graph of torch.fx calls in place of one of our functions, or of an autograd function."""
    owner: Any = getattr(function, "__self__", None)
    is_of_class = issubclass(type(owner), type) and issubclass(owner, torch.autograd.Function)
    if is_of_class and function.__name__ == "apply":
        return _applied(owner, function)
    return _RECORDED.get(function, function) if getattr(function, "__hash__", None) else function


def checking(function: Any) -> Any:
    """The function that a graph of torch.fx calls by what `recorded` gives."""
    if isinstance(function, FunctionType) and function in _APPLIED:
        return function.__wrapped__  # type: ignore[attr-defined]
    return _CHECKING.get(function, function) if getattr(function, "__hash__", None) else function
