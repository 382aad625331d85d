"""What stands inside of modules, objects and containers, by paths of names, places and keys."""

from __future__ import annotations

import collections
import functools
from collections.abc import Iterator
from types import FunctionType, MethodType
from typing import Any

from torch import nn

from graphwright.runtime.objects import attributes_of, state_of

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
TABLES = ("_modules", "_parameters", "_buffers")
ABSENT: Any = object()
HOLDS = "_holds_parts"  # the attribute of a container that was made to hold some of what another holds


def is_holder(value: Any) -> bool:
    """Tell whether a value is a module that was made only to hold what a graph uses."""
    return type(value) is nn.Module or (isinstance(value, nn.Module) and HOLDS in vars(value))


def held_at(root: nn.Module, path: str) -> Any:
    """What is at a path; None where nothing is."""
    holder, name = holder_of(root, path)
    if issubclass(type(holder), nn.Module):
        held = held_by(holder, name)
        return None if held is ABSENT else held
    return inside_of(holder).get(name)


def holder_of(root: nn.Module, path: str) -> tuple[Any, str]:
    """The module, object or container in which a module, tensor or object of a path is, and its name there."""
    *owners, name = path.split(".")
    holder: Any = root
    for owner in owners:
        if issubclass(type(holder), nn.Module):
            found = held_by(holder, owner)
            holder = None if found is ABSENT else found
        else:
            holder = inside_of(holder).get(owner)
    return holder, name


def places_of(root: nn.Module, path: str) -> Iterator[tuple[dict[str, Any], str]]:
    """The table in which a module or tensor of a path is, or an object, and its name there."""
    holder, name = holder_of(root, path)
    tables = [holder.__dict__[table] for table in TABLES] if issubclass(type(holder), nn.Module) else []
    yield from ((table, name) for table in (*tables, state_of(holder)) if name in table)


WITH_ITEMS = (list, tuple, dict, collections.deque)  # each at a place or under a key


def inside_of(value: Any) -> dict[str, Any]:
    """What an object has by attribute, a container by place or key and with its length, each under a text."""
    kind = type(value)  # its `__class__` is what its class says, and may run anything
    if issubclass(kind, functools.partial):
        return {"func": value.func, "args": value.args, "keywords": value.keywords}
    if kind is FunctionType:
        return {**attributes_of(value), **parts_of_function(value)}
    if issubclass(kind, MethodType):
        return {"__self__": value.__self__}
    if issubclass(kind, nn.Module):
        state = value.__dict__
        hooks = [hook for table in HOOKS for hook in state[table].values()]
        inner = {name: held for table in TABLES for name, held in state[table].items()}
        return {**state, **inner, "hooks()": len(hooks)}
    if issubclass(kind, WITH_ITEMS):
        items = value.items() if issubclass(kind, dict) else enumerate(value)
        return {"len()": len(value), **{in_path(key): item for key, item in items}}
    return attributes_of(value)


def in_path(key: Any) -> str:
    """The text by which a path names a key, or a place: without a dot.

    >>> in_path(1), in_path("a.b")
    ('1', 'a\u2024b')
    """
    return str(key).replace(".", "\u2024")


def parts_of_function(function: FunctionType) -> dict[str, Any]:
    """What a function closes over, and its defaults, each under a text."""
    found: dict[str, Any] = {"__defaults__": function.__defaults__, "__kwdefaults__": function.__kwdefaults__}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            found[f"{name} in it"] = cell.cell_contents
        except ValueError:  # not set yet
            continue
    return {name: held for name, held in found.items() if held is not None}


def keys_in(value: dict[Any, Any]) -> list[Any]:
    """The keys of a dict in their order; nothing of a class of the user's runs."""
    is_ordered = issubclass(type(value), collections.OrderedDict)  # which keeps an order of its own
    return [*(collections.OrderedDict.keys(value) if is_ordered else dict.keys(value))]  # type: ignore[arg-type]


def held_by(module: nn.Module, name: str) -> Any:
    """What a module has under a name; ABSENT where it has nothing."""
    for table in (module.__dict__, *[module.__dict__[name] for name in TABLES]):
        if name in table:
            return table[name]
    return ABSENT
