"""Functions that the compiler itself answers: those of scripting, and those that look at types or attributes."""

from __future__ import annotations

import ast
import copy
import operator
import types
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from graphwright.runtime import Outside, expect_modules, expect_outside, facts_of_modules, graphs_of
from graphwright.script.annotations import is_bare, type_from_annotation
from graphwright.script.expressions.held_values import take_absent
from graphwright.script.expressions.named_values import attribute
from graphwright.script.expressions.objects import own_method
from graphwright.script.marks import annotate, fork, is_scripting, wait
from graphwright.script.marks import is_instance as is_instance_of
from graphwright.script.program.values import (
    Choice,
    Const,
    Group,
    Instance,
    ModuleRef,
    Reference,
    Runtime,
    Value,
    constant,
)
from graphwright.script.statements.branches import chosen
from graphwright.script.statements.loops import needs_items
from graphwright.script.statements.statements import with_type
from graphwright.script.types import (
    ANY,
    BOOL,
    NONE,
    TENSOR,
    DictType,
    ListType,
    ObjectType,
    OptionalType,
    SetType,
    TupleType,
    Type,
    accepts,
    class_of,
    resolved,
    without_none,
)

if TYPE_CHECKING:
    from graphwright.script.program.context import Context

Handler = Callable[["Context", list[Value], dict[str, Value], ast.AST, str], Value]


def special_function(
    c: Context, function: Any, args: list[Value], kwargs: dict[str, Value], node: ast.AST, named: str
) -> Value | None:
    """Compile the call of a function that is not called when the program runs; None for every other one."""
    handler = _HANDLERS.get(function) if type(function).__hash__ is not None else None
    if handler is None:
        name = getattr(function, "__name__", "")
        home = str(getattr(function, "__module__", ""))
        is_jit = home.startswith("torch.") and home.split(".")[1].startswith(("jit", "_jit_internal"))
        handler = _BY_NAME.get(name) if is_jit else None
        if handler is _is_of_type:
            return _is_of_type(c, args, kwargs, node, named, function)
        if is_jit and name == "_unwrap_optional" and len(args) == 1:  # which raises where it is None
            kind = without_none(resolved(args[0].type))
            if kind is resolved(args[0].type) and kind not in (ANY, NONE):
                c.take_for_granted(args[0], operator.is_, (args[0], None), False, node)
                return args[0]
            return c.function(function, args, kind, node, named)
    return None if handler is None else handler(c, args, kwargs, node, named)


def _scripting(c: Context, args: list[Value], kwargs: dict[str, Value], node: ast.AST, named: str) -> Value:
    return constant(True, fixed=True)


def _tracing(c: Context, args: list[Value], kwargs: dict[str, Value], node: ast.AST, named: str) -> Value:
    return constant(False, fixed=True)


def _is_tensor(c: Context, args: list[Value], kwargs: dict[str, Value], node: ast.AST, named: str) -> Value:
    return is_instance(c, args[0], [torch.Tensor], node)


def _isinstance(c: Context, args: list[Value], kwargs: dict[str, Value], node: ast.AST, named: str) -> Value:
    if len(args) != 2:
        return c.problem("isinstance takes a value and a class", node)
    classes = classes_of(args[1])
    if classes is None:
        return c.problem("isinstance needs a class, or a tuple of classes", node, "isinstance(x, (int, float))")
    return is_instance(c, args[0], classes, node)


def classes_of(value: Value) -> list[Any] | None:
    """The classes that the second argument of isinstance names; None where they are not known."""
    if isinstance(value, Group):
        found = [classes_of(item) for item in value.items]
        return None if any(item is None for item in found) else [kind for item in found for kind in item or ()]
    if not isinstance(value, Reference | Const | Instance):
        return None
    return list(value.value.__args__) if isinstance(value.value, types.UnionType) else [value.value]


def is_instance(c: Context, value: Value, classes: list[Any], node: ast.AST) -> Value:
    """Compile isinstance: the type of the value decides it where it can."""
    if isinstance(value, Choice):
        return chosen(c, value, lambda item: is_instance(c, item, classes, node), node)
    if isinstance(value, ModuleRef):
        c.take_kind(value, classes)
        return constant(isinstance(value.module, tuple(classes)), True)
    if isinstance(value, Instance):
        c.surroundings.take_class_of(value.value)
    if isinstance(value, Instance | Const) and (not isinstance(value, Const) or value.fixed or value.kind is NONE):
        return constant(isinstance(value.value, tuple(kind for kind in classes if isinstance(kind, type))), True)
    kind = resolved(value.type)
    question = (value, tuple(classes) if len(classes) > 1 else classes[0])
    if kind is TENSOR and any(_is_special_tensor(each) for each in classes if isinstance(each, type)):
        if _is_parameter(c, value):
            return constant(any(issubclass(nn.Parameter, each) for each in classes if isinstance(each, type)), True)
        return c.function(isinstance, question, BOOL, node)
    if isinstance(kind, ListType) and kind.kind is list and {list, tuple} <= set(classes):
        return constant(True, True)  # sizes and what torch's functions give are tuples, which no type tells
    answers = {_is_one(without_none(kind), each) for each in classes}
    if isinstance(kind, OptionalType) and (answers != {False} or type(None) in classes or None in classes):
        answers = {None}
    if None in answers and True not in answers:
        return c.function(isinstance, question, BOOL, node)
    if not isinstance(kind, OptionalType):
        c.take_for_granted(value, isinstance, question, True in answers, node)
    return constant(True in answers, True)


def _is_special_tensor(kind: type) -> bool:
    """Tell whether some tensors are of a class, and others are not."""
    return kind is not torch.Tensor and (issubclass(kind, torch.Tensor) or type(kind) is not type)


def _is_parameter(c: Context, value: Value) -> bool:
    """Tell whether a value is a parameter of a module of the program, which nobody writes."""
    node = value.node if isinstance(value, Runtime) else None
    if node is None or node.op != "get_attr" or c.root is None:
        return False
    path, _, name = str(node.target).rpartition(".")
    module = next((module for module in c.root.modules() if c.paths.get(id(module)) == path), None)
    return module is not None and name in module._parameters and not c.attributes.is_written(module, name)


def _is_one(kind: Type, wanted: Any) -> bool | None:
    """Tell whether values of a type are of a class: all (True), some, or nobody knows (None), or none."""
    if not issubclass(type(wanted), type):  # `List[int]`
        return _is_of(kind, type_from_annotation(wanted))
    if wanted is object:
        return True
    if isinstance(kind, ListType | DictType):
        python: tuple[type | None, ...] = (list, tuple, torch.Size) if kind.kind is list else (kind.kind,)
    elif isinstance(kind, TupleType | SetType):
        python = (kind.kind or tuple,) if isinstance(kind, TupleType) else (set, frozenset)
    else:
        python = (class_of(kind),)
    try:
        found = {None if each is None else issubclass(each, wanted) for each in python}
    except TypeError:  # a protocol that is not checked when a program runs
        return None
    if isinstance(kind, ObjectType):
        found -= {False}  # it may be of a class that inherits from the declared one
    return True in found if len(found) == 1 and None not in found else None


def _is_of(kind: Type, wanted: Any) -> bool:
    of_class = wanted.kind if isinstance(wanted, ListType | DictType) else None
    if of_class not in (None, list, dict) and not (isinstance(kind, ListType | DictType) and kind.kind is of_class):
        return False
    if wanted is None:
        return False
    if isinstance(wanted, ObjectType) and isinstance(kind, ObjectType):
        return issubclass(kind.kind, wanted.kind)
    if isinstance(wanted, ObjectType) or isinstance(wanted, TupleType) != isinstance(kind, TupleType):
        return False
    return (
        wanted is ANY
        or (wanted == kind)
        or (str(wanted) == "int" and str(kind) == "bool")
        or (
            type(wanted) is type(kind) and isinstance(wanted, ListType | DictType | TupleType) and accepts(wanted, kind)
        )
    )


def _hasattr(c: Context, args: list[Value], kwargs: dict[str, Value], node: ast.AST, named: str) -> Value:
    owner, name = args
    if not isinstance(name, Const) or not isinstance(name.value, str):
        return c.problem("hasattr needs the name of an attribute", node, "write the name out")
    if isinstance(owner, ModuleRef):
        has = hasattr(owner.module, name.value)
        c.take_there(owner)
        if not has and c.attributes.is_written(owner.module, name.value):
            return c.problem(f"whether {name.value!r} is set yet, only a run knows", node, "set it in __init__")
        if not has:
            c.attributes.fold(owner.module, name.value)
            c.take_absent(owner, name.value)
        elif name.value not in type(owner.module).__dict__:
            c.take_held(owner, name.value)
        return constant(has, True)
    if isinstance(owner, Instance) and own_method(type(owner.value), "__getattr__") is not None:
        return c.problem(f"whether {name.value!r} is there, only `__getattr__` knows", node, "keep it as an attribute")
    if isinstance(owner, Reference | Instance | Const):
        has = hasattr(owner.value, name.value)
        if has:
            attribute(c, owner, name.value, node)
        elif isinstance(owner, Instance):
            take_absent(c, owner, name.value)
            c.surroundings.take_lacking(type(owner.value), name.value)
        elif isinstance(owner, Reference):
            c.surroundings.take_absent(owner.value, name.value)
        return constant(has, True)
    kind = resolved(owner.type)
    if kind is TENSOR and hasattr(torch.Tensor, name.value):
        c.take_for_granted(owner, hasattr, (owner, name), True, node)
        return constant(True, True)
    if isinstance(kind, TupleType):
        return constant(name.value in kind.names or hasattr(kind.kind or tuple, name.value), True)
    return c.function(hasattr, (owner, name), BOOL, node, named)


def _getattr(c: Context, args: list[Value], kwargs: dict[str, Value], node: ast.AST, named: str) -> Value:
    if len(args) < 2 or not isinstance(args[1], Const) or not isinstance(args[1].value, str):
        if len(args) >= 2 and isinstance(args[1], Runtime):
            return needs_items(c, "an attribute is named by a value that only a run knows", node)
        return c.problem("getattr needs the name of an attribute", node, "write the name out")
    if len(args) == 3:
        found = _hasattr(c, args[:2], {}, node, "")
        if isinstance(found, Const) and not found.value:
            return args[2]
        if isinstance(found, Runtime):
            return c.function(getattr, args, ANY, node, named)
    return attribute(c, args[0], args[1].value, node, named)


def _warn(c: Context, args: list[Value], kwargs: dict[str, Value], node: ast.AST, named: str) -> Value:
    return c.make("call_function", warnings.warn, args, NONE, node, kwargs)


def _outside(c: Context, args: list[Value], kwargs: dict[str, Value], node: ast.AST, named: str) -> Value:
    """The check of a captured program that is entered: what it has found, this one has."""
    if len(args) == 2 and isinstance(args[1], Instance) and isinstance(args[1].value, Outside):
        c.surroundings.take_all(args[1].value)
        return constant(None, fixed=True)
    return c.problem("expect_outside stands in captured programs only", node)


def _modules(c: Context, args: list[Value], kwargs: dict[str, Value], node: ast.AST, named: str) -> Value:
    """The check of a captured module that is entered: what it takes for granted of its modules, this program does."""
    owner = args[0]
    if not isinstance(owner, ModuleRef):
        return constant(None, fixed=True)  # a captured function, which has no modules
    graphs = graphs_of(owner.module)
    for path, facts in [pair for graph in graphs for pair in facts_of_modules(graph).items()]:
        mine = c.premise(".".join(part for part in (owner.path, path) if part))
        for key, value in facts.items():
            mine.setdefault(key, copy.copy(value))
    return constant(None, fixed=True)


def _annotate(c: Context, args: list[Value], kwargs: dict[str, Value], node: ast.AST, named: str) -> Value:
    given = args[0].value if isinstance(args[0], Reference | Const | Instance) else None
    wanted = type_from_annotation(given)
    if len(args) != 2 or wanted is None:
        return c.problem("annotate takes a type and a value", node, "annotate(List[int], [])")
    return with_type(c, args[1], wanted, node)


def _super(c: Context, args: list[Value], kwargs: dict[str, Value], node: ast.AST, named: str) -> Value:
    return c.problem("super() cannot be scripted here", node, "call the method of the class: Base.forward(self, x)")


def _type(c: Context, args: list[Value], kwargs: dict[str, Value], node: ast.AST, named: str) -> Value:
    if len(args) == 1 and isinstance(args[0], ModuleRef):
        c.take_there(args[0])
        c.take_exact(args[0])
        return Reference(type(args[0].module))
    if len(args) == 1 and isinstance(args[0], Instance | Const):
        if isinstance(args[0], Instance):
            c.surroundings.take_class_of(args[0].value)
        return Reference(type(args[0].value))
    return c.function(type, args, ANY, node, named)


def _is_of_type(
    c: Context, args: list[Value], kwargs: dict[str, Value], node: ast.AST, named: str, function: Any = is_instance_of
) -> Value:
    """`is_instance(x, List[int])`: what the type of the value decides, or what a run finds it to be."""
    classes = classes_of(args[1]) if len(args) == 2 else None
    wanted = [type_from_annotation(kind) for kind in classes or ()]
    if not wanted or any(kind is None for kind in wanted) or any(map(is_bare, classes or ())):
        return c.problem("this takes a value and a type", node, "is_instance(x, List[int])")
    kind = resolved(args[0].type)
    if kind is ANY or isinstance(kind, OptionalType | ObjectType) or str(kind) == "number" or ANY in _parts(kind):
        return c.function(function, args, BOOL, node, named)
    return constant(any(kind == one or (_is_of(kind, one) and accepts(one, kind)) for one in wanted if one), True)


def _parts(kind: Type) -> list[Type]:
    """The types in a type, itself included."""
    kind = resolved(kind)
    inner: tuple[Type, ...] = kind.items if isinstance(kind, TupleType) else ()
    if isinstance(kind, DictType):
        inner = kind.key, kind.item
    elif isinstance(kind, ListType):
        inner = (kind.item,)
    return [kind, *[part for each in inner for part in _parts(each)]]


def _fork(c: Context, args: list[Value], kwargs: dict[str, Value], node: ast.AST, named: str) -> Value:
    return c.parts.call(c, args[0], args[1:], kwargs, node, named)


def _wait(c: Context, args: list[Value], kwargs: dict[str, Value], node: ast.AST, named: str) -> Value:
    return args[0]


_HANDLERS: dict[Any, Handler] = {
    expect_outside: _outside, expect_modules: _modules,
    isinstance: _isinstance, hasattr: _hasattr, getattr: _getattr, warnings.warn: _warn, super: _super, type: _type,
    torch.is_tensor: _is_tensor, is_scripting: _scripting, annotate: _annotate,
    is_instance_of: _is_of_type, fork: _fork, wait: _wait,
    torch.compiler.is_compiling: _tracing,
    getattr(torch.compiler, "is_exporting", torch.compiler.is_compiling): _tracing,  # there since torch 2.7
    torch.overrides.has_torch_function: _tracing, torch.overrides.has_torch_function_unary: _tracing,
    torch.overrides.has_torch_function_variadic: _tracing,
}  # fmt: skip
# Programs that were written for torch's own scripting call these; they are known by name, not imported.
_BY_NAME: dict[str, Handler] = {
    "is_scripting": _scripting, "is_tracing": _tracing, "annotate": _annotate, "isinstance": _is_of_type,
    "fork": _fork, "wait": _wait,
}  # fmt: skip
