"""`with contextlib.suppress(...)` as the `try` that it stands for."""

from __future__ import annotations

import ast

from graphwright.source.syntax import RUNTIME_MARK, placed


def as_attempt(statement: ast.stmt) -> ast.stmt:
    """`with contextlib.suppress(...)`, alone or beside other contexts, as a `try`; other statements as they are."""
    if not isinstance(statement, ast.With):
        return statement
    items = statement.items
    number = next((number for number, item in enumerate(items) if _suppressed(item) is not None), None)
    if number is None:
        return statement
    item, body = items[number], statement.body
    if items[number + 1 :]:
        body = [placed(ast.With(items[number + 1 :], body), statement)]
    kinds = ast.Call(ast.Attribute(ast.Constant(RUNTIME_MARK), "suppressed", ast.Load()), [item.context_expr], [])
    attempt = placed(ast.Try(body, [ast.ExceptHandler(kinds, None, [ast.Pass()])], [], []), statement)
    return placed(ast.With(items[:number], [attempt]), statement) if number else attempt  # type: ignore[no-any-return]


def suppressing(statement: ast.With) -> list[ast.Try]:
    """What catches as a `with` statement does: a `try` of its body for each `contextlib.suppress` that it enters."""
    caught = [kinds for item in statement.items if (kinds := _suppressed(item)) is not None]
    handlers = [ast.ExceptHandler(ast.Tuple(kinds, ast.Load()), None, [ast.Pass()]) for kinds in caught]
    return [ast.copy_location(ast.Try(statement.body, [handler], [], []), statement) for handler in handlers]


def _suppressed(item: ast.withitem) -> list[ast.expr] | None:
    """The classes of errors that an item of a `with` statement suppresses; None where it is another context."""
    call = item.context_expr
    if not isinstance(call, ast.Call) or item.optional_vars is not None:
        return None
    return call.args if ast.unparse(call.func) in ("suppress", "contextlib.suppress") else None
