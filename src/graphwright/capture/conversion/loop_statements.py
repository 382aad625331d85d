"""Loops as functions of one iteration, which say by their value whether the loop ends there.

    for row in x:                              def body(item):
        if row.sum() < 0:                          row = item
            break                       ->         if row.sum() < 0:
        total = total + row                            return True
                                                   total = total + row
                                                   return False
                                               runtime.each(x, body)

What a `return` inside a loop gives is kept in a variable, and returned after the loop; so is whether the loop was left
by a `break`, where the loop has an `else`.
"""

from __future__ import annotations

import ast
import collections
import dataclasses
from collections.abc import Iterable
from typing import Any

from graphwright.source import (
    COMPREHENSIONS,
    PREFIX,
    RUNTIME_MARK,
    SCOPES,
    assigned,
    falls_through,
    holds,
    may_wait,
    placed,
    walk_all,
)

__all__ = [
    "HIDDEN",
    "ITEM",
    "RETURNS",
    "Lowered",
    "bound_in_loops",
    "exit_signal",
    "exiting",
    "lower",
    "private_to",
    "uses_of",
]

ITEM = f"{PREFIX}item"  # the parameter of a body
HIDDEN = "__gw"  # ends the names of variables that conversion makes, before a number
RETURNS = _RETURNED, _RESULT = f"returned{HIDDEN}", f"result{HIDDEN}"  # what a `return` in a loop assigns


@dataclasses.dataclass
class Lowered:
    """A loop: statements before it, the body of its function, whether that gives a signal, statements after it."""

    before: list[ast.stmt]
    body: list[ast.stmt]
    signals: bool
    broken: str  # the variable that says whether it was left by `break` or `return`, if anything asks
    after: list[ast.stmt]
    test: ast.expr | None = None  # of a `while`


def lower(loop: ast.For | ast.While, number: int) -> Lowered | None:
    """Lower a loop, the function's `number`-th; None where it must stay as it is."""
    body, test = [*loop.body], None
    if isinstance(loop, ast.While):
        test = loop.test
        if not may_wait(test):  # it binds variables of the body
            if loop.orelse:
                return None
            leave = ast.If(ast.UnaryOp(ast.Not(), test), [ast.Break()], [])
            body.insert(0, placed(leave, test))
            test = placed(ast.Constant(True), test)
    else:
        body.insert(0, placed(ast.Assign([loop.target], ast.Name(ITEM, ast.Load())), loop.target))
    returns = holds(loop.body, ast.Return)
    lowered = _signalled(body)
    signals = any(map(_is_signal, walk_all(lowered)))
    if signals and falls_through(lowered):
        lowered.append(_signal(False, loop.body[-1]))
    before: list[ast.stmt] = []
    after: list[ast.stmt] = []
    is_inner = getattr(loop, "is_inner", False)
    if returns and not is_inner:
        unset = ast.Attribute(ast.Constant(RUNTIME_MARK), "UNSET", ast.Load())
        before = [_assign(_RETURNED, ast.Constant(False), loop), _assign(_RESULT, unset, loop)]
        leave = ast.If(ast.Name(_RETURNED, ast.Load()), [ast.Return(ast.Name(_RESULT, ast.Load()))], [])
        after.append(placed(leave, loop))
    broken = ""
    if loop.orelse:
        broken = f"broken{HIDDEN}{number}"
        test_broken = ast.UnaryOp(ast.Not(), ast.Name(broken, ast.Load()))
        after.append(placed(ast.If(test_broken, loop.orelse, []), loop))
    return Lowered(before, lowered, signals, broken, after, test)


def private_to(loop: ast.AST, uses: collections.Counter[str]) -> set[str]:
    """The names that a loop uses and nothing around it does, given how often the function uses each."""
    own = uses_of(loop)
    return {name for name, count in own.items() if uses[name] == count}


def bound_in_loops(definition: ast.FunctionDef, uses: collections.Counter[str]) -> set[str]:
    """The variables that loops give their first value, and that the function reads around these, too."""
    parameters = {arg.arg for arg in ast.walk(definition.args) if isinstance(arg, ast.arg)}
    found: set[str] = set()
    known = set(parameters)

    def walk(node: ast.AST, is_inside: bool) -> None:
        if isinstance(node, ast.For | ast.While):
            found.update(assigned([node]).keys() - known - private_to(node, uses))
            is_inside = True
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and not is_inside:
            known.add(node.id)
        if not isinstance(node, SCOPES):
            for child in ast.iter_child_nodes(node):
                walk(child, is_inside)

    for statement in definition.body:
        walk(statement, False)
    return found


def uses_of(tree: ast.AST) -> collections.Counter[str]:
    """How often each variable is named; comprehensions and functions inside have their own."""
    found: collections.Counter[str] = collections.Counter()

    def walk(node: ast.AST, hidden: frozenset[str]) -> None:
        if isinstance(node, COMPREHENSIONS):
            targets = [name for loop in node.generators for name in ast.walk(loop.target) if isinstance(name, ast.Name)]
            walk(node.generators[0].iter, hidden)  # evaluated outside
            inner = hidden | {name.id for name in targets}
            first, *others = node.generators
            for part in (first.target, *first.ifs, *others, *_results(node)):
                walk(part, inner)
            return
        if isinstance(node, ast.Lambda | ast.FunctionDef):
            hidden = hidden | {arg.arg for arg in ast.walk(node.args) if isinstance(arg, ast.arg)}
        if isinstance(node, ast.Name) and node.id not in hidden:
            found[node.id] += 1
        for child in ast.iter_child_nodes(node):
            walk(child, hidden)

    walk(tree, frozenset())
    return found


def _results(node: Any) -> list[ast.expr]:
    return [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]


def exit_signal(statements: Iterable[ast.AST]) -> bool | None:
    """The signal that all returns among statements give, where there is one; else None."""
    values = set()
    for node in walk_all(statements):
        if isinstance(node, ast.Return):
            if not _is_signal(node):
                return None
            values.add(node.value.value)  # type: ignore[union-attr]
    return values.pop() if len(values) == 1 else None


def exiting(statements: list[ast.stmt]) -> list[ast.stmt]:
    """Statements of which each signal says that the run of the loop ends."""
    for node in walk_all(statements):
        if _is_signal(node):
            node.value, node.is_signal = ast.Constant(True), False  # type: ignore[attr-defined]
            ast.fix_missing_locations(node)
    return statements


def _is_signal(node: ast.AST) -> bool:
    return isinstance(node, ast.Return) and getattr(node, "is_signal", False)


def _signal(stops: bool, place: ast.AST) -> ast.stmt:
    made = placed(ast.Return(ast.Constant(stops)), place)
    made.is_signal = True
    return made  # type: ignore[no-any-return]


def _assign(name: str, value: ast.expr, place: ast.AST) -> ast.stmt:
    return placed(ast.Assign([ast.Name(name, ast.Store())], value), place)  # type: ignore[no-any-return]


def _signalled(statements: list[ast.stmt]) -> list[ast.stmt]:
    """Statements of a loop's body with signals in place of `break`, `continue` and `return`."""
    out: list[ast.stmt] = []
    for statement in statements:
        if isinstance(statement, ast.Break | ast.Continue):
            out.append(_signal(isinstance(statement, ast.Break), statement))
            break
        if isinstance(statement, ast.Return):
            if _is_signal(statement):
                out.append(statement)
                break
            value = statement.value or ast.Constant(None)
            out.append(_assign(_RETURNED, ast.Constant(True), statement))
            out.append(_assign(_RESULT, value, statement))
            out.append(_signal(True, statement))
            break
        out.append(statement)
        if isinstance(statement, SCOPES):
            continue
        is_loop = isinstance(statement, ast.For | ast.While)
        for owner in (statement, *getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
            for field in ("body", "orelse", "finalbody"):
                inner = getattr(owner, field, None)
                if inner and not (is_loop and field == "body"):
                    setattr(owner, field, _signalled(inner))
        if is_loop and holds(statement.body, ast.Return):  # type: ignore[attr-defined]
            statement.is_inner = True  # type: ignore[attr-defined]
            leave = ast.If(ast.Name(_RETURNED, ast.Load()), [_signal(True, statement)], [])
            out.append(placed(leave, statement))
    return out
