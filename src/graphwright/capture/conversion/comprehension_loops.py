"""Comprehensions that bind variables of the function around them, written as the loops that they are.

ys = [y for row in x if (y := f(row)) > 0]   ->   ys = []
                                                  for row in x:
                                                      if (y := f(row)) > 0:
                                                          ys.append(y)
"""

from __future__ import annotations

import ast
import collections
import copy

from graphwright.capture.conversion.loop_statements import HIDDEN, uses_of
from graphwright.capture.source.syntax import COMPREHENSIONS, SCOPES, holds, placed

__all__ = ["as_loop"]


def as_loop(statement: ast.stmt, number: int, uses: collections.Counter[str]) -> list[ast.stmt] | None:
    """The statements in place of one that assigns or returns such a list, the function's `number`-th; else None.

    `uses` counts the names of the function; those that are new are added.
    """
    if not isinstance(statement, ast.Assign | ast.Return) or not isinstance(statement.value, ast.ListComp):
        return None
    listed = statement.value
    if not _binds(listed) or any(generator.is_async for generator in listed.generators):
        return None
    parts = [listed.elt, *[part for loop in listed.generators for part in (loop.target, loop.iter, *loop.ifs)]]
    if holds(parts, *SCOPES, *COMPREHENSIONS, ast.Yield, ast.YieldFrom, ast.Await):
        return None
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    name = f"{target.id if isinstance(target, ast.Name) else 'items'}{HIDDEN}{number}"
    loop = _loop(listed, name, number)
    made = placed(ast.Assign([ast.Name(name, ast.Store())], ast.List([], ast.Load())), listed)
    uses.update(uses_of(ast.Module([made, loop], [])))
    last = copy.copy(statement)
    last.value = placed(ast.Name(name, ast.Load()), listed)
    uses[name] += 1
    return [made, loop, last]


def _binds(listed: ast.ListComp) -> bool:
    """Tell whether a comprehension binds what a function of an item could not: `:=`, or `a, *rest`."""
    return holds([listed], ast.NamedExpr) or any(holds([loop.target], ast.Starred) for loop in listed.generators)


def _loop(listed: ast.ListComp, name: str, number: int) -> ast.For:
    """The loop that fills a list of this name; the comprehension's own variables get names that no other has."""
    append = ast.Attribute(ast.Name(name, ast.Load()), "append", ast.Load())
    inner: ast.stmt = ast.Expr(ast.Call(append, [listed.elt], []))
    own = {node.id for loop in listed.generators for node in ast.walk(loop.target) if isinstance(node, ast.Name)}
    first = listed.generators[0].iter
    for generator in reversed(listed.generators):
        for test in reversed(generator.ifs):
            inner = ast.If(test, [inner], [])
        inner = ast.For(generator.target, generator.iter, [inner], [])
    assert isinstance(inner, ast.For)
    outermost = [*ast.walk(first)]
    for node in ast.walk(inner):
        if isinstance(node, ast.Name) and node.id in own and not any(node is other for other in outermost):
            node.id = f"{node.id}{HIDDEN}{number}"
    made: ast.For = placed(inner, listed)
    return made
