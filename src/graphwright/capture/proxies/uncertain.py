"""Tensors that are something else on some ways through a program: None, or a number."""

from __future__ import annotations

import collections
import inspect
from collections.abc import Callable, Iterable
from types import BuiltinFunctionType, FrameType, FunctionType, GeneratorType, MethodType, ModuleType
from typing import Any

import torch

from graphwright.capture.proxies.growing import is_growing
from graphwright.capture.state.running import refused, running
from graphwright.capture.state.symbols import symbol_of
from graphwright.capture.state.tensor_proxy import TensorProxy, is_uncertain
from graphwright.source import is_internal

# What nobody sees into: an iterator may hold such a tensor.
ITERATORS: tuple[type, ...] = (zip, enumerate, type(iter([])), type(iter(())), type(reversed([])))
_MOVES = (list, tuple, dict, zip, enumerate, reversed, iter)
_ASKS = (isinstance, type, len, id, callable)  # nothing of what is inside
SEVERAL: Any = (set, frozenset, collections.deque, type({}.values()), type({}.items()), GeneratorType)
_PLAIN = frozenset({int, float, bool, str, bytes, type(None), torch.dtype, torch.device, torch.Size, torch.Tensor})


def all_mixed(values: Iterable[Any]) -> bool:
    """Tell whether what Python computes of values is a number on some ways: no sure tensor is among them."""
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    return bool(tensors) and all(type(tensor) is TensorProxy and tensor.is_mixed for tensor in tensors)


def only_moves(function: Callable[..., Any], args: tuple[Any, ...]) -> bool:
    """Tell whether a builtin passes values on as they are, or asks only what holds them."""
    if any(function is asking for asking in _ASKS):
        return not any(map(is_uncertain, args))
    return any(function is moving for moving in _MOVES)


def stores(function: Callable[..., Any]) -> bool:
    """Tell whether a method of a builtin container puts what it is given into it, or gives that back."""
    if type(function) is not BuiltinFunctionType:
        return False
    return function.__name__ in _STORING.get(type(function.__self__), ())


_STORING: dict[type, frozenset[str]] = {
    list: frozenset({"append", "extend", "insert"}),
    dict: frozenset({"get", "update", "setdefault"}),
    collections.deque: frozenset({"append", "appendleft", "extend", "extendleft"}),
}
_STORING[collections.OrderedDict] = _STORING[collections.defaultdict] = _STORING[dict]


def uncertain_in(values: Iterable[Any]) -> TensorProxy | None:
    """A tensor that may be something else among values, and in what their objects hold; None without one.

    Of a module that is what it holds itself, not its submodules.
    """
    waiting: list[Any] = [values]
    seen: set[int] = set()
    while waiting:
        value = waiting.pop()
        kind = type(value)
        if kind in _PLAIN or id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, TensorProxy):
            if is_uncertain(value):
                return value
        elif isinstance(value, list | tuple):
            waiting += list.__iter__(value) if isinstance(value, list) else tuple.__iter__(value)
        elif isinstance(value, dict):
            waiting += dict.values(value)
        elif isinstance(value, GeneratorType):
            if value.gi_frame is not None and not is_internal(value.gi_code.co_filename):
                waiting += value.gi_frame.f_locals.values()  # in Python 3.13 they are no dict
        elif isinstance(value, SEVERAL):
            waiting += value
        elif isinstance(value, MethodType):
            waiting.append(value.__self__)
        elif not isinstance(value, _CODE) and kind.__module__.partition(".")[0] not in _LIBRARIES:
            held = _attribute(value, "__dict__") or {}
            waiting += [held[name] for name in held if name not in _TABLES]
            waiting += [_attribute(value, name) for base in kind.__mro__ for name in _slots(base)]
    return None


def _attribute(value: Any, name: str) -> Any:
    """An attribute of an object itself, whatever its class does about attributes."""
    try:
        return object.__getattribute__(value, name)
    except AttributeError:
        return None


def found_by(frame: FrameType) -> list[Any]:
    """What a function that is entered finds: its arguments, variables around it, and global containers."""
    code, names = frame.f_code, frame.f_locals
    flags = (inspect.CO_VARARGS, inspect.CO_VARKEYWORDS)
    count = code.co_argcount + code.co_kwonlyargcount + sum(bool(code.co_flags & flag) for flag in flags)
    outer = [frame.f_globals.get(name) for name in code.co_names]
    return [
        *[names[name] for name in (*code.co_varnames[:count], *code.co_freevars) if name in names],
        *[value for value in outer if isinstance(value, dict | list | tuple | collections.deque)],
    ]


_LIBRARIES = ("torch", __name__.partition(".")[0])
_CODE = (type, FunctionType, BuiltinFunctionType, ModuleType, torch.Tensor)
_TABLES = frozenset(vars(torch.nn.Module()))  # and its submodules are among them


def _slots(kind: type) -> Iterable[str]:
    slots = vars(kind).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else [name for name in slots if not name.startswith("__")]


def asked_for_class(mixed: TensorProxy) -> BaseException:
    """What to raise where the program asks what a value is that is a number on some ways and a tensor on others."""
    if mixed.mixed_at is not None:
        return fork_for(mixed, "is asked for its class")
    return refused(
        mixed.recorder,
        "the program asks for the class of a value that is a number on some ways and a tensor on others",
        "start with a tensor",
    )


def fork_for(found: TensorProxy, what: str) -> BaseException:
    """Have the branch fork that one side leaves with a tensor, the other with None or a bool."""
    other, place = ("None", found.optional) if found.mixed_at is None else ("a bool", found.mixed_at)
    recorder = found.recorder
    return recorder.questions.restart(recorder.plan.change(place, "fork", f"{other} or a tensor {what}"))


def is_input(value: Any) -> bool:
    """Tell whether a value is one of the inputs, and a call may have something else in its place."""
    kind = type(value)
    if kind is TensorProxy:
        return value._node is None or value._node.op == "placeholder"
    if kind in _PLAIN:
        return False
    objects = getattr(running(), "objects", None)
    if objects is None:
        return False
    symbol = symbol_of(value)
    return id(value) in objects or is_growing(value) or (symbol is not None and symbol.key[0] == "input")
