"""Which lines of a function run in a `try` of it, by what its handlers catch."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Set
from types import CodeType

from graphwright.source import by_code, is_internal, raises_again, source_behind

# What no operation raises but for arguments of kinds that the capture knows.
_OTHERS = frozenset({
    "TypeError", "KeyError", "AttributeError", "ImportError", "ModuleNotFoundError", "NameError", "StopIteration",
    "UnboundLocalError", "AssertionError", "FileNotFoundError", "OSError", "IOError",
})  # fmt: skip
_NO_REFUSALS = {"StopIteration", *[name for name in vars(builtins) if name.endswith("Error")]} - {"TypeError"}


@by_code
def tried_lines(code: CodeType) -> list[tuple[int, int]]:
    """The first and last lines that a function of the program runs in a `try` that may catch what operations raise."""
    return _lines_caught(code, _OTHERS)


@by_code
def tried_lines_of_keys(code: CodeType) -> list[tuple[int, int]]:
    """Those in one that may catch what looking up a key raises."""
    return _lines_caught(code, _OTHERS - {"KeyError"})


@by_code
def catches_refusals(code: CodeType) -> bool:
    """Tell whether a function may catch what functions in C raise that take no numbers but plain ones."""
    return bool(_lines_caught(code, _NO_REFUSALS))


def _lines_caught(code: CodeType, others: Set[str]) -> list[tuple[int, int]]:
    if is_internal(code.co_filename):
        return []
    may_catch = getattr(code, "co_exceptiontable", True)  # what Python 3.10 does not have
    statements = source_behind(code).handlers(code.co_firstlineno, _last_line(code)) if may_catch else []
    return [
        (node.body[0].lineno, node.body[-1].end_lineno or 0)
        for node in statements
        if any(_catches_more(handler, others) for handler in node.handlers)
    ]


def _catches_more(handler: ast.ExceptHandler, others: Set[str]) -> bool:
    """Tell whether a handler may catch another error than these, and does more than to raise it again."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    is_other = all(kind is not None and ast.unparse(kind).rpartition(".")[2] in others for kind in kinds)
    return not is_other and not raises_again(handler)


def _last_line(code: CodeType) -> int:
    return max((line for _, _, line in code.co_lines() if line is not None), default=code.co_firstlineno)
