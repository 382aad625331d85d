"""Generator functions whose values are gathered at once, by `sum(f(x))` or `list(f(x))`, as functions that do so.

def rows(x):                        def rows(x, *, gathered):
    for row in x:                       for row in x:
        if row.sum() > 0:     ->            if row.sum() > 0:
            yield row                           gathered.append(row)
                                        return gathered
"""

from __future__ import annotations

import ast
import inspect
from types import CodeType
from typing import Any

from graphwright.source import (
    HIDDEN,
    SCOPES,
    Definition,
    all_placed,
    copied_tree,
    definition_of,
    placed,
    walk,
    walk_own,
)

GATHERERS = frozenset({"sum", "list", "tuple"})
GATHERED = f"gathered{HIDDEN}"  # the name of its further parameter: the list that it fills


def is_generator(code: CodeType) -> bool:
    """Tell whether calling a function of this code makes a generator."""
    return bool(code.co_flags & inspect.CO_GENERATOR)


def gathers(code: CodeType, name: str) -> bool:
    """Tell whether a function gathers what one of this name gives: `sum(name(x))`; or gives that: `yield from`."""
    definition = definition_of(code) if name in (*code.co_names, *code.co_varnames, *code.co_freevars) else None
    return definition is not None and any(_name_of(_gathered(part)) == name for part in walk(definition))


def gathered_call(node: ast.AST) -> ast.Call | None:
    """The call in `sum(f(x))`; None for other nodes."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id not in GATHERERS:
        return None
    is_one = len(node.args) == 1 and not node.keywords and isinstance(node.args[0], ast.Call)
    return node.args[0] if is_one else None  # type: ignore[return-value]


def _gathered(node: ast.AST) -> ast.expr | None:
    return node.value if isinstance(node, ast.YieldFrom) else gathered_call(node)


def _name_of(call: ast.expr | None) -> str:
    function = getattr(call, "func", None)
    return getattr(function, "id", getattr(function, "attr", ""))


def as_gathering(definition: Definition) -> Any:
    """The definition of a generator function as one of a function that gathers; None where `yield` has a value."""
    if not isinstance(definition, ast.FunctionDef):
        return None
    made = copied_tree(definition)
    yields = sum(isinstance(node, ast.Yield | ast.YieldFrom) for node in walk_own(made))
    lowered = _Gathering()
    made.body = [*map(lowered.visit, made.body), placed(_result(), made.body[-1])]
    if lowered.count != yields or lowered.returns_values:
        return None
    made.args.kwonlyargs.append(ast.arg(GATHERED))
    made.args.kw_defaults.append(None)
    return all_placed(made)


def _result() -> ast.Return:
    return ast.Return(ast.Name(GATHERED, ast.Load()))


class _Gathering(ast.NodeTransformer):
    """Puts additions to the list in place of statements that yield."""

    def __init__(self) -> None:
        self.count = 0
        self.returns_values = False

    def visit(self, node: ast.AST) -> Any:
        return node if isinstance(node, SCOPES) else super().visit(node)

    def visit_Expr(self, node: ast.Expr) -> Any:
        if isinstance(node.value, ast.Yield):
            self.count += 1
            return self._taken(node.value.value or ast.Constant(None), node)
        if isinstance(node.value, ast.YieldFrom):
            self.count += 1
            item = f"item{HIDDEN}{self.count}"
            body = [self._taken(ast.Name(item, ast.Load()), node)]
            every = ast.Call(ast.Name("list", ast.Load()), [node.value.value], [])
            return placed(ast.For(ast.Name(item, ast.Store()), every, body, []), node)
        return node

    def visit_Return(self, node: ast.Return) -> Any:
        self.returns_values |= node.value is not None
        return placed(_result(), node)

    def _taken(self, value: ast.expr, node: ast.AST) -> Any:
        append = ast.Attribute(ast.Name(GATHERED, ast.Load()), "append", ast.Load())
        return placed(ast.Expr(ast.Call(append, [value], [])), node)
