"""Subscripts: items, slices, and what they give."""

from __future__ import annotations

import ast
import collections
import enum
import operator
from typing import TYPE_CHECKING, Any

from torch import nn

from graphwright.script.expressions.choices import item_of_container
from graphwright.script.expressions.held_values import wrap
from graphwright.script.expressions.named_values import child
from graphwright.script.expressions.objects import item_of_instance, item_of_table
from graphwright.script.program.values import (
    BAD,
    Bad,
    Choice,
    Const,
    Group,
    Instance,
    ModuleRef,
    Reference,
    Runtime,
    Table,
    Value,
    constant,
)
from graphwright.script.statements.branches import chosen
from graphwright.script.statements.loops import needs_items
from graphwright.script.types import (
    ANY,
    BOOL,
    INT,
    RANGE,
    STR,
    TENSOR,
    DictType,
    ListType,
    ObjectType,
    OptionalType,
    TupleType,
    Type,
    accepts,
    item_type,
    resolved,
)

if TYPE_CHECKING:
    from graphwright.script.program.context import Context


def key_of(c: Context, node: ast.expr) -> Any:
    """What stands between brackets: a value, a slice of values, or a tuple of these."""
    if isinstance(node, ast.Slice):
        parts = [constant(None) if part is None else c.expression(part) for part in (node.lower, node.upper, node.step)]
        if any(isinstance(part, Bad) for part in parts):
            return BAD
        return slice(*[None if isinstance(part, Const) and part.value is None else part for part in parts])
    if isinstance(node, ast.Tuple):
        keys = [key_of(c, item) for item in node.elts]
        return BAD if any(isinstance(key, Bad) for key in keys) else tuple(keys)
    return c.expression(node)


def subscript(c: Context, owner: Value, key: Any, node: ast.AST, named: str = "") -> Value:
    """Compile `owner[key]`."""
    if isinstance(owner, Bad) or isinstance(key, Bad):
        return BAD
    known = _known(c, owner, key, node)
    if known is not None:
        return known
    if isinstance(owner, ModuleRef):
        name = type(owner.module).__name__
        what = f"the {name} {owner.path!r} is asked for an item that only a run knows"
        if not isinstance(key, Runtime):
            fix = "write the bounds out" if isinstance(key, slice) else ""
            return c.problem(f"the {name} {owner.path!r} has no such item", node, fix)
        if isinstance(owner.module, _CONTAINERS) and not c.ranges_around:
            return item_of_container(c, owner, key, node)
        return needs_items(c, what, node)
    if isinstance(owner, Choice):
        return chosen(c, owner, lambda item: subscript(c, item, key, node), node, named)
    if isinstance(owner, Reference | Instance) and isinstance(node, ast.expr) and _is_generic(owner.value):
        return Instance(c.frame.code.outside.evaluate(node))
    if isinstance(owner, Reference) and isinstance(owner.value, enum.EnumMeta):  # `Color[name]`
        return c.function(operator.getitem, (owner, key), ObjectType(owner.value), node, named)
    if isinstance(owner, Reference | Table) or (isinstance(owner, Instance) and owner.place is None):
        return c.problem("this cannot be subscripted", node, "use a list, a dict or a tensor")
    kind = _result(owner.type, key)
    if kind is None:
        return c.problem(_message(owner.type, key), node, _fix(owner.type))
    made = resolved(owner.type)
    if isinstance(made, DictType) and made.kind is collections.defaultdict:  # reading it may put something there
        return c.make("call_method", "__getitem__", (owner, key), kind, node, named=named)
    return c.function(operator.getitem, (owner, key), kind, node, named)


_CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.Sequential, nn.ParameterList, nn.ParameterDict)


def _is_generic(value: Any) -> bool:
    """Tell whether subscripting gives a type: `List[int]`."""
    return getattr(value, "__module__", "") == "typing" or (
        isinstance(value, type) and hasattr(value, "__class_getitem__")
    )


def _known(c: Context, owner: Value, key: Any, node: ast.AST) -> Value | None:
    """The item of what is known one by one; None where the graph takes it."""
    if isinstance(key, slice):
        bounds = [part.value if isinstance(part, Const) else part for part in (key.start, key.stop, key.step)]
        plain: Any = slice(*bounds)
        is_known = all(part is None or type(part) is int for part in bounds)
    else:
        plain = key.value if isinstance(key, Const) else None
        is_known = isinstance(key, Const)
    if not is_known:
        return None
    if isinstance(owner, Group):
        try:
            return Group(owner.items[plain]) if isinstance(plain, slice) else owner.items[plain]
        except (IndexError, TypeError) as error:
            return c.problem(str(error), node, f"it has {len(owner.items)} items")
    if isinstance(owner, ModuleRef):
        return child(c, owner, plain, node)
    if isinstance(owner, Instance):
        return item_of_instance(c, owner, plain, node)
    if isinstance(owner, Table):
        return item_of_table(c, owner, plain, node)
    if isinstance(owner, Const) and (owner.fixed or isinstance(owner.value, str)):
        try:
            return wrap(c, owner.value[plain], node, "item")
        except Exception as error:
            return c.problem(f"this raises {type(error).__name__}: {error}", node, raises=type(error))
    return None


def _result(owner: Type, key: Any) -> Type | None:
    kind = resolved(owner)
    if kind is TENSOR or kind is ANY:
        return kind
    if isinstance(kind, OptionalType):
        return None
    if isinstance(kind, DictType):
        return resolved(kind.item) if isinstance(key, Value) and accepts(kind.key, key.type) else None
    if isinstance(kind, ObjectType):
        return ANY
    if isinstance(key, slice) or (isinstance(key, Value) and key.type == ObjectType(slice)):
        if isinstance(kind, ListType) and kind.kind is not list:
            return None
        return (
            kind if isinstance(kind, ListType) or kind in (STR, RANGE) else ANY if isinstance(kind, TupleType) else None
        )
    if isinstance(key, tuple) or not (accepts(INT, key.type) or resolved(key.type) is BOOL):
        return None
    if isinstance(kind, TupleType) and isinstance(key, Const):
        return kind.items[key.value] if -len(kind.items) <= key.value < len(kind.items) else None
    return item_type(kind) if isinstance(kind, ListType | TupleType) or kind in (STR, RANGE) else None


def _message(owner: Type, key: Any) -> str:
    kind = resolved(owner)
    if isinstance(kind, OptionalType):
        return f"a value of type {kind} may be None here"
    given = "a slice" if isinstance(key, slice) else "several keys" if isinstance(key, tuple) else f"{key.type}"
    return f"a value of type {kind} has no item for {given}"


def _fix(owner: Type) -> str:
    if isinstance(resolved(owner), OptionalType):
        return "check `is not None` first, or assert it"
    if isinstance(resolved(owner), ListType):
        return "take it of a list of the same: list(queue)[1:]" if str(owner).startswith("Deque") else "use an int"
    return "use a key of the right type"
