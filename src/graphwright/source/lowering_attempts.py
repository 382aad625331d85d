"""`try` statements as functions: what is tried, the handlers, `else` and `finally`.

    try:                               def tried():
        y = f(x)                           y = f(x)
    except ValueError as error:        def handler(error):
        y = g(x)              ->           y = g(x)
                                       runtime.attempt(tried, ((lambda: ValueError, handler),), None, None, ("y",))

A part that leaves the statement, by `return`, `break` or `continue`, says so by its value, which is then that of
`attempt`; what the function or the iteration of a loop gives there is kept in a variable.
"""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Container

from graphwright.source.lowering_exits import (
    HIDDEN,
    RETURNS,
    assign,
    ending,
    exit_signal,
    leave_if,
    returns_from_inner_loop,
    signal,
    unset,
    with_signals,
)
from graphwright.source.syntax import assigned, falls_through, leaves_loop, placed, returns


@dataclasses.dataclass(eq=False)
class Handler:
    """One `except`: the classes, if it names any, the variable of the error, and what it does."""

    kind: ast.expr | None
    name: str
    body: list[ast.stmt]
    place: ast.ExceptHandler


@dataclasses.dataclass(eq=False)
class Tried:
    """A `try` statement: statements before it, its parts, whether these give signals, what follows where it is left."""

    before: list[ast.stmt]
    body: list[ast.stmt]
    handlers: list[Handler]
    orelse: list[ast.stmt]
    final: list[ast.stmt]
    signals: bool
    left: str  # the variable that says whether it was left
    leave: list[ast.stmt]
    raising: str  # "again" where handlers only raise what they got, "other" where all raise something in the end

    def after(self, place: ast.Try) -> list[ast.stmt]:
        """What follows: to leave what is around it, where a part said so."""
        return [leave_if(self.left, self.leave, place)] if self.signals else []


def lower_attempt(statement: ast.Try, number: int, outlived: Container[str] = ()) -> Tried | None:
    """Lower the function's `number`-th `try`; None where it must stay as it is.

    A handler takes the variable of its error away when it ends: whoever names it elsewhere, as those of `outlived` are,
    finds what Python leaves there.
    """
    names = [handler.name or f"error{HIDDEN}{number}" for handler in statement.handlers]
    if leaves_loop([statement]):  # of a loop that stays as it is
        return None
    bound = [assigned(handler.body) for handler in statement.handlers]
    if any(name in outlived or name in others for name, others in zip(names, bound, strict=True)):
        return None
    constant = exit_signal([statement])
    only_raises = all(
        isinstance(handler.body[-1], ast.Raise) and not returns(handler.body) for handler in statement.handlers
    )
    raising = "again" if all(map(raises_again, statement.handlers)) else "other" if only_raises else ""
    result = f"exit{HIDDEN}{number}"
    blocks = [statement.body, *[handler.body for handler in statement.handlers], statement.orelse, statement.finalbody]
    is_left = any(map(returns, blocks))
    before: list[ast.stmt] = []
    if any(map(returns_from_inner_loop, blocks)):
        before = [assign(RETURNS[0], ast.Constant(False), statement), assign(RETURNS[1], unset(), statement)]
    leave: list[ast.stmt] = []
    if is_left and constant is None:
        before.append(assign(result, unset(), statement))
        leave = [placed(ast.Return(ast.Name(result, ast.Load())), statement)]
    elif is_left:
        leave = [signal(bool(constant), statement)]
    lowered = [_signalled(block, result, constant is not None) for block in blocks] if is_left else blocks
    body, *handled, orelse, final = lowered
    handlers = [
        Handler(handler.type, name, block, handler)
        for handler, name, block in zip(statement.handlers, names, handled, strict=True)
    ]
    return Tried(before, body, handlers, orelse, final, is_left, f"left{HIDDEN}{number}", leave, raising)


def raises_again(handler: ast.ExceptHandler) -> bool:
    """Tell whether a handler does nothing but to raise what it got."""
    raised = handler.body[0]
    if len(handler.body) > 1 or not isinstance(raised, ast.Raise) or raised.cause is not None:
        return False
    return raised.exc is None or (isinstance(raised.exc, ast.Name) and raised.exc.id == handler.name)


def with_rest(statement: ast.Try, rest: list[ast.stmt]) -> tuple[ast.Try, list[ast.stmt]]:
    """Take what follows a `try` into the one part of it that does not end the function; return it, and what follows.

    That is its `else`, where every handler ends the function; or its one handler that does not, where the body does.
    """
    body, handlers, orelse = statement.body, statement.handlers, statement.orelse
    falling = [handler for handler in handlers if falls_through(handler.body)]
    goes_on = falls_through([*body, *orelse])
    if not (rest and handlers) or statement.finalbody or len(falling) + goes_on != 1:
        return statement, rest
    if not returns([*body, *orelse, *[each for handler in handlers for each in handler.body]]):
        return statement, rest
    if goes_on:
        orelse = [*orelse, *rest]
    else:
        handlers = [
            ast.copy_location(ast.ExceptHandler(each.type, each.name, [*each.body, *rest]), each)
            if each in falling
            else each
            for each in handlers
        ]
    return ast.copy_location(ast.Try(body, handlers, orelse, []), statement), []


def _signalled(block: list[ast.stmt], result: str, is_constant: bool) -> list[ast.stmt]:
    """A block that keeps what it returns in a variable, and returns whether the statement is left."""

    def leaving(statement: ast.stmt) -> list[ast.stmt] | None:
        if not isinstance(statement, ast.Return):
            return None
        value = statement.value or ast.Constant(None)
        kept = [] if is_constant else [assign(result, value, statement)]
        return [*kept, signal(True, statement)]

    def after_loop(loop: ast.stmt) -> list[ast.stmt]:
        value = assign(result, ast.Name(RETURNS[1], ast.Load()), loop)
        return [leave_if(RETURNS[0], [value, signal(True, loop)], loop)]

    lowered = with_signals(block, leaving, after_loop)
    return ending(lowered, lowered[-1]) if lowered else lowered
