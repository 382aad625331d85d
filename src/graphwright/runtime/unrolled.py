"""Many looks at tables in a few functions without a loop, which take less than half of what a loop or `map` takes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import CodeType, FunctionType
from typing import Any

_ROWS = 16  # for one function

Row = tuple[Any, ...]


def unrolled_checks(condition: str, rows: Sequence[Row]) -> list[Callable[[], bool]]:
    """Make functions that answer whether a condition is false of every row; `{0}`, `{1}`, ... are the items of a row.

    >>> numbers = {"a": 1}
    >>> (check,) = unrolled_checks("{0}[{1}] != {2}", [(numbers, "a", 1)])
    >>> check(), numbers.update(a=2), check()
    (True, None, False)
    """
    return _functions(f"    if {condition}:\n        return False\n", "True", rows)


def unrolled_reads(expression: str, rows: Sequence[Row]) -> list[Callable[[], list[Any]]]:
    """Make functions that each give a list: the value of an expression for some of the rows, in their order.

    >>> [read() for read in unrolled_reads("{0}[{1}]", [("ab", 0), ("ab", 1)])]
    [['a', 'b']]
    """
    return _functions("", f"{expression}, ", rows)


def _functions(statement: str, value: str, rows: Sequence[Row]) -> list[Any]:
    parts = [rows[start : start + _ROWS] for start in range(0, len(rows), _ROWS)]
    return [
        FunctionType(_code(statement, value, len(part), len(part[0])), {"type": type}, "look", tuple(sum(part, ())))
        for part in parts
    ]


@functools.cache
def _code(statement: str, value: str, rows: int, columns: int) -> CodeType:
    """The code of a function that has all items of its rows as defaults of its parameters."""
    names = [[f"item{row}_{column}" for column in range(columns)] for row in range(rows)]
    body = "".join(statement.format(*each) for each in names)
    result = value if statement else f"[{''.join(value.format(*each) for each in names)}]"
    made: dict[str, Any] = {}
    parameters = ", ".join(name for each in names for name in each)
    exec(f"def look({parameters}):\n{body}    return {result}", made)
    code: CodeType = made["look"].__code__
    return code
