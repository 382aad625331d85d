"""Calls: who is called decides how."""

from __future__ import annotations

import ast
import cmath
import functools
import inspect
import math
import operator
import types
import typing
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from graphwright.capture import computes_only
from graphwright.ops import IN_PYTHON, is_library_function
from graphwright.script.annotations import fields_of, is_named_tuple, type_of_constant
from graphwright.script.calls.builtin_functions import BUILTINS
from graphwright.script.calls.inlining import declared_type, inline, inline_closure, modifier_of
from graphwright.script.calls.methods import call_method
from graphwright.script.calls.modules import call_module, container_items
from graphwright.script.calls.special import special_function
from graphwright.script.expressions.held_values import is_plain, parts_of_partial, wrap
from graphwright.script.expressions.named_values import attribute
from graphwright.script.program.frames import Closure, code_of
from graphwright.script.program.values import (
    BAD,
    Bad,
    Bound,
    Choice,
    Const,
    Display,
    Group,
    Instance,
    ModuleRef,
    Reference,
    Runtime,
    Value,
)
from graphwright.script.statements.branches import chosen
from graphwright.script.tensors import function_result, takes_sizes
from graphwright.script.types import (
    ANY,
    COMPLEX,
    FLOAT,
    INT,
    IteratorType,
    ListType,
    ObjectType,
    TupleType,
    Type,
    item_type,
    resolved,
)

if TYPE_CHECKING:
    from graphwright.script.program.context import Context

_MATH_INTS = frozenset({"ceil", "floor", "gcd", "lcm", "factorial", "comb", "perm", "isqrt", "trunc"})
_MATH_BOOLS = frozenset({"isnan", "isinf", "isfinite", "isclose"})


def call(
    c: Context, callee: Value, args: list[Value], kwargs: dict[str, Value], node: ast.AST, named: str = ""
) -> Value:
    """Compile a call."""
    if any(isinstance(value, Bad) for value in (callee, *args, *kwargs.values())):
        return BAD
    if isinstance(callee, Closure):
        return inline_closure(c, callee, args, kwargs, node)
    if isinstance(callee, ModuleRef):
        return call_module(c, callee, args, kwargs, node, named)
    if isinstance(callee, Choice):
        args, kwargs = [c.held(arg, node) for arg in args], {name: c.held(arg, node) for name, arg in kwargs.items()}
        return chosen(c, callee, lambda item: call(c, item, args, kwargs, node), node, named)
    if isinstance(callee, Bound):
        if isinstance(callee.method, str):
            return call_method(c, callee.owner, callee.method, args, kwargs, node, named)
        items = container_items(c, callee.owner, callee.method, args, kwargs, node)
        if items is not None:
            return items
        return _reference(c, callee.method, [callee.owner, *args], kwargs, node, named)
    if isinstance(callee, Reference):
        return _reference(c, callee.value, args, kwargs, node, named)
    if isinstance(callee, Instance) and isinstance(callee.value, functools.partial):
        function, given, words = parts_of_partial(c, callee, node)
        return call(c, function, [*given, *args], {**words, **kwargs}, node, named)
    if isinstance(callee, Instance):
        generic = typing.get_origin(callee.value)
        if isinstance(generic, type):  # `OrderedDict[str, int]()`
            return _reference(c, generic, args, kwargs, node, named)
        method = type(callee.value).__call__
        return _reference(c, method, [callee, *args], kwargs, node, named)
    if isinstance(callee, Runtime) and resolved(callee.kind) is ANY:
        c.attributes.run([])
        return c.make("call_method", "__call__", (callee, *args), ANY, node, kwargs, named=named)
    kind = resolved(callee.type)
    is_object = isinstance(callee, Runtime) and isinstance(kind, ObjectType)
    if is_object and any("__call__" in vars(base) for base in kind.kind.__mro__):  # type: ignore[attr-defined]
        return call(c, attribute(c, callee, "__call__", node), args, kwargs, node, named)
    return c.problem(f"a value of type {callee.type} cannot be called", node)


def _reference(
    c: Context, function: Any, args: list[Value], kwargs: dict[str, Value], node: ast.AST, named: str
) -> Value:
    special = special_function(c, function, args, kwargs, node, named)
    if special is not None:
        return special
    builtin = BUILTINS.get(function) if type(function).__hash__ is not None else None
    if builtin is not None:
        return builtin(c, args, kwargs, node, named)
    if isinstance(function, functools.partial):
        return call(c, Instance(function), args, kwargs, node, named)
    if isinstance(function, functools._lru_cache_wrapper):  # which gives what it keeps, the very object
        return _kept(c, function, args, kwargs, node, named)
    if isinstance(function, type):
        return _constructed(c, function, args, kwargs, node, named)
    home = str(getattr(function, "__module__", None) or "")
    if any(getattr(home, getattr(function, "__name__", ""), None) is function for home in (math, cmath)):
        return _math(c, function, args, kwargs, node, named)
    if isinstance(function, types.MethodDescriptorType) and _is_of_tensor(function) and args:
        return call_method(c, args[0], function.__name__, args[1:], kwargs, node, named)
    python = IN_PYTHON.get(function) if isinstance(function, types.FunctionType) else None
    if python is not None:
        if python.__name__ in _SPREADING:
            args = [_as_tuple(arg) for arg in args]
            kwargs = {name: _as_tuple(arg) for name, arg in kwargs.items()}
        return inline(c, python, args, kwargs, node, None, named)
    is_kept = _is_torch(function, home) or is_library_function(function)
    if is_kept and not modifier_of(function) and not _is_of_same_file(c, function):
        return _torch(c, function, args, kwargs, node, named)
    if isinstance(function, types.FunctionType):
        return inline(c, function, args, kwargs, node, None, named)
    if inspect.ismethod(function):
        return _reference(c, function.__func__, [wrap(c, function.__self__, node), *args], kwargs, node, named)
    if all(isinstance(arg, Const) and arg.fixed for arg in (*args, *kwargs.values())):
        return _computed(c, function, args, kwargs, node)
    name = getattr(function, "__qualname__", type(function).__name__)
    return c.problem(
        f"{name} cannot be scripted: it is not written in Python", node, "mark a function around it by `ignore`"
    )


_SPREADING = frozenset({"cond", "while_loop", "switch"})  # which hand on their operands one by one


def _as_tuple(value: Value) -> Value:
    """A list that is written where it is passed on, as the tuple that does the same there."""
    is_list = isinstance(value, Display) and not value.is_dict
    return Group(tuple([item for _, item in value.items])) if is_list else value  # type: ignore[attr-defined]


def _kept(c: Context, function: Any, args: list[Value], kwargs: dict[str, Value], node: ast.AST, named: str) -> Value:
    """Call a function behind a cache when the program runs: it gives the very object that it has given before."""
    wrapped = function.__wrapped__
    c.attributes.run([wrapped])
    code = code_of(wrapped) if isinstance(wrapped, types.FunctionType) else None
    declared = None if code is None else declared_type(wrapped, code, "return")
    return c.make("call_function", function, args, declared or ANY, node, kwargs, named=named)


def _is_torch(function: Any, home: str) -> bool:
    """Tell whether a function is one of torch's own, which stay calls."""
    if isinstance(function, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return True
    owner: Any = getattr(function, "__objclass__", None) or getattr(function, "__self__", None)
    if home.partition(".")[0] == "torch" or (issubclass(type(owner), type) and issubclass(owner, torch.Tensor)):
        return not _is_own_module(function, home)
    name = getattr(function, "__name__", "")
    return any(getattr(place, name, None) is function for place in (torch, torch._C, torch.nn.functional, torch._C._nn))


def _is_of_tensor(function: Any) -> bool:
    """Tell whether a method is one of tensors: `torch.Tensor.abs`."""
    return issubclass(torch.Tensor, function.__objclass__) and function.__objclass__ is not object


def _is_of_same_file(c: Context, function: Any) -> bool:
    """Tell whether a function of torch is called from its own file, which was entered, and declares no result."""
    is_written = isinstance(function, types.FunctionType) and "return" not in function.__annotations__
    return is_written and function.__code__.co_filename == c.frame.code.file


def _is_own_module(function: Any, home: str) -> bool:
    """Tell whether a function is a method of one of torch's modules that was entered."""
    return home.startswith("torch.nn.modules.") and "." in getattr(function, "__qualname__", "")


def _torch(c: Context, function: Any, args: list[Value], kwargs: dict[str, Value], node: ast.AST, named: str) -> Value:
    bad = [value for value in (*args, *kwargs.values()) if isinstance(value, Closure | ModuleRef | Bound)]
    name = getattr(function, "__name__", str(function))
    if bad:
        return c.problem(f"{name} is given a function or module, which cannot be scripted", node,
                         "use trace for programs with functions given to torch")  # fmt: skip
    kinds = [value.type for value in args], {name: value.type for name, value in kwargs.items()}
    return c.make("call_function", function, args, function_result(function, *kinds), node, kwargs, named=named)


def _math(c: Context, function: Any, args: list[Value], kwargs: dict[str, Value], node: ast.AST, named: str) -> Value:
    if all(isinstance(arg, Const) for arg in args) and any(isinstance(arg, Const) and arg.fixed for arg in args):
        return _computed(c, function, args, kwargs, node)
    name = function.__name__
    kind: Type = INT if name in _MATH_INTS else type_of_constant(True) if name in _MATH_BOOLS else FLOAT
    if function.__module__ == "cmath":
        kind = {"phase": FLOAT, "polar": TupleType((FLOAT, FLOAT))}.get(name, kind if name in _MATH_BOOLS else COMPLEX)
    return c.make("call_function", function, args, kind, node, kwargs, named=named)


def _computed(c: Context, function: Any, args: list[Value], kwargs: dict[str, Value], node: ast.AST) -> Value:
    """The value of a call of constants, which is one, too."""
    if function in _WITH_EFFECTS or not is_plain([arg.value for arg in args]):  # type: ignore[attr-defined]
        return c.problem(f"{function.__qualname__} cannot be scripted", node, "mark a function around it by `ignore`")
    if not computes_only(function):
        why = f"{function.__qualname__} gives something else in another call, and cannot be scripted"
        return c.problem(why, node, "pass what it gives as an argument, or mark a function around it by `ignore`")
    try:
        value = function(*[arg.value for arg in args], **{name: arg.value for name, arg in kwargs.items()})  # type: ignore[attr-defined]
    except Exception as error:
        return c.problem(f"this raises {type(error).__name__}: {error}", node)
    return wrap(c, value, node)


_WITH_EFFECTS: frozenset[Any] = frozenset({eval, exec, open, input, compile, __import__, breakpoint, globals, locals})


def _constructed(
    c: Context, kind: type, args: list[Value], kwargs: dict[str, Value], node: ast.AST, named: str
) -> Value:
    """Make an object of a class."""
    if is_named_tuple(kind):
        fields = list(fields_of(kind))
        given = dict(zip(fields, args, strict=False)) | kwargs
        defaults = getattr(kind, "_field_defaults", {})
        items = [given.get(name) or (wrap(c, defaults[name], node) if name in defaults else None) for name in fields]
        if len(args) > len(fields) or set(kwargs) - set(fields) or any(item is None for item in items):
            return c.problem(f"{kind.__name__} takes {', '.join(fields)}", node, "give each of them")
        return Group(tuple([c.held(item, node) for item in items if item is not None]), kind)
    if issubclass(kind, nn.Module):
        return c.problem("a module is made while the program runs", node, "make it in __init__")
    if issubclass(kind, BaseException):
        return c.problem("an exception is made and not raised", node, "raise it where it is made")
    if kind.__module__.partition(".")[0] == "torch":
        return _torch(c, kind, args, kwargs, node, named)
    if _is_python(kind) and modifier_of(kind) != "ignore" and kind.__module__ != "builtins":
        c.attributes.run([kind.__init__])
        c.made.setdefault(kind, node)
        return c.make("call_function", kind, args, ObjectType(kind), node, kwargs, named=named)
    return c.problem(f"{kind.__name__} cannot be made in a scripted program", node)


def _is_python(kind: type) -> bool:
    """Tell whether a class is made in Python: on the heap, as some of C's are, and open to new attributes."""
    return bool(kind.__flags__ & 0x200) and not kind.__flags__ & 0x100


def spread(c: Context, given: Value, callee: Value, is_alone: bool, node: ast.expr) -> list[Value] | None:
    """What `*given` passes: its items where they are known, the whole to what takes a list of sizes, too."""
    if isinstance(given, Bad):
        return None
    if isinstance(given, Group):
        return list(given.items)
    if isinstance(given, Display):
        return [item for _, item in given.items]
    if isinstance(given, Const) and isinstance(given.value, list | tuple):
        return [wrap(c, item, node) for item in given.value]
    items = c.parts.module_items(c, given)
    if items is not None:
        return items
    if is_alone and takes_sizes(_name(callee)) and item_type(given.type) is INT:
        is_range = isinstance(given, Runtime) and given.node.target is range
        is_sequence = not is_range and not isinstance(given.type, IteratorType)
        return [given if is_sequence else c.function(tuple, (given,), ListType(INT), node)]
    is_parameter = isinstance(given, Runtime) and str(given.node.target).startswith("*")
    fix = "name the parameters" if is_parameter else "pass the list itself, or its items one by one"
    c.problem("`*` needs a tuple whose length is known", node, fix)
    return None


def sizes(c: Context, callee: Value, nodes: list[ast.expr]) -> Value | None:
    """Sizes that are passed as `*shape, n`, added up to one tuple; None for other arguments."""
    if len(nodes) < 2 or not any(isinstance(node, ast.Starred) for node in nodes) or not takes_sizes(_name(callee)):
        return None
    total: Value | None = None
    for node in nodes:
        value = c.expression(node.value if isinstance(node, ast.Starred) else node)
        if isinstance(node, ast.Starred) and not isinstance(value, Group):
            value = c.function(tuple, (value,), ListType(INT), node)
        elif not isinstance(node, ast.Starred):
            value = Group((value,))
        if total is None:
            total = value
        elif isinstance(total, Group) and isinstance(value, Group):
            total = Group((*total.items, *value.items))
        else:
            total = c.function(operator.add, (total, value), ListType(INT), node)
    return total


def _name(callee: Value) -> str:
    """The name of what is called."""
    name = callee.method if isinstance(callee, Bound) else getattr(getattr(callee, "value", None), "__name__", "")
    return str(name)
