"""Loops as functions of one iteration, which say by their value whether the loop ends there.

    for row in x:                              def body(item):
        if row.sum() < 0:                          row = item
            break                       ->         if row.sum() < 0:
        total = total + row                            return True
                                                   total = total + row
                                                   return False
                                               runtime.each([x], body)

What a `return` inside a loop gives is kept in a variable, and returned after the loop; so is whether the loop was left
by a `break`, where the loop has an `else`.
"""

from __future__ import annotations

import ast
import dataclasses

from graphwright.source.lowering_exits import (
    HIDDEN,
    RETURNS,
    assign,
    ending,
    is_signal,
    leave_if,
    signal,
    unset,
    with_signals,
)
from graphwright.source.syntax import PREFIX, leaves_loop, may_wait, placed, returns, statements_in

ITEM = f"{PREFIX}item"  # the parameter of a body
_RETURNED, _RESULT = RETURNS


@dataclasses.dataclass(eq=False)
class Lowered:
    """A loop: statements before it, the body of its function, whether that gives a signal, statements after it."""

    before: list[ast.stmt]
    body: list[ast.stmt]
    signals: bool
    broken: str  # the variable that says whether it was left by `break` or `return`, if anything asks
    after: list[ast.stmt]
    test: ast.expr | None = None  # of a `while`


def with_test_inside(loop: ast.While) -> ast.While | None:
    """A loop whose test binds variables of its body, as one that ends there; None where its `else` leaves another one.

    while (n := f(x)) > 0:         while True:
        x = x - n                      if not (n := f(x)) > 0:
    else:                     ->           x = -x
        x = -x                             break
                                       x = x - n
    """
    if may_wait(loop.test):
        return loop
    if leaves_loop(loop.orelse) or any(map(is_signal, statements_in(loop.orelse))):
        return None
    stop = placed(ast.If(ast.UnaryOp(ast.Not(), loop.test), [*loop.orelse, ast.Break()], []), loop.test)
    made: ast.While = placed(ast.While(ast.Constant(True), [stop, *loop.body], []), loop)
    return made


def lower_loop(loop: ast.For | ast.While, number: int) -> Lowered | None:
    """Lower a loop, the function's `number`-th; None where it must stay as it is."""
    given = with_test_inside(loop) if isinstance(loop, ast.While) else loop
    if given is None:
        return None
    body = [*given.body]
    if isinstance(given, ast.For):
        body.insert(0, placed(ast.Assign([given.target], ast.Name(ITEM, ast.Load())), given.target))
    is_left = returns(body)
    lowered = with_signals(body, _leaving, _after_inner)
    signals = any(map(is_signal, statements_in(lowered)))
    before: list[ast.stmt] = []
    after: list[ast.stmt] = []
    if is_left and not getattr(loop, "is_inner", False):
        before = [assign(_RETURNED, ast.Constant(False), loop), assign(_RESULT, unset(), loop)]
        after.append(leave_if(_RETURNED, [ast.Return(ast.Name(_RESULT, ast.Load()))], loop))
    broken = ""
    if given.orelse:
        broken = f"broken{HIDDEN}{number}"
        test_broken = ast.UnaryOp(ast.Not(), ast.Name(broken, ast.Load()))
        after.append(placed(ast.If(test_broken, given.orelse, []), loop))
    test = given.test if isinstance(given, ast.While) else None
    return Lowered(before, ending(lowered, loop.body[-1]) if signals else lowered, signals, broken, after, test)


def _leaving(statement: ast.stmt) -> list[ast.stmt] | None:
    """What stands in a body for a statement that leaves it; None for others."""
    if isinstance(statement, ast.Break | ast.Continue):
        return [signal(isinstance(statement, ast.Break), statement)]
    if is_signal(statement):
        return [statement]
    if not isinstance(statement, ast.Return):
        return None
    value = statement.value or ast.Constant(None)
    flag = assign(_RETURNED, ast.Constant(True), statement)
    return [flag, assign(_RESULT, value, statement), signal(True, statement)]


def _after_inner(loop: ast.stmt) -> list[ast.stmt]:
    return [leave_if(_RETURNED, [signal(True, loop)], loop)]
