"""Comprehensions that bind variables of the function around them, written as the loops that they are.

ys = [y for row in x if (y := f(row)) > 0]   ->   ys = []
                                                  for row in x:
                                                      if (y := f(row)) > 0:
                                                          ys.append(y)

So is one inside of an expression: `return n + sum([y for row in x if (y := f(row)) > 0])` computes `n` first.
"""

from __future__ import annotations

import ast
import collections
import copy
from collections.abc import Sequence
from typing import Any

from graphwright.source.lowering_exits import HIDDEN
from graphwright.source.syntax import COMPREHENSIONS, SCOPES, holds, placed, walk
from graphwright.source.variables import names_counted

# What goes over all that a generator gives, so that a list does as well.
TAKES_ALL = frozenset({"sum", "max", "min", "list", "sorted", "stack", "cat"})


def as_loop(statement: ast.stmt, number: int, uses: collections.Counter[str]) -> list[ast.stmt] | None:
    """The statements in place of one that computes such a list first, the function's `number`-th; else None.

    `uses` counts the names of the function; those that are new are added.
    """
    if not isinstance(statement, ast.Assign | ast.Return | ast.Expr | ast.AugAssign) or statement.value is None:
        return None
    own = statement.target if isinstance(statement, ast.AugAssign) else None
    if own is not None and not isinstance(own, ast.Name):
        return None
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    name = f"{target.id if isinstance(target, ast.Name) else 'items'}{HIDDEN}{number}"
    search = _Search(name)
    last = copy.copy(statement)
    last.value = search.without(statement.value)
    if search.found is None:
        return None
    bound = {part.target.id for part in walk(search.found) if isinstance(part, ast.NamedExpr)}
    if own is not None and own.id in bound:
        return None
    loop = _loop(search.found, name, number)
    made = placed(ast.Assign([ast.Name(name, ast.Store())], ast.List([], ast.Load())), search.found)
    uses.update(names_counted(ast.Module([*search.before, made, loop], [])))
    uses.update([name, *[first.targets[0].id for first in search.before]])  # type: ignore[attr-defined]
    return [*search.before, made, loop, last]


def loop_of(generators: Sequence[ast.comprehension], each: Sequence[ast.stmt], place: ast.AST) -> ast.For:
    """The loops that a comprehension is, around the statements for each item.

    [... for row in x if row.sum() > 0 for y in row]    ->    for row in x:
                                                                  if row.sum() > 0:
                                                                      for y in row:
                                                                          ...
    """
    inner = [*each]
    for generator in reversed(generators):
        for test in reversed(generator.ifs):
            inner = [ast.If(test, inner, [])]
        inner = [ast.For(generator.target, generator.iter, inner, [])]
    made: ast.For = placed(inner[0], place)
    return made


class _Search:
    """Finds the first such list in an expression, and puts variables in the place of it and of what precedes it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.found: ast.ListComp | ast.GeneratorExp | None = None
        self.before: list[ast.Assign] = []  # what the expression computes before the list

    def without(self, value: ast.expr) -> ast.expr:
        """The expression with variables; as it is where there is no such list in it."""
        if isinstance(value, ast.ListComp):
            return self._taken(value) if _can_be_loop(value) else value
        if _takes_all(value) and _can_be_loop(value.args[0]):  # type: ignore[attr-defined]
            return _with(value, {("args", 0): self._taken(value.args[0])})  # type: ignore[attr-defined]
        earlier: list[tuple[str, int | None]] = []
        for place in _in_order(value):
            part = _part(value, place)
            inner = self.without(part)
            if self.found is not None:
                changed = {other: self._computed(_part(value, other)) for other in reversed(earlier)}
                return _with(value, {**changed, place: inner})
            if not isinstance(part, ast.Constant) and place[0] != "func":
                earlier.append(place)
        return value

    def _taken(self, listed: Any) -> ast.expr:
        self.found = listed
        return placed(ast.Name(self._name, ast.Load()), listed)  # type: ignore[no-any-return]

    def _computed(self, value: ast.expr) -> ast.expr:
        name = f"first{len(self.before)}{self._name}"
        self.before.insert(0, placed(ast.Assign([ast.Name(name, ast.Store())], value), value))
        return placed(ast.Name(name, ast.Load()), value)  # type: ignore[no-any-return]


_FIELDS = {
    ast.Call: ("func", "args"), ast.BinOp: ("left", "right"), ast.UnaryOp: ("operand",), ast.Attribute: ("value",),
    ast.Subscript: ("value", "slice"), ast.Tuple: ("elts",), ast.List: ("elts",), ast.Compare: ("left",),
}  # fmt: skip


def _in_order(value: ast.expr) -> list[tuple[str, int | None]]:
    """The parts that an expression computes in any case, in that order: by field, and place in it."""
    places: list[tuple[str, int | None]] = []
    for field in _FIELDS.get(type(value), ()):
        parts = getattr(value, field)
        places += [(field, i) for i in range(len(parts))] if isinstance(parts, list) else [(field, None)]
    return places


def _part(value: ast.expr, place: tuple[str, int | None]) -> Any:
    field, i = place
    return getattr(value, field) if i is None else getattr(value, field)[i]


def _with(value: ast.expr, changed: dict[tuple[str, int | None], ast.expr]) -> ast.expr:
    """A copy of an expression with other parts."""
    made = copy.copy(value)
    for (field, i), part in changed.items():
        if i is None:
            setattr(made, field, part)
        else:
            setattr(made, field, [*getattr(made, field)])
            getattr(made, field)[i] = part
    return made


def _takes_all(value: ast.expr) -> bool:
    """Tell whether an expression is a call that goes over all that a generator gives, so that a list does as well."""
    is_one = isinstance(value, ast.Call) and len(value.args) == 1 and isinstance(value.args[0], ast.GeneratorExp)
    return is_one and isinstance(value.func, ast.Name) and value.func.id in TAKES_ALL  # type: ignore[attr-defined]


def _can_be_loop(listed: ast.ListComp | ast.GeneratorExp) -> bool:
    """Tell whether a comprehension binds variables of the function around it, and can be a statement."""
    if not _binds(listed) or any(generator.is_async for generator in listed.generators):
        return False
    parts = [listed.elt, *[part for loop in listed.generators for part in (loop.target, loop.iter, *loop.ifs)]]
    return not holds(parts, *SCOPES, *COMPREHENSIONS, ast.Yield, ast.YieldFrom, ast.Await)


def _binds(listed: ast.ListComp | ast.GeneratorExp) -> bool:
    """Tell whether a comprehension binds what a function of an item could not: `:=`, or `a, *rest`."""
    return holds([listed], ast.NamedExpr) or any(holds([loop.target], ast.Starred) for loop in listed.generators)


def _loop(listed: ast.ListComp | ast.GeneratorExp, name: str, number: int) -> ast.For:
    """The loop that fills a list of this name; the comprehension's own variables get names that no other has."""
    append = ast.Attribute(ast.Name(name, ast.Load()), "append", ast.Load())
    own = {node.id for loop in listed.generators for node in walk(loop.target) if isinstance(node, ast.Name)}
    first = listed.generators[0].iter
    inner = loop_of(listed.generators, [ast.Expr(ast.Call(append, [listed.elt], []))], listed)
    outermost = [*walk(first)]
    for node in walk(inner):
        if isinstance(node, ast.Name) and node.id in own and not any(node is other for other in outermost):
            node.id = f"{node.id}{HIDDEN}{number}"
    return inner
