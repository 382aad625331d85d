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
import itertools

from graphwright.source.lowering_exits import HIDDEN
from graphwright.source.syntax import copied_tree, placed, walk


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


def as_ifs(statement: ast.stmt, number: int) -> list[ast.stmt] | None:
    """The statements for a `match`, on a variable of its subject; None for another statement, and other patterns.

    >>> match = ast.parse("match f():\\n case True:\\n  a()").body[0]
    >>> print(ast.unparse(as_ifs(match, 0)))
    subject__gw0 = f()
    if subject__gw0 is True:
        a()
    """
    if not isinstance(statement, ast.Match):
        return None
    name = f"subject{HIDDEN}{number}"
    try:
        made = lower_match(statement, ast.copy_location(ast.Name(name, ast.Load()), statement.subject))
    except UnknownPattern:
        return None
    return [placed(ast.Assign([ast.Name(name, ast.Store())], statement.subject), statement.subject), *made]


def as_told(statement: ast.stmt) -> ast.stmt:
    """A `match` whose guards ask for `True`, `False` and `None`, which what stands for a value is not.

    >>> match = ast.parse("match n:\\n case (True, k) | [k, 1]:\\n  a(k)").body[0]
    >>> print(ast.unparse(as_told(match)))
    match n:
        case [told__gw0, k] if told__gw0 is True:
            a(k)
        case [k, 1]:
            a(k)
    """
    if not isinstance(statement, ast.Match) or not any(_asks(case.pattern) for case in statement.cases):
        return statement
    cases: list[ast.match_case] = []
    for case in statement.cases:
        for pattern in _alternatives(case.pattern):
            told: list[ast.expr] = []
            pattern = _Telling(told).visit(copied_tree(pattern))
            asked = [*told, *([] if case.guard is None else [copied_tree(case.guard)])]
            guard = None if not asked else asked[0] if len(asked) == 1 else ast.BoolOp(ast.And(), asked)
            guard = guard and placed(guard, pattern)
            cases.append(ast.match_case(pattern, guard, [copied_tree(each) for each in case.body]))
    return placed(ast.Match(statement.subject, cases), statement)  # type: ignore[no-any-return]


def _asks(pattern: ast.pattern) -> bool:
    """Tell whether a pattern has True, False or None in it."""
    return any(isinstance(part, ast.MatchSingleton) for part in walk(pattern))


def _alternatives(pattern: ast.pattern) -> list[ast.pattern]:
    """Patterns without `|` around what a guard is to ask for, of which one holds where a pattern does."""
    if not _asks(pattern):
        return [pattern]
    if isinstance(pattern, ast.MatchOr):
        return [each for part in pattern.patterns for each in _alternatives(part)]
    found = [pattern]
    for name, value in ast.iter_fields(pattern):
        parts = value if isinstance(value, list) else [value]
        if any(isinstance(part, ast.pattern) for part in parts):
            ways = itertools.product(*map(_alternatives, parts))
            found = [_with(each, name, [*way] if isinstance(value, list) else way[0]) for way in ways for each in found]
    return found


def _with(pattern: ast.pattern, name: str, value: object) -> ast.pattern:
    made = type(pattern)(**{**dict(ast.iter_fields(pattern)), name: value})
    return ast.copy_location(made, pattern)


class _Telling(ast.NodeTransformer):
    """Binds what is a singleton to a variable, of which a guard asks whether it is that."""

    def __init__(self, told: list[ast.expr]) -> None:
        self._told = told

    def visit_MatchSingleton(self, node: ast.MatchSingleton) -> ast.pattern:
        name = f"told{HIDDEN}{len(self._told)}"
        self._told.append(placed(ast.Compare(ast.Name(name, ast.Load()), [ast.Is()], [ast.Constant(node.value)]), node))
        return placed(ast.MatchAs(None, name), node)  # type: ignore[no-any-return]
