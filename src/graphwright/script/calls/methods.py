"""Methods of values: of tensors, lists, dicts, strings and tuples."""

from __future__ import annotations

import ast
import collections
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from graphwright.script.expressions.held_values import closest, wrap
from graphwright.script.expressions.objects import call_of_dict
from graphwright.script.program.frames import Closure
from graphwright.script.program.values import (
    BAD,
    Bad,
    Bound,
    Const,
    Display,
    Group,
    Instance,
    ModuleRef,
    Reference,
    Value,
    is_outside,
)
from graphwright.script.tensors import method_result, tensor_attribute
from graphwright.script.types import (
    ANY,
    BOOL,
    COMPLEX,
    FLOAT,
    INT,
    NONE,
    STR,
    TENSOR,
    DictType,
    Hole,
    IteratorType,
    ListType,
    ObjectType,
    OptionalType,
    SetType,
    TupleType,
    Type,
    accepts,
    is_number,
    item_type,
    join,
    resolved,
)

if TYPE_CHECKING:
    from graphwright.script.program.context import Context

_STR_RESULTS: dict[str, Type] = {
    **dict.fromkeys(("split", "rsplit", "splitlines"), ListType(STR)),
    **dict.fromkeys(("find", "rfind", "index", "rindex", "count"), INT),
    **dict.fromkeys(("startswith", "endswith", "isdigit", "isalpha", "isupper", "islower", "isnumeric", "isspace",
                     "isalnum", "isidentifier", "isdecimal", "istitle", "isprintable"), BOOL),
    **dict.fromkeys(("partition", "rpartition"), TupleType((STR, STR, STR))),
}  # fmt: skip


_CLASSES_OF_NUMBERS: dict[Type, type] = {FLOAT: float, COMPLEX: complex, BOOL: bool}
_NUMBER_RESULTS: dict[str, Type] = {
    "is_integer": BOOL, "bit_length": INT, "hex": STR, "as_integer_ratio": TupleType((INT, INT)), "to_bytes": ANY,
}  # fmt: skip


def call_method(
    c: Context, owner: Value, name: str, args: list[Value], kwargs: dict[str, Value], node: ast.AST, named: str = ""
) -> Value:
    """Compile the call of a method of a value."""
    if is_outside(owner) and name not in _READING:
        return c.changes_outside(owner, node)
    if isinstance(owner, Const) and owner.fixed and all(isinstance(arg, Const) for arg in args) and not kwargs:
        try:
            return wrap(c, getattr(owner.value, name)(*[arg.value for arg in args]), node)  # type: ignore[attr-defined]
        except Exception as error:
            return c.problem(f"this raises {type(error).__name__}: {error}", node)
    known = call_of_dict(c, owner, name, args, node) if isinstance(owner, Instance) else _known(c, owner, name, args)
    if known is not None:
        return known
    if name == "sort" and "key" in kwargs and isinstance(resolved(owner.type), ListType):
        ordered = c.parts.call(c, Reference(sorted), [owner], kwargs, node)
        return (
            BAD if isinstance(ordered, Bad) else c.function(operator.setitem, (owner, slice(None), ordered), NONE, node)
        )
    odd = next((arg for arg in (*args, *kwargs.values()) if isinstance(arg, ModuleRef | Bound | Closure)), None)
    if odd is not None:
        return c.problem(f"{name!r} is given a function or a module", node, "give it plain values or tensors")
    kind = resolved(owner.type)
    if kind is ANY or isinstance(kind, ObjectType):
        c.attributes.run([getattr(kind.kind, name, None)] if isinstance(kind, ObjectType) else [])
    result = _result(c, kind, name, args, kwargs, node)
    if result is None:
        return BAD
    if isinstance(kind, SetType) and name == "add":  # a method of tensors, too, which changes nothing
        item = Display(tuple([(None, arg) for arg in args]), False)
        return c.make("call_method", "update", (owner, item), NONE, node)
    return c.make("call_method", name, (owner, *args), result, node, kwargs, named=named)


# Methods of lists, dicts and sets that change nothing.
_READING = frozenset({
    *("copy", "count", "difference", "get", "index", "intersection", "isdisjoint", "issubset", "issuperset", "items"),
    *("keys", "most_common", "symmetric_difference", "total", "union", "values"),
    *("__contains__", "__getitem__", "__len__"),
})  # fmt: skip


def _known(c: Context, owner: Value, name: str, args: Sequence[Value]) -> Value | None:
    """Methods of what is known one by one."""
    if isinstance(owner, ModuleRef) or (isinstance(owner, Bound) and isinstance(owner.owner, ModuleRef)):
        return None
    if isinstance(owner, Display) and owner.is_dict and name in ("keys", "values", "items"):
        pairs = [(key, value) for key, value in owner.items if key is not None]
        chosen = {"keys": [key for key, _ in pairs], "values": [value for _, value in pairs]}
        return Group(tuple(chosen.get(name, [Group(pair) for pair in pairs])))
    return None


def _result(
    c: Context, kind: Type, name: str, args: list[Value], kwargs: dict[str, Value], node: ast.AST
) -> Type | None:
    """What a method gives; None, with a problem noted, where the type has no such method."""
    if kind is TENSOR:
        if tensor_attribute(name) is None:
            c.problem(f"a Tensor has no method {name!r}", node, closest(torch.Tensor, name))
            return None
        return method_result(name, [arg.type for arg in args], {key: value.type for key, value in kwargs.items()})
    if kind is ANY or isinstance(kind, ObjectType):
        return ANY
    python: Any = None
    found: Type | None = None
    if kind is STR:
        python, found = str, _STR_RESULTS.get(name, STR)
    elif isinstance(kind, ListType):
        python, found = kind.kind, _of_list(c, kind, name, args, node)
        if kind.kind is list and not hasattr(list, name) and hasattr(tuple, name):
            python = tuple
        if name == "numel":  # of sizes
            return INT
    elif isinstance(kind, DictType):
        python, found = kind.kind, _of_dict(c, kind, name, args, kwargs, node)
    elif isinstance(kind, SetType):
        python, found = set, _of_set(c, kind, name, args, node)
    elif is_number(kind):
        python, found = _CLASSES_OF_NUMBERS.get(kind, int), _NUMBER_RESULTS.get(name, kind)
    elif isinstance(kind, TupleType):
        python, found = kind.kind or tuple, INT if name in ("index", "count") else ANY
    if python is None or not hasattr(python, name):
        may_be_none = " (which may be None here)" if isinstance(kind, OptionalType) else ""
        fix = "check `is not None` first" if may_be_none else closest(python, name)
        c.problem(f"a value of type {kind}{may_be_none} has no method {name!r}", node, fix)
        return None
    return found


def _of_list(c: Context, kind: ListType, name: str, args: list[Value], node: ast.AST) -> Type | None:
    what = f"a {kind.kind.__name__}"
    if name in ("append", "appendleft", "insert") and args:
        _agree(c, kind.item, args[-1].type, what, node)
    if name in ("extend", "extendleft") and args:
        item = item_type(args[0].type)
        _agree(c, kind.item, ANY if item is None else item, what, node)
    item = _item_of(kind.item)
    return {"pop": item, "popleft": item, "index": INT, "count": INT, "copy": kind}.get(name, NONE)


def _of_dict(
    c: Context, kind: DictType, name: str, args: list[Value], kwargs: dict[str, Value], node: ast.AST
) -> Type | None:
    for key, item in _put_in(kind, name, args, kwargs):
        _agree(c, kind.key, key, "a dict with keys", node)
        _agree(c, kind.item, item, "a dict", node)
    key, value = _item_of(kind.key), _item_of(kind.item)
    other = args[1].type if len(args) > 1 else NONE if name == "get" else value
    known: dict[str, Type] = {
        "keys": IteratorType(key), "values": IteratorType(value), "items": IteratorType(TupleType((key, value))),
        **dict.fromkeys(("get", "pop"), join(value, other) or ANY),
        "setdefault": value, "copy": kind, "popitem": TupleType((key, value)),
    }  # fmt: skip
    if kind.kind is collections.Counter:
        pairs = TupleType((key, value))
        known |= {"most_common": ListType(pairs), "total": INT, "elements": IteratorType(key)}
    return known.get(name, NONE)


def _put_in(kind: DictType, name: str, args: list[Value], kwargs: dict[str, Value]) -> list[tuple[Type, Type]]:
    """The types of keys and items that a method puts into a dict."""
    if name == "setdefault" and args:
        return [(args[0].type, args[1].type if len(args) > 1 else NONE)]
    if name not in ("update", "subtract"):
        return []
    given: list[tuple[Type, Type]] = [(STR, value.type) for value in kwargs.values()]
    for arg in args:
        other, item = resolved(arg.type), item_type(arg.type) or ANY
        if isinstance(other, DictType):
            given.append((other.key, other.item))
        elif kind.kind is collections.Counter:
            given.append((item, INT))
        else:
            given.append(item.items if isinstance(item, TupleType) and len(item.items) == 2 else (ANY, ANY))
    return given


def _of_set(c: Context, kind: SetType, name: str, args: list[Value], node: ast.AST) -> Type:
    for arg in args if name in ("add", "update", "symmetric_difference_update") else ():
        _agree(c, kind.item, arg.type if name == "add" else item_type(arg.type) or ANY, "a set", node)
    if name in ("union", "intersection", "difference", "copy", "symmetric_difference"):
        return kind
    return BOOL if name.startswith("is") else _item_of(kind.item) if name == "pop" else NONE


def _item_of(kind: Type) -> Type:
    known = resolved(kind)
    return TENSOR if isinstance(known, Hole) else known


def _agree(c: Context, item: Type, given: Type, what: str, node: ast.AST) -> None:
    """Note that something goes into a container, which its type has to allow."""
    if not accepts(item, given):
        c.problem(f"{what} of {resolved(item)} items is given {given}", node, "annotate it: values: List[...] = []")
