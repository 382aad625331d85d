"""What the place of a running instruction in the syntax tree says it is for: to compute, or to tell people something.

A text that is made in the message of an `assert`, for an error that is raised, or for a call that logs or warns decides
nothing in the program, if it goes there as it is: not if it is looked up, compared or kept on its way.
"""

from __future__ import annotations

import ast
import builtins
import enum
from types import CodeType
from typing import Any, NamedTuple

from graphwright.source.code_table import CodeTable, by_instruction
from graphwright.source.definitions import source_behind
from graphwright.source.positions import Position, position_of
from graphwright.source.source_files import source_of


class Role(enum.Enum):
    """What the value of an instruction is for."""

    PLAIN = "a part of what the program computes"
    MESSAGE = "the message of an `assert`"
    RAISED = "what is raised, or a part of it"
    GIVEN = "the text of an argument of a call, which may tell people something"


class Standing(NamedTuple):
    """What an instruction is for. Of an argument: what is called, and which argument it is, -1 for a keyword."""

    role: Role
    called: ast.expr | None = None
    argument: int = -1
    keyword: str | None = None


_Step = tuple[ast.AST, str, int, ast.AST]  # parent, field, index and child
_PLAIN = Standing(Role.PLAIN)
_known: CodeTable[dict[int, Standing]] = CodeTable()


@by_instruction(_known)
def role_of(code: CodeType, instruction: int) -> Standing:
    """Find what an instruction is for. Where the source does not tell, it is a part of what the program computes."""
    position = position_of(code, instruction)
    statement = statement_at(code, position)
    if statement is None:
        return _PLAIN
    standing = Standing(Role.RAISED) if isinstance(statement, ast.Raise) and statement.exc is not None else _PLAIN
    for parent, field, index, child in _path(statement, position):
        standing = _inside(standing, parent, field, index, child)
    return standing


def is_user_raise(code: CodeType, instruction: int) -> bool:
    """Tell whether an instruction is part of a `raise` of something, or of an `assert`."""
    statement = statement_at(code, position_of(code, instruction))
    return isinstance(statement, ast.Assert) or (isinstance(statement, ast.Raise) and statement.exc is not None)


def is_return(file: str, line: int) -> bool:
    """Tell whether the innermost statement on a line of a file is a `return` of something."""
    statements = source_of(file).statements(line)
    return any(isinstance(statement, ast.Return) and statement.value is not None for statement in statements[-1:])


def statement_at(code: CodeType, position: Position) -> ast.stmt | ast.Lambda | None:
    """The innermost statement that holds a position; a lambda where none does, as in a decorator."""
    source = source_behind(code)
    around = [statement for statement in source.statements(position[0]) if _holds(statement, position)]
    if around:
        return around[-1]
    lambdas = source.definitions("<lambda>", code.co_firstlineno) if code.co_name == "<lambda>" else []
    return next((each for each in lambdas if isinstance(each, ast.Lambda) and _holds(each, position)), None)


def expression_at(statement: ast.AST, position: Position) -> ast.AST | None:
    """The expression of a statement that stands at a position, and nowhere else."""
    for *_, part in reversed(_path(statement, position)):
        place = tuple([getattr(part, name, None) for name in ("lineno", "end_lineno", "col_offset", "end_col_offset")])
        if place == tuple(position) or _place_of_name(part) == tuple(position):
            return part
    return None


def _place_of_name(part: ast.AST) -> tuple[int | None, ...]:
    """Where Python says that an attribute, or the call of one, stands whose name is in a line below the first one."""
    named = part.func if isinstance(part, ast.Call) else part
    if not isinstance(named, ast.Attribute) or named.lineno == named.end_lineno:
        return ()
    assert isinstance(part, ast.expr)
    return named.end_lineno, part.end_lineno, (named.end_col_offset or 0) - len(named.attr), part.end_col_offset


def _path(node: ast.AST, position: Position) -> list[_Step]:
    """The steps from a node down to the innermost expression that holds a position.

    Before Python 3.12 all parts of an f-string stand where it does: the longest way is the right one.
    """
    longest: list[_Step] = []
    for field, value in ast.iter_fields(node):
        for index, part in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(part, ast.AST) and not isinstance(part, ast.stmt) and _holds(part, position):
                way = [(node, field, index, part), *_path(part, position)]
                longest = max(longest, way, key=len)
    return longest


def _holds(node: ast.AST, position: Position) -> bool:
    """Tell whether a node holds a position: itself, or what is in it where it has no place of its own."""
    line, end_line, column, end_column = position
    if not hasattr(node, "lineno"):
        return any(_holds(part, position) for part in ast.iter_child_nodes(node))
    place: ast.expr = node  # type: ignore[assignment]
    if end_line is None or column is None or end_column is None:
        return isinstance(node, ast.stmt) and place.lineno <= line <= (place.end_lineno or line)
    start, end = (place.lineno, place.col_offset), (place.end_lineno or line, place.end_col_offset or 0)
    return start <= (line, column) and (end_line, end_column) <= end


def _inside(standing: Standing, parent: ast.AST, field: str, index: int, child: ast.AST) -> Standing:
    """What a part of something is for, whose own standing is known."""
    if isinstance(parent, ast.Assert):
        return Standing(Role.MESSAGE) if field == "msg" else _PLAIN
    if isinstance(parent, ast.Raise):
        return Standing(Role.RAISED) if field == "exc" else _PLAIN
    if isinstance(parent, ast.Call) and field != "func":
        if standing.role is Role.MESSAGE or standing.role is Role.RAISED or _is_text_of(standing, parent):
            return standing
        return Standing(Role.GIVEN, parent.func, *(_keyword(child) if field == "keywords" else (index, None)))
    return standing if (type(parent), field) in _PASSES_ON else _PLAIN


def _keyword(child: ast.AST) -> tuple[int, str | None]:
    return -1, child.arg if isinstance(child, ast.keyword) else None


def _is_text_of(standing: Standing, call: ast.Call) -> bool:
    """Tell whether a call in an argument only makes a text, or an error, of what it is given."""
    if standing.role is not Role.GIVEN:
        return False
    if isinstance(call.func, ast.Attribute):
        return call.func.attr in ("format", "join", "replace")
    made: Any = getattr(builtins, call.func.id, None) if isinstance(call.func, ast.Name) else None
    return made in _MAKE_TEXT or (issubclass(type(made), type) and issubclass(made, BaseException))


_MAKE_TEXT: tuple[object, ...] = (str, repr, format, tuple, list, map)
# Where the value of a part is a part of the value, as it is or as its text.
_PASSES_ON: frozenset[tuple[type[ast.AST], str]] = frozenset(
    {
        (ast.JoinedStr, "values"), (ast.FormattedValue, "value"), (ast.FormattedValue, "format_spec"),
        (ast.BinOp, "left"), (ast.BinOp, "right"), (ast.Tuple, "elts"), (ast.List, "elts"), (ast.Dict, "values"),
        (ast.Starred, "value"), (ast.keyword, "value"), (ast.IfExp, "body"), (ast.IfExp, "orelse"),
        (ast.Attribute, "value"), (ast.Call, "func"), (ast.Subscript, "value"), (ast.Lambda, "body"),
        (ast.ListComp, "elt"), (ast.GeneratorExp, "elt"), (ast.Expr, "value"),
    }
)  # fmt: skip
