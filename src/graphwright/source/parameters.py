"""Arguments that whoever they are handed to never looks at, as `dtype=` is that goes into an unused `**kwargs`."""

from __future__ import annotations

import ast
import builtins
import dis
import inspect
from collections.abc import Callable
from types import CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

import torch

from graphwright.source.code_table import by_code
from graphwright.source.function_parts import codes_of
from graphwright.source.uses import Place, Use, definition_around, expression_of, parameter_uses, stores_of

_UNKNOWN = object()
_LOOKS_AT_ALL = frozenset({"locals", "vars", "dir", "eval", "exec", "breakpoint", "_getframe", "currentframe", "stack"})


def ignores(function: Any, call: ast.Call, argument: Place) -> bool:
    """Tell whether a function never looks at an argument that a call of it hands it.

    >>> def double(x, **unused): return x * 2
    >>> call = ast.parse("double(x, dtype=dtype)").body[0].value
    >>> ignores(double, call, (1, 16)), ignores(double, call, (1, 7))
    (True, False)
    """
    inner = function.__func__ if isinstance(function, MethodType) else function
    if type(inner) is not FunctionType:
        return False
    name = _parameter(inner.__code__, call, argument, inner is not function)
    return name is not None and not any(_mentions(part, name) for part in codes_of(inner.__code__))


def uses_of_argument(function: Callable[..., Any], call: ast.Call, argument: Place) -> tuple[Use, ...]:
    """What a function does with an argument that a call of it hands it, all of it; nothing where that is not known."""
    inner = function.__func__ if isinstance(function, MethodType) else function
    code = inner.__code__ if type(inner) is FunctionType else None
    name = None if code is None else _parameter(code, call, argument, inner is not function)
    if code is None or name is None or any(map(looks_at_all, codes_of(code))):
        return ()
    uses = parameter_uses(code, code.co_firstlineno, name)
    return uses if all(use.may_wait for use in uses) else ()


def function_of_call(call: ast.Call, frame: FrameType) -> Any:
    """What a call of a running function calls, where the frame tells before it does: None where it does not.

    It tells by a variable that is given a value once, or by what modules and objects hold under a name.
    """
    function = _held(call.func, frame)
    return None if function is _UNKNOWN else function


def code_called_by(frame: FrameType) -> CodeType | None:
    """The code of the function or property whose result a frame waits for; None where that may keep its results."""
    found = expression_of(frame.f_code, frame.f_lasti)
    called = function_of_call(found, frame) if isinstance(found, ast.Call) else None
    if isinstance(found, ast.Attribute):
        owner = _owner(found.value, frame)
        read = None if owner is _UNKNOWN else inspect.getattr_static(type(owner), found.attr, None)
        called = read.fget if type(read) is property else None
    inner = called.__func__ if isinstance(called, MethodType) else called
    return inner.__code__ if type(inner) is FunctionType else None


def _owner(expression: ast.expr, frame: FrameType) -> Any:
    """What an expression stands for whose attribute is read: as `_held`, or a module that another one has."""
    value = _held(expression, frame)
    if value is not _UNKNOWN or not isinstance(expression, ast.Attribute):
        return value
    outer = _owner(expression.value, frame)
    return outer._modules.get(expression.attr, _UNKNOWN) if isinstance(outer, torch.nn.Module) else _UNKNOWN


def calls_the_same(call: ast.Call, frame: FrameType) -> bool:
    """Tell whether a call is of the same function each time: of a method that tensors have, or a name of the module."""
    if isinstance(call.func, ast.Attribute) and hasattr(torch.Tensor, call.func.attr):
        return True
    root = call.func
    while isinstance(root, ast.Attribute):
        root = root.value
    return isinstance(root, ast.Name) and not _is_local(root.id, frame.f_code)


def _is_local(name: str, code: CodeType) -> bool:
    return name in code.co_varnames or name in code.co_cellvars or name in code.co_freevars


def _held(expression: ast.expr, frame: FrameType) -> Any:
    """What a name, or a path of names, stands for in a frame; nothing of the program's is run to find out."""
    if isinstance(expression, ast.Name):
        return _variable(expression, frame)
    owner = _held(expression.value, frame) if isinstance(expression, ast.Attribute) else _UNKNOWN
    if owner is _UNKNOWN:
        return _UNKNOWN
    assert isinstance(expression, ast.Attribute)
    name = expression.attr
    if isinstance(owner, ModuleType):
        return vars(owner).get(name, _UNKNOWN)
    value = inspect.getattr_static(owner, name, _UNKNOWN)
    is_own = isinstance(owner, type) or name in getattr(owner, "__dict__", {})
    if isinstance(value, staticmethod):
        return value.__func__
    return MethodType(value, owner) if type(value) is FunctionType and not is_own else value


def _variable(variable: ast.Name, frame: FrameType) -> Any:
    code, name = frame.f_code, variable.id
    if not _is_local(name, code):
        return frame.f_globals.get(name, vars(builtins).get(name, _UNKNOWN))
    value = frame.f_locals.get(name, _UNKNOWN)
    if value is _UNKNOWN or isinstance(value, torch.Tensor):  # as most that methods are called of
        return _UNKNOWN
    definition = definition_around(code, variable.lineno)
    return value if definition is not None and stores_of(definition, name) in (0, 1) else _UNKNOWN


def _parameter(code: CodeType, call: ast.Call, argument: Place, is_bound: bool) -> str | None:
    """The parameter of a function that takes an argument of a call; None where the source does not tell."""
    count, names = code.co_argcount, code.co_varnames
    many = names[count + code.co_kwonlyargcount :]
    rest = many[0] if code.co_flags & inspect.CO_VARARGS else None
    others = many[1 if rest else 0] if code.co_flags & inspect.CO_VARKEYWORDS else None
    for given in call.keywords:
        if (given.value.lineno, given.value.col_offset) == argument and given.arg is not None:
            known = names[code.co_posonlyargcount : count + code.co_kwonlyargcount]
            return given.arg if given.arg in known else others
    for index, value in enumerate(call.args):
        if isinstance(value, ast.Starred):
            return None
        if (value.lineno, value.col_offset) == argument:
            index += is_bound
            return names[index] if index < count else rest
    return None


def argument_for(code: CodeType, call: ast.Call, name: str, is_bound: bool) -> ast.expr | None:
    """The argument of a call that a function takes by a parameter; `is_bound`: as a method of an object."""
    given = [*call.args, *[keyword.value for keyword in call.keywords]]
    return next((each for each in given if _parameter(code, call, _place(each), is_bound) == name), None)


def _place(expression: ast.expr) -> Place:
    return expression.lineno, expression.col_offset


def looks_at_all(code: CodeType) -> bool:
    """Tell whether code may look at all of its variables, by `locals()` and its like."""
    return not _LOOKS_AT_ALL.isdisjoint(code.co_names)


def _mentions(code: CodeType, name: str) -> bool:
    """Tell whether code uses a variable, or all of them."""
    if name in code.co_freevars or name in code.co_cellvars or looks_at_all(code):
        return True
    return name in _used(code)


@by_code
def _used(code: CodeType) -> frozenset[str]:
    """The variables that code uses, of its own."""
    steps = [step.argval for step in dis.get_instructions(code) if "FAST" in step.opname]
    return frozenset(name for step in steps for name in (step if type(step) is tuple else (step,)))
