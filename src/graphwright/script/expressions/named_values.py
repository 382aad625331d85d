"""Names and attributes: what Python objects, modules and values have under a name."""

from __future__ import annotations

import ast
import copy
import enum
import functools
import inspect
import types
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from graphwright.script.annotations import type_from_annotation, type_of_constant
from graphwright.script.expressions.held_values import closest, is_plain, wrap
from graphwright.script.expressions.objects import of_instance, of_object
from graphwright.script.program.fields import type_of_field
from graphwright.script.program.values import (
    Bound,
    Const,
    Group,
    Instance,
    ModuleRef,
    Place,
    Reference,
    Runtime,
    Table,
    Value,
    common_type,
    constant,
)
from graphwright.script.tensors import tensor_attribute
from graphwright.script.types import (
    ANY,
    BOOL,
    DEVICE,
    DTYPE,
    FLOAT,
    INT,
    NONE,
    STR,
    TENSOR,
    ObjectType,
    OptionalType,
    TupleType,
    Type,
    optional,
    resolved,
)

if TYPE_CHECKING:
    from graphwright.script.program.context import Context

# ---- attributes


def attribute(c: Context, owner: Value, name: str, node: ast.AST, named: str = "") -> Value:
    """Compile `owner.name`."""
    if isinstance(owner, ModuleRef):
        return _of_module(c, owner, name, node, named)
    if isinstance(owner, Reference):
        return of_object(c, owner.value, name, node)
    if isinstance(owner, Instance):
        return of_instance(c, owner, name, node, named)
    if isinstance(owner, Group):
        if name in owner.names:
            return owner.items[owner.names.index(name)]
        return Bound(owner, name)
    if isinstance(owner, Const) and not isinstance(owner.value, str | list | dict | set):
        return of_object(c, owner.value, name, node)
    if isinstance(owner, Runtime):
        return _of_runtime(c, owner, name, node, named)
    return Bound(owner, name)


def _of_runtime(c: Context, owner: Runtime, name: str, node: ast.AST, named: str) -> Value:
    kind = resolved(owner.kind)
    if isinstance(kind, OptionalType):
        return c.problem(
            f"a value of type {kind} may be None here, which has no {name!r}",
            node,
            "check `is not None` first, or assert it",
        )
    if kind is TENSOR:
        found = tensor_attribute(name)
        if found is None:
            return c.problem(f"a Tensor has no attribute {name!r}", node, closest(torch.Tensor, name))
        return _read(c, owner, name, found, node, named) if isinstance(found, Type) else Bound(owner, name)
    if isinstance(kind, TupleType) and name in kind.names:
        return _read(c, owner, name, kind.items[kind.names.index(name)], node, named)
    if isinstance(kind, ObjectType):
        return _of_typed_object(c, owner, kind.kind, name, node, named)
    known = _KNOWN.get((str(kind), name))
    if known is not None:
        return _read(c, owner, name, known, node, named)
    return Bound(owner, name)


def _read(c: Context, owner: Runtime, name: str, kind: Type, node: ast.AST, named: str) -> Runtime:
    """Read an attribute of a value when the program runs."""
    return c.make("call_function", getattr, (owner, name), kind, node, name=name, named=named)


_KNOWN: dict[tuple[str, str], Type] = {
    **{(kind, part): FLOAT for kind in ("complex", "float") for part in ("real", "imag")},
    **{("int", part): INT for part in ("real", "imag", "numerator", "denominator")},
    (str(DEVICE), "type"): STR, (str(DEVICE), "index"): optional(INT), (str(DTYPE), "is_floating_point"): BOOL,
    (str(DTYPE), "is_complex"): BOOL, (str(DTYPE), "itemsize"): INT, ("finfo", "max"): FLOAT,
}  # fmt: skip


def _of_typed_object(c: Context, owner: Runtime, kind: type, name: str, node: ast.AST, named: str) -> Value:
    if kind in (torch.finfo, torch.iinfo):
        return _read(c, owner, name, FLOAT if kind is torch.finfo else INT, node, named)
    if issubclass(kind, enum.Enum) and inspect.getattr_static(kind, name) is vars(enum.Enum).get(name):
        members: list[Value] = [constant(member.value) for member in kind]
        return _read(c, owner, name, STR if name == "name" else common_type(members), node, named)
    static = inspect.getattr_static(kind, name, None)
    is_property = isinstance(static, property) and kind.__module__.partition(".")[0] != "torch"
    if isinstance(static, types.FunctionType) or is_property:
        if _is_open(kind) and not _is_made_here(owner, kind):  # Python finds what the object has
            return _read(c, owner, name, ANY, node, named) if is_property else Bound(owner, name)
        if not _is_made_here(owner, kind):
            c.take_class(owner, kind, node)
        c.surroundings.take_method(kind, name)
    if isinstance(static, types.FunctionType):
        return Bound(owner, static)
    if isinstance(static, property) and static.fget is not None and is_property:
        return c.parts.call(c, Bound(owner, static.fget), [], {}, node, named)
    if callable(static):
        return Bound(owner, name)
    return _read(c, owner, name, type_of_field(kind, name), node, named)


def _is_open(kind: type) -> bool:
    """Tell whether an object that is declared as one of a class may well be of another, which inherits from it."""
    is_interface = getattr(kind, "_is_protocol", False) or hasattr(kind, "__torch_script_interface__")
    return is_interface or inspect.isabstract(kind) or bool(type.__subclasses__(kind))


def _is_made_here(value: Runtime, kind: type) -> bool:
    """Tell whether the program makes an object itself: its class is known."""
    return value.node.op == "call_function" and value.node.target is kind


# ---- modules


def _of_module(c: Context, owner: ModuleRef, name: str, node: ast.AST, named: str) -> Value:
    module, path = owner.module, c.path_of(owner, name)
    for table in (module._parameters, module._buffers):
        if name in table:
            if table[name] is None and not c.attributes.is_written(module, name):
                c.take_attribute(owner, name, None, node)
                return constant(None, fixed=True)
            kind = c.attributes.read(module, name, NONE if table[name] is None else TENSOR)
            return c.make("get_attr", path, (), kind, node, name=named or name)
    if name in module._modules:
        inside = module._modules[name]
        return constant(None, fixed=True) if inside is None else wrap(c, inside, node, path)
    if name == "training":
        return c.make("get_attr", path, (), BOOL, node, name=named or name)
    if name == "__dict__":
        return Table(owner)
    static = inspect.getattr_static(type(module), name, None)
    if static is not None:
        c.take_class_of(owner)
    if isinstance(static, property):
        c.surroundings.take_method(type(module), name)
        if name in getattr(module, "parametrizations", ()):
            return c.make("get_attr", path, (), TENSOR, node, name=named or name)
        return c.parts.call(c, Bound(owner, static.fget), [], {}, node, named)  # type: ignore[arg-type]
    if name not in module.__dict__ and static is not None:
        c.surroundings.take_method(type(module), name)
        if not isinstance(static, functools.cached_property):
            c.take_absent(owner, name)
        if isinstance(static, types.FunctionType):
            return Bound(owner, static)
        if isinstance(static, staticmethod):
            return wrap(c, static.__func__, node, name)
        if isinstance(static, classmethod):
            return Bound(Reference(type(module)), static.__func__)
    try:
        computes_once = isinstance(static, functools.cached_property)
        value = getattr(copy.copy(module) if computes_once else module, name)
    except AttributeError:
        return c.problem(f"{type(module).__name__} has no attribute {name!r}", node, "set it in __init__")
    return _held_by_module(c, owner, name, value, node, named)


def _held_by_module(c: Context, owner: ModuleRef, name: str, value: Any, node: ast.AST, named: str) -> Value:
    """A plain attribute: a constant, unless a method assigns it or it is a container, which others may change."""
    path, is_own = c.path_of(owner, name), name in owner.module.__dict__
    declared = inspect.get_annotations(type(owner.module)).get(name)
    is_written = c.attributes.is_written(owner.module, name)
    is_made = isinstance(inspect.getattr_static(type(owner.module), name, None), functools.cached_property)
    if isinstance(value, torch.Tensor) and (is_own or is_written or is_made):
        kind = c.attributes.read(owner.module, name, TENSOR)
        return c.make("get_attr", path, (), kind, node, name=named or name)
    is_mutable = isinstance(value, list | dict | set) and is_plain(value)
    if is_plain(value) and (is_mutable or is_written):
        wanted = None if declared is None or isinstance(declared, str) else type_from_annotation(declared)
        kind = c.attributes.read(owner.module, name, type_of_constant(value) if wanted is None else wanted)
        return c.make("get_attr", path, (), kind, node, name=named or name)
    if c.attributes.is_changed(owner.path, name):
        return c.make("get_attr", path, (), ObjectType(type(value)), node, name=named or name)
    if is_written and not inspect.isroutine(value):
        return c.make("get_attr", path, (), ANY, node, name=named or name)
    if is_plain(value):
        c.take_attribute(owner, name, value, node)
    elif is_made and not is_own:
        c.take_absent(owner, name)
    is_held = is_own and not is_plain(value)
    return wrap(c, value, node, name, Place(owner.path).attribute(name) if is_held else None)


def child(c: Context, owner: ModuleRef, key: Any, node: ast.AST) -> Value:
    """What a container of modules or parameters has at a place."""
    module: Any = owner.module
    if not hasattr(type(module), "__getitem__"):
        return c.problem(f"{type(module).__name__} has no items", node)
    if isinstance(key, slice) or (isinstance(key, int) and key < 0):  # counted from how many there are
        c.take_length(module)
    if isinstance(key, slice):
        names = list(module._modules)[key]
        return Group(tuple([wrap(c, module._modules[name], node, name) for name in names]))
    if type(module).__getitem__.__module__.partition(".")[0] != "torch":
        return c.parts.call(c, Bound(owner, type(module).__getitem__), [constant(key)], {}, node)
    try:
        value = module[key]
    except (IndexError, KeyError) as error:
        return c.problem(f"{type(module).__name__} has no item {key!r}: {error}", node)
    if isinstance(value, nn.Parameter):
        name = str(key if key not in range(-len(module), 0) else len(module) + key)
        return c.make("get_attr", c.path_of(owner, name), (), TENSOR, node)
    return wrap(c, value, node, str(key))
