"""`match` as the `if`s that it stands for: values, `|`, `_`, names and guards.

match n:                       if n == 1 or n == 2:
    case 1 | 2:                    x = x + 1
        x = x + 1              else:
    case m if m > 5:     ->        m = n
        x = x * m                  if m > 5:
    case _:                            x = x * m
        x = -x                     else:
                                       x = -x
"""

from __future__ import annotations

import ast

from graphwright.source.syntax import placed


class UnknownPattern(Exception):
    """A pattern that is no condition on the subject alone."""

    def __init__(self, pattern: ast.pattern) -> None:
        super().__init__(ast.unparse(pattern))
        self.pattern = pattern


def lower_match(statement: ast.Match, subject: ast.expr) -> list[ast.stmt]:
    """The statements for a `match` on the value of an expression. Raises UnknownPattern.

    >>> match = ast.parse("match n:\\n case 1 | 2:\\n  a()\\n case _:\\n  b()").body[0]
    >>> print(ast.unparse(lower_match(match, match.subject)[0]))
    if n == 1 or n == 2:
        a()
    else:
        b()
    """
    made: list[ast.stmt] = []
    for case in reversed(statement.cases):
        test, name = _condition(case.pattern, subject)
        bind = [placed(ast.Assign([ast.Name(name, ast.Store())], subject), case.pattern)] if name else []
        if case.guard is not None and name:  # which the guard reads
            made = [*bind, placed(ast.If(case.guard, case.body, made), case.pattern)]
            continue
        if case.guard is not None:
            test = case.guard if test is None else ast.BoolOp(ast.And(), [test, case.guard])
        body = [*bind, *case.body]
        made = body if test is None else [placed(ast.If(placed(test, case.pattern), body, made), case.pattern)]
    return made


def _condition(pattern: ast.pattern, subject: ast.expr) -> tuple[ast.expr | None, str]:
    """The condition that a pattern stands for, None where it always holds, and the variable that it binds."""
    if isinstance(pattern, ast.MatchValue):
        return placed(ast.Compare(subject, [ast.Eq()], [pattern.value]), pattern), ""
    if isinstance(pattern, ast.MatchSingleton):
        return placed(ast.Compare(subject, [ast.Is()], [ast.Constant(pattern.value)]), pattern), ""
    if isinstance(pattern, ast.MatchOr):
        tests = [_condition(part, subject)[0] for part in pattern.patterns]
        known = [test for test in tests if test is not None]
        if len(known) == len(tests):
            return placed(ast.BoolOp(ast.Or(), known), pattern), ""
    if isinstance(pattern, ast.MatchAs) and pattern.pattern is None:
        return None, pattern.name or ""
    raise UnknownPattern(pattern)
