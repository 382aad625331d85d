"""Calls that converted functions make as they are written, and what they read by way of the runtime."""

from __future__ import annotations

import ast

# What looks at the frame that calls it must be called by the user's code itself.
LOOKS_AT_FRAME = frozenset({"locals", "globals", "vars", "dir", "eval", "exec", "super", "breakpoint"})
OF_ERRORS = frozenset({"__class__", "__cause__", "__context__", "__suppress_context__"})  # read by the runtime
WARNS = frozenset({"warn", "warning"})
_MAKES_TEXTS = frozenset({"str", "repr"})  # of messages, which are put together when they are needed


def is_called_by_runtime(call: ast.Call) -> bool:
    """Tell whether a converted function makes a call by way of the runtime's `call`, which sees its arguments.

    >>> is_called_by_runtime(ast.parse("log.warning(dtype)", mode="eval").body)
    False
    """
    if isinstance(call.func, ast.Name):
        return call.func.id not in LOOKS_AT_FRAME | _MAKES_TEXTS
    return not isinstance(call.func, ast.Attribute) or call.func.attr not in WARNS
