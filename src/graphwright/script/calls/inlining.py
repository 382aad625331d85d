"""Calls of Python functions: compiled in place, each with the variables of its own."""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Mapping
from types import FunctionType
from typing import TYPE_CHECKING, Any

from graphwright.ops import exit_context, raise_error
from graphwright.script.annotations import type_from_annotation
from graphwright.script.expressions.held_values import wrap
from graphwright.script.program.frames import Closure, Code, Frame, Scope, code_of
from graphwright.script.program.values import (
    BAD,
    Bad,
    Const,
    Display,
    Group,
    ModuleRef,
    Runtime,
    Value,
    constant,
)
from graphwright.script.statements.merging import NEXT
from graphwright.script.statements.with_statements import enter_known
from graphwright.script.types import ANY, NONE, Type, accepts, join, optional, resolved
from graphwright.source import held_by, walk_all, why_no_definition

if TYPE_CHECKING:
    from graphwright.script.program.context import Context

_MOST_CALLS = 24  # of one function inside itself
_MOST_RECURSIONS = 1_000  # calls of functions inside themselves, in one program
_MARK = "_graphwright_script"


def modifier_of(function: Any) -> str:
    """How a function is marked: "ignore", "unused", "export", or "" where it is not. torch.jit's own marks count."""
    function = function.__func__ if inspect.ismethod(function) else function
    mark = getattr(function, _MARK, None) or getattr(function, "_torchscript_modifier", None)
    text = "" if mark is None else str(getattr(mark, "value", mark))
    return next((known for known in ("ignore", "unused", "export") if text.startswith(known)), "")


def inline(
    c: Context,
    function: FunctionType,
    args: list[Value],
    kwargs: dict[str, Value],
    node: ast.AST,
    scope: Scope | None = None,
    named: str = "",
) -> Value:
    """Compile the call of a function in place."""
    mark = modifier_of(function)
    if mark in ("ignore", "unused"):
        return _marked(c, mark, function, args, kwargs, node, named)
    context = _torch_context(function)
    if context is not None:
        return _in_context(c, context, function, args, kwargs, node, scope)
    if _is_cache(function):
        return inline(c, function.__wrapped__, args, kwargs, node, scope, named)  # type: ignore[attr-defined]
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        return c.problem(f"{function.__qualname__} is a coroutine", node, "write an ordinary function")
    code = code_of(function)
    if code is None:
        return c.problem(why_no_definition(function), node, "mark it by `ignore`, to call it as it is")
    c.surroundings.take_code(function)
    defaults = _defaults(c, function, code, node)
    return _call(c, code, defaults, args, kwargs, node, scope, None, function)


def inline_closure(c: Context, closure: Closure, args: list[Value], kwargs: dict[str, Value], node: ast.AST) -> Value:
    """Compile the call of a function that is defined inside another one, or of a lambda."""
    around = closure.frame
    code = c.code_of_closure(closure)
    return _call(c, code, closure.defaults, args, kwargs, node, around.scope, around, None)


def _call(
    c: Context,
    code: Code,
    defaults: Mapping[str, Value],
    args: list[Value],
    kwargs: dict[str, Value],
    node: ast.AST,
    scope: Scope | None,
    defined_in: Frame | None,
    function: FunctionType | None,
) -> Value:
    if any(isinstance(part, ast.Yield | ast.YieldFrom | ast.Await) for part in walk_all(code.body)):
        return c.problem(f"{code.qualname} is a generator or a coroutine", node, "append to a list and return it")
    inside = sum(frame.code.definition is code.definition for frame in c.frame.calls())
    c.recursions += inside > 0
    if inside >= _MOST_CALLS or c.recursions > _MOST_RECURSIONS:
        return c.problem(f"{code.qualname} calls itself without an end that is known", node, "write a loop")
    if inside and c.problems:
        return BAD  # that it has no end may follow from what is missing: its problems are said already
    bound = _bind(c, code, defaults, args, kwargs, node)
    if bound is None:
        return BAD
    caller = c.frame
    frame = Frame(code, scope or caller.scope, caller, defined_in)
    for name, value in bound.items():
        wanted = declared_type(function, code, name)
        if wanted is not None and not accepts(wanted, value.type) and not isinstance(value, Bad | ModuleRef):
            c.problem(
                f"{code.qualname} takes {name!r} as {wanted}, and is given {value.type}", node, "change one of the two"
            )
            value = BAD
        if wanted is not None and isinstance(value, Runtime) and resolved(value.kind) is ANY:
            value = Runtime(value.node, wanted)
        is_words = code.definition.args.kwarg is not None and name == code.definition.args.kwarg.arg
        frame.names[name] = value if is_words else c.held(value, node)
    frame.returns = declared_type(function, code, "return")
    c.frame = frame
    try:
        kinds = c.parts.block(c, code.body)
    finally:
        c.frame = caller
    return _result(frame, kinds)


def _result(frame: Frame, kinds: frozenset[str]) -> Value:
    """What a function gives, which returns in one of these ways."""
    if kinds == {"raise"}:
        return Const(None, ANY, True)
    result = frame.names.get("$result") if "return" in kinds else None
    if result is None:
        return constant(None, fixed=kinds <= NEXT)
    if "next" in kinds and isinstance(result, Runtime):
        return Runtime(result.node, join(result.kind, NONE) or optional(result.kind))
    return result


def declared_type(function: FunctionType | None, code: Code, name: str) -> Type | None:
    """The type that a parameter, or "return", is annotated with; None without an annotation that says one."""
    starred = (code.definition.args.vararg, code.definition.args.kwarg)
    annotation = None if any(arg is not None and arg.arg == name for arg in starred) else code.annotation(name)
    if annotation is None:
        return None
    value = None if function is None else function.__annotations__.get(name)
    try:
        if value is None or isinstance(value, str):
            value = code.outside.evaluate(annotation)
        return type_from_annotation(value)
    except Exception:  # the entry point says so; in others, what is passed tells
        return None


def _defaults(c: Context, function: FunctionType, code: Code, node: ast.AST) -> dict[str, Value]:
    args = code.definition.args
    places = [*args.posonlyargs, *args.args]
    values = function.__defaults__ or ()
    found = {
        arg.arg: wrap(c, value, node, arg.arg)
        for arg, value in zip(places[len(places) - len(values) :], values, strict=True)
    }
    found.update({name: wrap(c, value, node, name) for name, value in (function.__kwdefaults__ or {}).items()})
    return found


def _bind(
    c: Context, code: Code, defaults: Mapping[str, Value], args: list[Value], kwargs: dict[str, Value], node: ast.AST
) -> dict[str, Value] | None:
    """Give each parameter its value; None, with a problem noted, where the arguments do not fit."""
    parameters = code.definition.args
    places = [arg.arg for arg in (*parameters.posonlyargs, *parameters.args)]
    names = [*places, *[arg.arg for arg in parameters.kwonlyargs]]
    bound = dict(zip(places, args, strict=False))
    rest = args[len(places) :]
    more = {name: value for name, value in kwargs.items() if name not in names or name in bound}
    if rest and parameters.vararg is None:
        c.problem(f"{code.qualname} takes {len(places)} arguments, and is given {len(args)}", node, _signature(names))
        return None
    twice = [name for name in more if name in bound]
    if (more and parameters.kwarg is None) or twice:
        message = f"{code.qualname} does not take {', '.join(map(repr, twice or more))} here"
        c.problem(message, node, _signature(names))
        return None
    bound.update({name: value for name, value in kwargs.items() if name not in more})
    missing = [name for name in names if name not in bound and name not in defaults]
    if missing:
        c.problem(f"{code.qualname} needs {', '.join(map(repr, missing))}", node, _signature(names))
        return None
    result = {name: bound.get(name, defaults.get(name, BAD)) for name in names}
    if parameters.vararg is not None:
        result[parameters.vararg.arg] = Group(tuple(rest))
    if parameters.kwarg is not None:
        pairs = [(constant(name), value) for name, value in more.items()]
        result[parameters.kwarg.arg] = Display(tuple(pairs), True)
    return result


def _signature(names: list[str]) -> str:
    return f"it takes {', '.join(names)}" if names else "it takes nothing"


# ---- functions that are not compiled as they stand


def _marked(
    c: Context,
    mark: str,
    function: FunctionType,
    args: list[Value],
    kwargs: dict[str, Value],
    node: ast.AST,
    named: str,
) -> Value:
    """A function that stays a call of Python's, or raises when it is called."""
    c.attributes.run([function])
    declared = function.__annotations__.get("return")
    kind = type_from_annotation(declared) if declared is not None and not isinstance(declared, str) else None
    if mark == "unused":
        text = f"{function.__qualname__} is marked as unused: it was not scripted"
        c.function(raise_error, (RuntimeError, constant(text)), NONE, node)
        return Const(None, kind or ANY, False)
    if args and isinstance(args[0], ModuleRef):
        owner, name = args[0], function.__name__
        if getattr(type(owner.module), name, None) is not function:
            what = f"{function.__qualname__} is marked by `{mark}`, and not what its class has as {name!r}"
            return c.problem(what, node, "give it to the class, under a name of its own")
        method = c.make("get_attr", c.path_of(owner, name), (), ANY, node, name=name)
        return c.make("call_method", "__call__", (method, *args[1:]), kind or ANY, node, kwargs, named=named)
    return c.make("call_function", function, args, kind or ANY, node, kwargs, named=named)


def _torch_context(function: FunctionType) -> Any:
    """The context in which a decorated function runs: that of `@torch.no_grad()` and its like."""
    wrapped = getattr(function, "__wrapped__", None)
    if wrapped is None or not function.__code__.co_filename.endswith("_contextlib.py"):
        return None
    factory = held_by(function).get("ctx_factory")
    return None if factory is None else factory()


def _in_context(
    c: Context,
    context: Any,
    function: Any,
    args: list[Value],
    kwargs: dict[str, Value],
    node: ast.AST,
    scope: Scope | None,
) -> Value:
    kind = type(context)
    options: tuple[Any, ...] = ()
    if hasattr(context, "mode"):
        options = (context.mode,)
    entered = enter_known(c, kind, options, {}, node)
    result = inline(c, function.__wrapped__, args, kwargs, node, scope)
    c.function(exit_context, (entered,), NONE, node)
    return result


def _is_cache(function: Any) -> bool:
    return isinstance(function, functools._lru_cache_wrapper)
