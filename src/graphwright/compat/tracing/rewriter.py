"""Symbolic tracing of programs whose assert statements, and types of variables, become part of the graph."""

from __future__ import annotations

import ast
import builtins
import copy
import functools
from collections.abc import Callable
from types import CellType, FunctionType
from typing import Any

from graphwright.capture import Proxy, Tracer
from graphwright.compat.tracing.annotate import annotate
from graphwright.source import definition_of

__all__ = ["RewritingTracer"]


class RewritingTracer(Tracer):
    """A Tracer that runs rewritten copies of the program's functions: asserts and types of variables are recorded.

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
    """The function with its asserts and annotated values as calls; itself where there are none, or no source."""
    found = definition_of(function.__code__)
    kinds = (ast.Assert, ast.AnnAssign)
    if not isinstance(found, ast.FunctionDef) or not any(isinstance(node, kinds) for node in ast.walk(found)):
        return function
    definition = copy.deepcopy(found)
    definition.decorator_list = []
    free = function.__code__.co_freevars
    known = {*free, *function.__globals__, *vars(builtins)}
    _Statements(known).visit(definition)
    definition.args.defaults, definition.args.kw_defaults = [], [None] * len(definition.args.kwonlyargs)
    outer = ast.parse("def outer():\n    pass").body[0]
    assert isinstance(outer, ast.FunctionDef)
    outer.args.args = [ast.arg(name) for name in (*free, _ANNOTATED)]
    outer.body = [definition]
    module = ast.fix_missing_locations(ast.Module([outer], []))
    outer_code = compile(module, function.__code__.co_filename, "exec").co_consts[0]
    code = next(value for value in outer_code.co_consts if getattr(value, "co_name", None) == function.__name__)
    cells = dict(zip(free, function.__closure__ or (), strict=True)) | {_ANNOTATED: CellType(_annotated)}
    closure = tuple(cells[name] for name in code.co_freevars)
    made = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, closure)
    made.__kwdefaults__ = copy.copy(function.__kwdefaults__)
    made.__annotations__ = function.__annotations__
    made.__qualname__ = function.__qualname__
    return made


_ANNOTATED = "_gw_annotated"


def _annotated(value: Any, kind: Any) -> Any:
    """A value that the program declares a type of; one that has a type keeps it."""
    return annotate(value, kind) if isinstance(value, Proxy) and value.node.type is None else value


class _Statements(ast.NodeTransformer):
    """Writes `assert` statements, and the types of annotated variables, as calls."""

    def __init__(self, known: set[str]) -> None:
        self._known = known  # the names that mean something to the function

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        call = ast.parse('__import__("torch")._assert()').body[0]
        assert isinstance(call, ast.Expr) and isinstance(call.value, ast.Call)
        call.value.args = [node.test, node.msg or ast.Constant("")]
        for inner in ast.walk(call):
            if not hasattr(inner, "lineno") or inner in (call, call.value, call.value.func):
                ast.copy_location(inner, node)
        return call

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        names = {part.id for part in ast.walk(node.annotation) if isinstance(part, ast.Name)}
        if node.value is None or not node.simple or not names <= self._known:
            return node
        call = ast.Call(ast.Name(_ANNOTATED, ast.Load()), [node.value, node.annotation], [])
        return ast.copy_location(ast.Assign([node.target], ast.copy_location(call, node.value)), node)
