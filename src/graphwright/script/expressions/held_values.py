"""What Python objects from outside of a program stand for, and what each call checks of those that its modules hold.

Tensors are read when the program runs, wherever modules hold them; the rest is known when the program is compiled, and
taken for granted, step by step from the module to what is read.
"""

from __future__ import annotations

import ast
import difflib
import enum
import functools
import inspect
import types
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from graphwright.runtime import GraphModule, class_name, in_path, keys_in, kind_held, parts_of_function, spelled
from graphwright.script.annotations import is_named_tuple
from graphwright.script.program.values import (
    Bound,
    Group,
    Instance,
    ModuleRef,
    Place,
    Reference,
    Value,
    constant,
)
from graphwright.script.types import TENSOR

if TYPE_CHECKING:
    from graphwright.script.program.context import Context

_PLAIN = (
    *(int, float, bool, complex, str, bytes, type(None), type(...), torch.dtype, torch.device, torch.layout),
    *(torch.memory_format, torch.Size, enum.Enum, slice),
)


def is_plain(value: Any) -> bool:
    """Tell whether a value is plain data: numbers, text, dtypes, and containers of these."""
    if isinstance(value, list | set | frozenset | tuple):
        return all(map(is_plain, value))
    if isinstance(value, dict):
        return all(is_plain(key) and is_plain(item) for key, item in value.items())
    return isinstance(value, _PLAIN)


def wrap(c: Context, value: Any, at: ast.AST, name: str = "", place: Place | None = None) -> Value:
    """What a Python object that the program names stands for; `place` is where a module of the program holds it."""
    if isinstance(value, nn.Module):
        return _module(c, value, at, name, place)
    if isinstance(value, torch.Tensor):
        return c.constant_tensor(value, at) if place is None else _held_tensor(c, value, place, at, name)
    if isinstance(value, tuple) and not isinstance(value, torch.Size):
        kind = type(value) if is_named_tuple(type(value)) else None
        return Group(_items(c, value, at, name, place), kind)
    if is_plain(value):
        take_value(c, value, place, at)
        return constant(value, fixed=True)
    if isinstance(value, list):
        return Group(_items(c, value, at, name, place), None, Instance(value, place))
    if inspect.ismethod(value):
        take_value(c, value, place, at)
        inner = None if place is None else place.part("__self__")
        return Bound(wrap(c, value.__self__, at, name, inner), value.__func__)
    if inspect.isroutine(value) or isinstance(value, type | types.ModuleType):
        take_value(c, value, place, at)
        if isinstance(value, types.FunctionType):
            _take_parts(c, value, place, at)
        return Reference(value)
    if callable(value) and not code_of_call(value) and not isinstance(value, functools.partial):
        take_value(c, value, place, at)
        return Reference(value)
    take_holder(c, value, place)
    return Instance(value, place)


def _module(c: Context, value: nn.Module, at: ast.AST, name: str, place: Place | None) -> Value:
    path = c.paths.get(id(value))
    if path is None and isinstance(value, GraphModule) and not [*value.parameters(), *value.buffers()]:
        return Bound(Instance(value), value.forward.__func__)  # a function that was captured
    if path is None:
        return c.problem(
            f"{name!r} is a module that is no part of the scripted one", at, "make it a submodule: self.layer = ..."
        )
    if place is not None:
        full = ".".join(filter(None, (place.path, place.inner)))
        c.premise("").setdefault("same", {}).update({path: path, full: path} if path else {})
    return ModuleRef(value, path)


def _held_tensor(c: Context, value: torch.Tensor, place: Place, at: ast.AST, name: str) -> Value:
    inner = place.inner
    c.premise(place.path).setdefault("is_none", {})[inner] = kind_held(value, "." in inner)
    return c.read_held(place, TENSOR, at, name if name.isidentifier() else "")


def _items(c: Context, value: Any, at: ast.AST, name: str, place: Place | None) -> tuple[Value, ...]:
    """The items of a tuple or list, one by one."""
    take_holder(c, value, place)
    take_size(c, value, place)
    inner = [None if place is None else place.item(i) for i in range(len(value))]
    return tuple([wrap(c, item, at, name, inside) for item, inside in zip(value, inner, strict=True)])


def take_holder(c: Context, value: Any, place: Place | None) -> None:
    """Take for granted of which class an object or container is that a module holds."""
    if place is not None and place.steps:
        objects = c.premise(place.path).setdefault("objects", {})
        objects.setdefault(place.inner, {"class": class_name(value), "values": {}})


def take_size(c: Context, value: Any, place: Place | None) -> None:
    """Take for granted how much a container has that a module holds."""
    if place is not None and place.steps:
        c.premise(place.path)["objects"][place.inner]["values"]["len()"] = len(value)


def take_names(c: Context, value: Any, place: Place | None) -> None:
    """Take for granted which keys a dict has that a module holds, in their order."""
    if place is not None and place.steps:
        take_size(c, value, place)
        c.premise(place.path)["objects"][place.inner]["names"] = ["len()", *map(in_path, keys_in(value))]


def take_value(c: Context, value: Any, place: Place | None, at: ast.AST) -> None:
    """Take for granted what a module, or an object that one holds, has in an attribute."""
    if place is None or not place.steps:
        return
    facts, name = c.premise(place.path), str(place.steps[-1][1])
    owner = Place(place.path, place.steps[:-1]).inner
    held = facts["objects"][owner]["values"] if owner else facts.setdefault("values", {})
    held[name] = spelled(value, c.constants)
    if is_plain(value) and c.attributes.has_opaque:  # which may change it meanwhile
        c.check_constant(place, value, at)


def parts_of_partial(c: Context, owner: Instance, at: ast.AST) -> tuple[Value, list[Value], dict[str, Value]]:
    """The function of a partial one, and the arguments that it has already."""
    value, place = owner.value, owner.place
    inner = [None if place is None else place.part(name) for name in ("func", "args", "keywords")]
    given = wrap(c, value.args, at, "argument", inner[1])
    take_holder(c, value.keywords, inner[2])
    take_names(c, value.keywords, inner[2])
    words = {
        name: wrap(c, item, at, name, None if inner[2] is None else inner[2].item(name))
        for name, item in value.keywords.items()
    }
    return wrap(c, value.func, at, "function", inner[0]), list(given.items), words  # type: ignore[attr-defined]


def _take_parts(c: Context, function: types.FunctionType, place: Place | None, at: ast.AST) -> None:
    """Take for granted what a function that a module holds closes over, and its defaults: another may have others."""
    parts = parts_of_function(function)
    if place is None or not parts or len(c.holders) > _DEEPEST or function in c.holders:
        return
    take_holder(c, function, place)
    c.holders.append(function)
    for name, held in parts.items():
        if isinstance(held, torch.Tensor):
            c.constant_tensor(held, at)
        if is_plain(held) or isinstance(held, torch.Tensor | types.FunctionType):
            take_value(c, held, place.part(name), at)
        if isinstance(held, types.FunctionType):
            _take_parts(c, held, place.part(name), at)
    c.holders.pop()


_DEEPEST = 8  # functions in variables of functions


def take_absent(c: Context, owner: Instance, name: Any) -> None:
    """Take for granted that an object has no attribute of its own under a name, or a dict no such key."""
    place = owner.place
    if place is None or not place.steps:
        c.surroundings.take_absent(owner.value, name)
        return
    take_holder(c, owner.value, place)
    absent = c.premise(place.path)["objects"][place.inner].setdefault("absent", [])
    if str(name) not in absent:
        absent.append(str(name))


def code_of_call(value: Any) -> bool:
    """Tell whether an object is called by a function written in Python."""
    return isinstance(inspect.getattr_static(type(value), "__call__", None), types.FunctionType)


def closest(owner: Any, name: str) -> str:
    """Suggest what a name that is not there may have been meant to be."""
    found = difflib.get_close_matches(name, dir(owner), 1)
    return f"did you mean {found[0]!r}?" if found else "use a name that is there"
