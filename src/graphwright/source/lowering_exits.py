"""Ways out of a block, `break`, `continue` and `return`, as values that its function returns.

    if x.sum() < 0:               if x.sum() < 0:
        break              ->         return True
    x = x + 1                     x = x + 1
                                  return False

Such a value, a signal, says whether what the block is part of ends there. What a `return` gives is kept in a variable.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable

from graphwright.source.syntax import RUNTIME_MARK, all_placed, blocks_of, falls_through, placed, returns, statements_in

HIDDEN = "__gw"  # ends the names of variables that lowering makes, before a number
RETURNS = f"returned{HIDDEN}", f"result{HIDDEN}"  # what a `return` in a loop assigns


def signal(stops: bool, place: ast.AST) -> ast.stmt:
    """The statement that says whether what is around a block ends."""
    made: ast.stmt = placed(ast.Return(ast.Constant(stops)), place)
    made.is_signal = True  # type: ignore[attr-defined]
    return made


def is_signal(node: ast.AST) -> bool:
    """Tell whether a node is a signal."""
    return isinstance(node, ast.Return) and getattr(node, "is_signal", False)


def assign(name: str, value: ast.expr, place: ast.AST) -> ast.stmt:
    """The statement that gives a variable a value."""
    made: ast.stmt = placed(ast.Assign([ast.Name(name, ast.Store())], value), place)
    return made


def unset() -> ast.expr:
    """What a variable holds that has no value yet."""
    return ast.Attribute(ast.Constant(RUNTIME_MARK), "UNSET", ast.Load())


def leave_if(name: str, statements: list[ast.stmt], place: ast.AST) -> ast.stmt:
    """The statement that leaves a block in some way where a variable says so."""
    made: ast.stmt = placed(ast.If(ast.Name(name, ast.Load()), statements, []), place)
    return made


def with_signals(
    statements: list[ast.stmt],
    leaving: Callable[[ast.stmt], list[ast.stmt] | None],
    after_loop: Callable[[ast.stmt], list[ast.stmt]],
) -> list[ast.stmt]:
    """Statements of a block with others in place of those that leave it; None for a statement that stays.

    `after_loop` gives what to do after a loop inside which a `return` leaves, whose body has signals of its own.
    """
    out: list[ast.stmt] = []
    for statement in statements:
        instead = leaving(statement)
        if instead is not None:
            return [*out, *instead]
        out.append(statement)
        is_loop = isinstance(statement, ast.For | ast.While)
        for owner, field, inner in blocks_of(statement):
            if not (is_loop and field == "body"):
                setattr(owner, field, with_signals(inner, leaving, after_loop))
        if is_loop and not getattr(statement, "is_inner", False) and returns(statement.body):  # type: ignore[attr-defined]
            statement.is_inner = True  # type: ignore[attr-defined]
            out += after_loop(statement)
    return out


def ending(statements: list[ast.stmt], place: ast.AST) -> list[ast.stmt]:
    """Statements with signals, and one that nothing ends where they come to their end."""
    return [*statements, signal(False, place)] if statements and falls_through(statements) else statements


def exit_signal(statements: Iterable[ast.AST]) -> bool | None:
    """The signal that all returns among statements give, where there is one; else None."""
    values = set()
    for node in statements_in(statements):
        if isinstance(node, ast.Return):
            if not is_signal(node):
                return None
            values.add(node.value.value)  # type: ignore[union-attr]
    return values.pop() if len(values) == 1 else None


def exiting(statements: list[ast.stmt]) -> list[ast.stmt]:
    """Statements of which each signal says that the run of the loop ends."""
    for node in statements_in(statements):
        if is_signal(node):
            node.value, node.is_signal = ast.Constant(True), False  # type: ignore[attr-defined]
            all_placed(node)
    return statements


def returns_from_inner_loop(statements: list[ast.stmt]) -> bool:
    """Tell whether a loop among statements holds a `return` that nothing around it knows of yet."""
    for statement in statements:
        if isinstance(statement, ast.For | ast.While):
            if not getattr(statement, "is_inner", False) and returns(statement.body):
                return True
        elif any(returns_from_inner_loop(inner) for _, _, inner in blocks_of(statement)):
            return True
    return False
