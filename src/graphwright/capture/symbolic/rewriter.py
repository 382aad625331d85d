"""Symbolic tracing of programs whose assert statements become calls of `torch._assert`, and so stay in the graph."""

from __future__ import annotations

import ast
import copy
import functools
import inspect
import textwrap
from collections.abc import Callable
from types import FunctionType
from typing import Any

from graphwright.capture.symbolic.tracer import Tracer

__all__ = ["RewritingTracer"]


class RewritingTracer(Tracer):
    """A Tracer that runs rewritten copies of the program's functions: their asserts are recorded.

    The program itself stays as it is. Functions without source, and what the program's functions call, are not
    rewritten.

    >>> from torch import nn
    >>> class Checked(nn.Module):
    ...     def forward(self, x):
    ...         assert x.sum() > 0, "not positive"
    ...         return x
    >>> [node.name for node in RewritingTracer().trace(Checked()).nodes]  # doctest: +SKIP
    ['x', 'sum_1', 'gt', '_assert', 'output']
    """

    def _converted(self, function: Callable[..., Any]) -> Any:
        return _rewritten(function) if isinstance(function, FunctionType) else function


@functools.lru_cache(256)
def _rewritten(function: FunctionType) -> FunctionType:
    """The function with its asserts as calls; itself where there are none, or no source."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, SyntaxError, TypeError):
        return function
    definition = tree.body[0]
    if not isinstance(definition, ast.FunctionDef) or not any(isinstance(n, ast.Assert) for n in ast.walk(definition)):
        return function
    definition.decorator_list = []
    _Asserts().visit(definition)
    free = function.__code__.co_freevars
    definition.args.defaults, definition.args.kw_defaults = [], [None] * len(definition.args.kwonlyargs)
    outer = ast.parse("def outer():\n    pass").body[0]
    assert isinstance(outer, ast.FunctionDef)
    outer.args.args = [ast.arg(name) for name in free]
    outer.body = [definition]
    ast.increment_lineno(outer, function.__code__.co_firstlineno - 1)
    module = ast.fix_missing_locations(ast.Module([outer], []))
    outer_code = compile(module, function.__code__.co_filename, "exec").co_consts[0]
    code = next(value for value in outer_code.co_consts if getattr(value, "co_name", None) == function.__name__)
    cells = dict(zip(free, function.__closure__ or (), strict=True))
    closure = tuple(cells[name] for name in code.co_freevars)
    made = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, closure)
    made.__kwdefaults__ = copy.copy(function.__kwdefaults__)
    made.__annotations__ = function.__annotations__
    made.__qualname__ = function.__qualname__
    return made


class _Asserts(ast.NodeTransformer):
    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        call = ast.parse('__import__("torch")._assert()').body[0]
        assert isinstance(call, ast.Expr) and isinstance(call.value, ast.Call)
        call.value.args = [node.test, node.msg or ast.Constant("")]
        for inner in ast.walk(call):
            if not hasattr(inner, "lineno") or inner in (call, call.value, call.value.func):
                ast.copy_location(inner, node)
        return call
