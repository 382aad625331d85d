"""Attributes and items of Python objects that the program did not make: known now, with a check of each step.

What the user's own classes do where they are asked - properties, `__getattr__`, `__getitem__` - is compiled, not run.
"""

from __future__ import annotations

import ast
import copy
import enum
import functools
import operator
import types
from typing import TYPE_CHECKING, Any

import torch

from graphwright.runtime import attributes_of, keys_in, state_of
from graphwright.script.expressions.held_values import (
    closest,
    is_plain,
    take_absent,
    take_names,
    take_size,
    wrap,
)
from graphwright.script.program.values import BAD, Bad, Bound, Const, Group, Instance, Reference, Table, Value, constant
from graphwright.script.types import ANY, TENSOR
from graphwright.source import is_foreign_class

if TYPE_CHECKING:
    from graphwright.script.program.context import Context

_MISSING: Any = object()


def own_method(kind: type, name: str) -> types.FunctionType | None:
    """A method of the user's that Python itself looks up in a class; None where there is none, or an installed one."""
    found = of_class(kind, name)
    is_own = isinstance(found, types.FunctionType) and not is_foreign_class(_owner(kind, name))
    return found if is_own else None


def of_class(kind: type, name: str) -> Any:
    """What a class has under a name, as it is written there."""
    return next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), _MISSING)


def _owner(kind: type, name: str) -> type:
    return next(base for base in kind.__mro__ if name in vars(base))


def of_object(c: Context, value: Any, name: str, node: ast.AST) -> Value:
    """What a class, a function, a Python module or plain data has in an attribute."""
    computes = own_method(type(value), "__getattr__") if isinstance(value, type) else None
    if computes is not None and all(of_class(kind, name) is _MISSING for kind in (value, type(value))):
        c.surroundings.take_lacking(value, name)
        c.surroundings.take_method(type(value), "__getattr__")
        return c.parts.call(c, Bound(Reference(value), computes), [constant(name, fixed=True)], {}, node)
    try:
        found = getattr(value, name)
    except (AttributeError, RuntimeError) as error:  # torch.ops raises the latter
        return c.problem(str(error), node, closest(value, name), raises=type(error))
    if not isinstance(value, enum.Enum):
        c.surroundings.take_attribute(value, name)
    return wrap(c, found, node, name)


def of_instance(c: Context, owner: Instance, name: str, node: ast.AST, named: str = "") -> Value:
    """What an object of Python has in an attribute: of its own, or of its class."""
    value, kind = owner.value, type(owner.value)
    if name == "__class__":
        c.surroundings.take_class_of(value)
        return Reference(kind)
    if name == "__dict__":
        return Table(owner)
    if own_method(kind, "__getattribute__") is not None:
        what = f"{kind.__name__} has a `__getattribute__` of its own, which cannot be scripted"
        return c.problem(what, node, "trace it with example inputs: trace(model, args)")
    static = of_class(kind, name)
    if isinstance(static, property):
        if is_foreign_class(_owner(kind, name)):
            return _computed(c, owner, name, node)
        c.surroundings.take_method(kind, name)
        return c.parts.call(c, Bound(owner, static.fget), [], {}, node, named)  # type: ignore[arg-type]
    own = attributes_of(value)
    if name in own:
        if owner.place is None:
            c.surroundings.take_attribute(value, name)
        return wrap(c, own[name], node, name, None if owner.place is None else owner.place.attribute(name))
    if static is _MISSING:
        return _missing(c, owner, name, node, named)
    c.surroundings.take_method(kind, name)
    if isinstance(static, functools.cached_property):
        return _computed(c, owner, name, node)
    if attributes_of(value) or hasattr(value, "__dict__"):  # which may get one
        take_absent(c, owner, name)
    if isinstance(static, types.FunctionType):
        return Bound(owner, static)
    if isinstance(static, staticmethod):
        return wrap(c, static.__func__, node, name)
    if isinstance(static, classmethod):
        return Bound(Reference(kind), static.__func__)
    is_of_c = isinstance(static, types.MethodDescriptorType | types.WrapperDescriptorType)
    if is_of_c and (owner.place is not None or isinstance(value, dict)):
        return Bound(owner, name)
    return _computed(c, owner, name, node) if hasattr(type(static), "__get__") else wrap(c, static, node, name)


def _missing(c: Context, owner: Instance, name: str, node: ast.AST, named: str) -> Value:
    """What an object gives for an attribute that neither it nor its class has."""
    kind = type(owner.value)
    take_absent(c, owner, name)
    c.surroundings.take_lacking(kind, name)
    method = own_method(kind, "__getattr__")
    if method is not None:
        c.surroundings.take_method(kind, "__getattr__")
        return c.parts.call(c, Bound(owner, method), [constant(name, fixed=True)], {}, node, named)
    if of_class(kind, "__getattr__") is not _MISSING or not has_no_attribute(owner.value, name):
        return _computed(c, owner, name, node)
    what = f"{kind.__name__!r} object has no attribute {name!r}"
    return c.problem(what, node, closest(owner.value, name), raises=AttributeError)


def has_no_attribute(value: Any, name: str) -> bool:
    """Tell whether Python finds nothing under a name; the methods of an installed class may run."""
    return getattr(value, name, _MISSING) is _MISSING


def _computed(c: Context, owner: Instance, name: str, node: ast.AST) -> Value:
    """What is computed for an attribute and not compiled: it is computed again at each call, plain data is compared."""
    is_kept = isinstance(of_class(type(owner.value), name), functools.cached_property)
    try:
        value = getattr(copy.copy(owner.value) if is_kept else owner.value, name)
    except Exception as error:
        return c.problem(str(error), node, closest(owner.value, name), raises=AttributeError)
    if owner.place is not None and is_plain(value):
        now = c.function(getattr, (owner, name), ANY, node)
        c.expect(f"the attribute {name!r} of a {type(owner.value).__name__}", now, value, node)
    elif owner.place is not None and isinstance(value, torch.Tensor):
        return c.function(getattr, (owner, name), TENSOR, node)
    elif is_kept:
        take_absent(c, owner, name)
    else:
        c.surroundings.take_attribute(owner.value, name)
    return wrap(c, value, node, name)


# ---- items


def item_of_instance(c: Context, owner: Instance, key: Any, node: ast.AST) -> Value:
    """What an object of Python has for a key that is known."""
    value, kind = owner.value, type(owner.value)
    method = own_method(kind, "__getitem__")
    if method is not None:
        c.surroundings.take_method(kind, "__getitem__")
        return c.parts.call(c, Bound(owner, method), [constant(key, fixed=True)], {}, node)
    if isinstance(value, dict) and of_class(kind, "__missing__") is _MISSING:
        if not dict.__contains__(value, key):
            take_absent(c, owner, key)
            return c.problem(f"this raises KeyError: {key!r}", node, raises=KeyError)
        return _entry(c, owner, key, node)
    if owner.place is not None:
        return c.make("call_function", operator.getitem, (owner, constant(key)), ANY, node)
    try:
        return wrap(c, value[key], node, "item")
    except Exception as error:
        return c.problem(f"this raises {type(error).__name__}: {error}", node)


def _entry(c: Context, owner: Instance, key: Any, node: ast.AST) -> Value:
    value = dict.__getitem__(owner.value, key)
    if owner.place is None:
        return wrap(c, value, node, "item")
    return wrap(c, value, node, "item", owner.place.item(key))


def contains(c: Context, owner: Instance, key: Any, node: ast.AST) -> Value | None:
    """Whether an object has a key, where that is known; None for what is asked when the program runs."""
    value, kind = owner.value, type(owner.value)
    method = own_method(kind, "__contains__")
    if method is not None:
        c.surroundings.take_method(kind, "__contains__")
        return c.parts.call(c, Bound(owner, method), [constant(key, fixed=True)], {}, node)
    if not isinstance(value, dict):
        return None
    if dict.__contains__(value, key):
        return BAD if isinstance(_entry(c, owner, key, node), Bad) else constant(True, True)
    take_absent(c, owner, key)
    return constant(False, True)


def keys_of(c: Context, owner: Instance) -> list[Value] | None:
    """What going over a dict gives; None for what is none, or goes over something else."""
    value, kind = owner.value, type(owner.value)
    if not isinstance(value, dict) or own_method(kind, "__iter__") is not None:
        return None
    take_names(c, value, owner.place)
    return [wrap(c, key, c.frame.statement, "key") for key in keys_in(value)]


def call_of_dict(c: Context, owner: Instance, name: str, args: list[Value], node: ast.AST) -> Value | None:
    """The call of a method of a dict that only reads it; None for others."""
    if not isinstance(owner.value, dict):
        return None
    if name == "get" and args and isinstance(args[0], Const):
        key = args[0].value
        if dict.__contains__(owner.value, key):
            return _entry(c, owner, key, node)
        take_absent(c, owner, key)
        return args[1] if len(args) > 1 else constant(None, True)
    keys = keys_of(c, owner) if name in ("keys", "values", "items") else None
    if keys is None:
        return None
    if name == "keys":
        return Group(tuple(keys))
    values = [_entry(c, owner, key, node) for key in keys_in(owner.value)]
    if any(isinstance(each, Bad) for each in values):
        return BAD
    return Group(tuple(values) if name == "values" else tuple(map(Group, zip(keys, values, strict=True))))


def truth_of(c: Context, owner: Instance, node: ast.AST) -> Value:
    """Whether an object counts as true."""
    value, kind = owner.value, type(owner.value)
    for name in ("__bool__", "__len__"):
        method = own_method(kind, name)
        if method is not None:
            c.surroundings.take_method(kind, name)
            return c.parts.call(c, Bound(owner, method), [], {}, node)
    if of_class(kind, "__bool__") is _MISSING and of_class(kind, "__len__") is _MISSING:
        for name in ("__bool__", "__len__"):
            c.surroundings.take_lacking(kind, name)
        return constant(True, True)
    if owner.place is not None and hasattr(value, "__len__") and isinstance(value, dict):
        take_size(c, value, owner.place)
    return constant(bool(value), True)


def item_of_table(c: Context, table: Table, key: Any, node: ast.AST) -> Value:
    """What `value.__dict__[key]` is."""
    if not isinstance(table.owner, Instance):
        return c.problem("the `__dict__` of a module cannot be scripted", node, "read the attribute: self.name")
    if key not in state_of(table.owner.value):
        take_absent(c, table.owner, key)
        return c.problem(f"this raises KeyError: {key!r}", node, raises=KeyError)
    return of_instance(c, table.owner, str(key), node)
