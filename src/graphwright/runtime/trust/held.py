"""What modules of a file may call of what they hold: functions that make data of data.

A program computes with values that nobody can call. What it calls by way of a module - a `forward` of the module's own,
an activation, a hook - must not hand it any: no module that the file holds, nor a class of modules.
"""

from __future__ import annotations

import dis
import functools
import sys
import types
import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from graphwright.runtime.graph_module import GraphModule
from graphwright.runtime.members.attributes import MODULE_TABLES
from graphwright.runtime.trust.library import may_be_called
from graphwright.runtime.trust.names import HOOKS, Trust
from graphwright.runtime.trust.verifier import holds_callable


def may_hold(kind: type[nn.Module], name: str, value: Any, trust: Trust) -> bool:
    """Tell whether a module of a class may have a value as an attribute.

    Code of torch's and ours calls what attributes it knows; that of an allowed package is trusted with classes, but for
    `forward`, which programs call. Nothing takes the place of what else all modules have.

    >>> may_hold(nn.TransformerEncoderLayer, "activation", torch.relu, Trust())
    True
    >>> may_hold(nn.TransformerEncoderLayer, "activation", nn.ReLU, Trust())  # gives a module
    False
    >>> may_hold(nn.Linear, "apply", torch.relu, Trust())
    False
    """
    if not callable(value) or isinstance(value, nn.Module):
        return True
    if name != "forward" and hasattr(GraphModule, name):
        return False
    own = [base for base in kind.__mro__ if base not in GraphModule.__mro__]
    own = [base for base in own if not base.__dict__.get("_is_instance_class")]
    is_called = name == "forward" or (own and not any(map(trust.is_users, own)))
    return not is_called or _gives_data(value, trust)


def may_be_hook(value: Any, trust: Trust) -> bool:
    """Tell whether a file may have a hook, which is given the module: one of an allowed package, or of torch's own.

    >>> may_be_hook(nn.utils.spectral_norm(nn.Linear(1, 1))._forward_pre_hooks.popitem()[1], Trust())
    True
    >>> may_be_hook(slice, Trust())  # holds what it is given
    False
    """
    while isinstance(value, functools.partial | types.MethodType):
        value = value.func if isinstance(value, functools.partial) else value.__func__
    if isinstance(value, types.FunctionType):
        return trust.is_users(value)
    return type(value) in HOOKS or trust.is_users(type(value))


def may_be_bound(value: functools.partial[Any], trust: Trust) -> bool:
    """Tell whether a file may have a partial: with a function or module among its arguments only of an allowed package.

    >>> may_be_bound(functools.partial(nn.LayerNorm, eps=1e-6), Trust())
    True
    >>> may_be_bound(functools.partial(slice, nn.ReLU()), Trust())
    False
    """
    return trust.is_users(value.func) or not holds_callable([value.args, value.keywords])


def missing_in(kind: type, held: Iterable[str]) -> str | None:
    """Name an attribute that layers of torch's or ours have, and read, but a module has not: it has `held`.

    Layers that are made of others may have lost some that nobody calls.

    >>> missing_in(nn.Dropout, ["inplace"]), missing_in(nn.Dropout, ["p", "inplace"]), missing_in(nn.Module, [])
    ('p', None, None)
    >>> missing_in(nn.TransformerEncoderLayer, []) is None
    True
    """
    bases = [base for base in kind.__mro__ if base not in GraphModule.__mro__ and _is_ours(base)]
    made, read = (set[str]().union(*names) for names in zip(*map(_names_of, bases), strict=True)) if bases else ((), ())
    return next((name for name in sorted({*made} & {*read} - {*held}) if not hasattr(kind, name)), None)


def _is_ours(kind: type) -> bool:
    """Tell whether a class is one of torch's layers, or of ours, by its name."""
    home = kind.__module__
    return home.startswith(("torch.nn.modules.", "graphwright.")) and (
        getattr(sys.modules.get(home), kind.__name__, None) is kind
    )


@functools.cache
def _names_of(kind: type) -> tuple[set[str], set[str]]:
    """The attributes that a class declares, or makes its objects with, and the names that its methods read."""
    functions = [value for value in vars(kind).values() if isinstance(value, types.FunctionType)]
    makers = [each for each in functions if each.__name__ == "__init__"]
    if any(_names_layers(each) for each in makers):
        return set(), set()
    made = {step.argval for each in makers for step in dis.get_instructions(each) if step.opname == "STORE_ATTR"}
    made |= {name for part in ("__annotations__", "__constants__") for name in vars(kind).get(part, ())}
    read = {name for each in functions if each not in makers for name in each.__code__.co_names}
    return made - MODULE_TABLES, read


def _names_layers(function: types.FunctionType) -> bool:
    """Tell whether a function names classes of modules, which it makes."""
    found = [function.__globals__.get(name, getattr(nn, name, None)) for name in function.__code__.co_names]
    return any(nn.Module in getattr(each, "__mro__", ()) for each in found)


def _gives_data(value: Any, trust: Trust) -> bool:
    """Tell whether what a value gives that is called with data is data."""
    if isinstance(value, functools.partial):
        return _gives_data(value.func, trust)
    if isinstance(value, weakref.ref):
        return isinstance(value(), torch.Tensor)
    return may_be_called(value) if isinstance(value, type) else True
