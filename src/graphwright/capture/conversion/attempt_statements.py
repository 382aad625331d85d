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

from graphwright.capture.conversion.loop_statements import HIDDEN, RETURNS, exit_signal
from graphwright.source import RUNTIME_MARK, SCOPES, assigned, falls_through, holds, leaves_loop, placed

__all__ = ["Handler", "Tried", "as_attempt", "lower_attempt", "with_rest"]


@dataclasses.dataclass
class Handler:
    """One `except`: the classes, if it names any, the variable of the error, and what it does."""

    kind: ast.expr | None
    name: str
    body: list[ast.stmt]
    place: ast.ExceptHandler


@dataclasses.dataclass
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
    only_raises: bool  # whether no handler does anything else in the end

    def after(self, place: ast.Try) -> list[ast.stmt]:
        """What follows: to leave what is around it, where a part said so."""
        return [placed(ast.If(ast.Name(self.left, ast.Load()), self.leave, []), place)] if self.signals else []


def lower_attempt(statement: ast.Try, number: int) -> Tried | None:
    """Lower the function's `number`-th `try`; None where it must stay as it is."""
    names = [handler.name or f"error{HIDDEN}{number}" for handler in statement.handlers]
    if leaves_loop([statement]):  # of a loop that stays as it is
        return None
    if any(name in assigned(handler.body) for name, handler in zip(names, statement.handlers, strict=True)):
        return None
    constant = exit_signal([statement])
    only_raises = all(
        isinstance(handler.body[-1], ast.Raise) and not holds(handler.body, ast.Return)
        for handler in statement.handlers
    )
    result = f"exit{HIDDEN}{number}"
    blocks = [statement.body, *[handler.body for handler in statement.handlers], statement.orelse, statement.finalbody]
    has_inner = any(map(_returns_from_inner_loop, blocks))
    is_left = any(holds(block, ast.Return) for block in blocks)
    lowered = [_leaving(block, result, constant is not None) for block in blocks] if is_left else blocks
    if is_left:
        for block in lowered:
            if block and falls_through(block):
                block.append(_signal(False, block[-1]))
    before: list[ast.stmt] = []
    if has_inner:
        before = [_assign(RETURNS[0], ast.Constant(False), statement), _assign(RETURNS[1], _unset(), statement)]
    leave: list[ast.stmt] = []
    if is_left and constant is None:
        before.append(_assign(result, _unset(), statement))
        leave = [placed(ast.Return(ast.Name(result, ast.Load())), statement)]
    elif is_left:
        leave = [_signal(bool(constant), statement)]
    body, *handled, orelse, final = lowered
    handlers = [
        Handler(handler.type, name, block, handler)
        for handler, name, block in zip(statement.handlers, names, handled, strict=True)
    ]
    return Tried(before, body, handlers, orelse, final, is_left, f"left{HIDDEN}{number}", leave, only_raises)


def with_rest(statement: ast.Try, rest: list[ast.stmt]) -> tuple[ast.Try, list[ast.stmt]]:
    """Take what follows a `try` into its `else` where every handler ends the function; return it, and what follows."""
    handlers = [handler.body for handler in statement.handlers]
    ends = handlers and not any(map(falls_through, handlers)) and any(holds(body, ast.Return) for body in handlers)
    if not (ends and rest and falls_through([*statement.body, *statement.orelse])) or statement.finalbody:
        return statement, rest
    whole = ast.Try(statement.body, statement.handlers, [*statement.orelse, *rest], [])
    return ast.copy_location(whole, statement), []


def as_attempt(statement: ast.stmt) -> ast.stmt:
    """`with contextlib.suppress(...)` as the `try` that it stands for; other statements as they are."""
    if not isinstance(statement, ast.With) or len(statement.items) != 1 or statement.items[0].optional_vars:
        return statement
    context = statement.items[0].context_expr
    if not isinstance(context, ast.Call) or ast.unparse(context.func) not in ("suppress", "contextlib.suppress"):
        return statement
    kinds = ast.Call(ast.Attribute(ast.Constant(RUNTIME_MARK), "suppressed", ast.Load()), [context], [])
    handler = ast.ExceptHandler(kinds, None, [ast.Pass()])
    return placed(ast.Try(statement.body, [handler], [], []), statement)  # type: ignore[no-any-return]


def _leaving(statements: list[ast.stmt], result: str, is_constant: bool) -> list[ast.stmt]:
    """Statements that keep what they return in a variable, and return that the statement is left."""
    out: list[ast.stmt] = []
    for statement in statements:
        if isinstance(statement, ast.Return):
            if not is_constant:
                out.append(_assign(result, statement.value or ast.Constant(None), statement))
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
                    setattr(owner, field, _leaving(inner, result, is_constant))
        if is_loop and not getattr(statement, "is_inner", False) and holds(statement.body, ast.Return):  # type: ignore[attr-defined]
            statement.is_inner = True  # type: ignore[attr-defined]
            value = _assign(result, ast.Name(RETURNS[1], ast.Load()), statement)
            leave = ast.If(ast.Name(RETURNS[0], ast.Load()), [value, _signal(True, statement)], [])
            out.append(placed(leave, statement))
    return out


def _returns_from_inner_loop(statements: list[ast.stmt]) -> bool:
    """Tell whether a loop among statements holds a `return` that nothing around it knows of yet."""
    for statement in statements:
        if isinstance(statement, SCOPES):
            continue
        if isinstance(statement, ast.For | ast.While):
            if not getattr(statement, "is_inner", False) and holds(statement.body, ast.Return):
                return True
            continue
        for owner in (statement, *getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
            for field in ("body", "orelse", "finalbody"):
                if _returns_from_inner_loop(getattr(owner, field, None) or []):
                    return True
    return False


def _signal(leaves: bool, place: ast.AST) -> ast.stmt:
    made = placed(ast.Return(ast.Constant(leaves)), place)
    made.is_signal = True
    return made  # type: ignore[no-any-return]


def _assign(name: str, value: ast.expr, place: ast.AST) -> ast.stmt:
    return placed(ast.Assign([ast.Name(name, ast.Store())], value), place)  # type: ignore[no-any-return]


def _unset() -> ast.expr:
    return ast.Attribute(ast.Constant(RUNTIME_MARK), "UNSET", ast.Load())
