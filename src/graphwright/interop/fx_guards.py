"""Guards that torch.fx records: its tracer, which its pickles run, must find them as calls and not check proxies."""

from __future__ import annotations

import functools
from collections.abc import Callable
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


def recorded(function: Any) -> Any:
    """What a graph of torch.fx calls in place of one of our functions."""
    return _RECORDED.get(function, function) if getattr(function, "__hash__", None) else function


def checking(function: Any) -> Any:
    """The function of ours that a graph of torch.fx calls by what `recorded` gives."""
    return _CHECKING.get(function, function) if getattr(function, "__hash__", None) else function
