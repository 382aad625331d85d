"""Noting what modules give: the capture of a program then says which of its values the output of a module is.

A graph has the operations inside of a module that was entered, and not the module; what it returned may be any of its
values, or a container of several.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from graphwright.capture.proxies.objects import constructor_fields
from graphwright.capture.proxies.proxy import Proxy
from graphwright.capture.state.tensor_proxy import TensorProxy
from graphwright.runtime import is_object
from graphwright.values import leaves


def noted(value: Any, path: str) -> None:
    """Stand in a graph for the note that a value is what the module at a path gave. It does nothing."""


def note_output(module: nn.Module, path: str) -> None:
    """Have captures of a module, or of one that it is inside of, note what it gives, by `noted(value, path)`.

    For modules that the capture enters. The hook stays with the module, so that it should be one of a tree of its own,
    such as `Shells` make.

    >>> from graphwright import symbolic_trace
    >>> model = nn.Sequential(nn.Sequential(nn.ReLU()), nn.Tanh())
    >>> note_output(model[0], "0")
    >>> print(symbolic_trace(model).graph)
    graph():
        %input_1 : [num_users=1] = placeholder[target=input]
        %_0_0 : [num_users=2] = call_module[target=0.0](args = (%input_1,), kwargs = {})
        %noted : [num_users=0] = call_function[target=graphwright...noted](args = (%_0_0, 0), kwargs = {})
        %_1 : [num_users=1] = call_module[target=1](args = (%_0_0,), kwargs = {})
        return _1
    """
    module.register_forward_hook(_hook(path))


def _hook(path: str) -> Callable[[nn.Module, Any, Any], None]:
    def note(module: nn.Module, args: tuple[Any, ...], value: Any) -> None:
        if any(map(_stays_out, leaves(value))):
            return
        for leaf in leaves(value):
            if isinstance(leaf, TensorProxy):
                recorder = leaf.recorder
                recorder.node("call_function", noted, (recorder.argument(value), path), {}, name="noted")
                return
            if isinstance(leaf, Proxy):
                leaf.tracer.create_proxy("call_function", noted, (value, path), {})
                return

    return note


def _stays_out(value: Any) -> bool:
    """Tell whether a value is an object that no graph can hold, such as a cache of keys and values."""
    if isinstance(value, Proxy | TensorProxy) or not is_object(value):
        return False
    fields = constructor_fields(value)
    return fields is None or any(_stays_out(leaf) for field in fields.values() for leaf in leaves(field))
