"""What graphs do with objects of the user's own classes: make one without its constructor, and tell what it has."""

from __future__ import annotations

import functools
import logging
import threading
import types
from typing import Any, TypeVar

import torch
from torch import nn

from graphwright.ops import set_attribute

Kind = TypeVar("Kind")
MOST_BYTES = 1 << 16  # of an array whose content is compared at each call; of a larger one, which it is


def attribute_names(value: Any) -> list[str]:
    """List the attributes that an object has of its own, in the order in which it got them.

    >>> import types
    >>> attribute_names(types.SimpleNamespace(keys=1, values=2))
    ['keys', 'values']
    """
    return list(attributes_of(value))


def attributes_of(value: Any) -> dict[str, Any]:
    """Read the attributes that an object has of its own, those in slots included.

    Not the class that typing notes of what is made by calling one with parameters, as `Box[int](x)`.

    >>> class Pair:
    ...     __slots__ = ("one", "other")
    >>> pair = Pair()
    >>> pair.one = 1
    >>> attributes_of(pair)
    {'one': 1}
    """
    held = dict(state_of(value))
    held.pop("__orig_class__", None)
    for name in slots_of(type(value)):
        try:
            held[name] = object.__getattribute__(value, name)
        except AttributeError:  # not set
            continue
    return held


def state_of(value: Any) -> dict[str, Any]:
    """Give the dictionary of an object's attributes itself, empty where it has none; nothing of its class runs.

    >>> import types
    >>> state_of(types.SimpleNamespace(keys=1))
    {'keys': 1}
    """
    state: dict[str, Any]
    is_of_thread = issubclass(type(value), threading.local)
    try:
        state = vars(value) if is_of_thread else object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return state


def array_facts(value: Any) -> list[Any]:
    """Tell what a program takes for granted of an array of NumPy's: how many dimensions it has, and of what.

    >>> import torch
    >>> array_facts(torch.ones(2, 3).numpy())
    [2, 'float32']
    """
    return [getattr(value, "ndim", None), str(getattr(value, "dtype", None))]


def layer_facts(value: Any) -> str:
    """Tell what a program takes for granted of a layer that it is given: its class, configuration and kinds of weights.

    >>> import torch
    >>> layer_facts(torch.nn.Linear(3, 2, bias=False))
    'torch.nn.modules.linear.Linear(in_features=3, out_features=2, weight=float32[2, 3] on cpu, bias=None)'
    """
    own = getattr(value, "__dict__", {})
    held = {**own.get("_parameters", {}), **own.get("_buffers", {})}
    facts = {name: repr(item) for name, item in own.items() if isinstance(item, _CONFIGURED) and name != "training"}
    facts |= {name: "None" if tensor is None else _tensor_text(tensor) for name, tensor in held.items()}
    kind = type(value)
    return f"{kind.__module__}.{kind.__qualname__}({', '.join(f'{name}={fact}' for name, fact in facts.items())})"


_CONFIGURED = (bool, int, float, str, tuple)


def _tensor_text(tensor: Any) -> str:
    frozen = "" if tensor.requires_grad or not tensor.is_leaf else " without gradients"
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)} on {tensor.device}{frozen}"


def slots_of(kind: type) -> list[str]:
    """List the slots of a class, by the names that their attributes really have."""
    names = []
    for base in reversed(kind.__mro__):
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            is_private = name.startswith("__") and not name.endswith("__")
            if name not in ("__dict__", "__weakref__"):
                names.append(f"_{base.__name__.lstrip('_')}{name}" if is_private else name)
    return names


def is_object(value: Any) -> bool:
    """Tell whether a value is an object of a class written in Python, which may keep what it has in slots."""
    kind = type(value)
    if kind in _OF_PYTHON:
        return False
    if kind is types.SimpleNamespace:
        return True
    if issubclass(kind, (nn.Module, type)) or not (kind.__dictoffset__ or slots_of(kind)):
        return False
    bases = [base for base in kind.__mro__ if base is not object]
    makes: Any = object.__new__
    return all(base.__module__ not in ("builtins", "types", "torch") for base in bases) and kind.__new__ is makes


# Whose constructors are written in C; most of what modules hold is one of them.
_OF_PYTHON = frozenset({
    bool, int, float, complex, str, bytes, type(None), tuple, list, dict, set, frozenset, functools.partial,
    types.FunctionType, types.MethodType, types.BuiltinFunctionType, torch.Tensor, nn.Parameter, torch.dtype,
    torch.device,
})  # fmt: skip


def is_state(value: Any) -> bool:
    """Tell whether a value is an object whose attributes are state of the program that holds it."""
    kind = type(value)
    if kind in _OF_PYTHON or kind.__module__.startswith("graphwright.") or issubclass(kind, FOREIGN):
        return False  # by the class alone: a value that is asked for its `__class__` may answer in Python
    return is_object(value)


FOREIGN = (logging.Logger, logging.Handler, logging.Manager, threading.Thread)  # of the process, not of the program


def new_object(kind: type[Kind], /, **attributes: Any) -> Kind:
    """Make an object with these attributes; its constructor, which ran when the program was captured, does not run.

    >>> import types
    >>> new_object(types.SimpleNamespace, keys=1)
    namespace(keys=1)
    """
    made = kind.__new__(kind)
    for name, value in attributes.items():
        set_attribute(made, name, value)
    return made
