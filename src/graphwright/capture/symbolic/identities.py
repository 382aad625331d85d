"""Functions of a program that ask whether two values are one, which Python would answer for the proxies."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import CodeType, FunctionType
from typing import Any

from graphwright.capture.conversion.conversion import asks_identity, can_convert
from graphwright.capture.python.reached import Reached


def asking_for_identity(functions: Iterable[Callable[..., Any] | None], owner: Any) -> set[CodeType]:
    """The functions that ask `a is b`, and those on the ways to them: they run converted from the start.

    Nobody hears of `a is b` otherwise: no method of a proxy is called for it.
    """
    found: set[CodeType] = set()
    reached = Reached()
    for function in functions:
        if type(function) is FunctionType:
            found |= reached.asking_in(function, owner, _asks)
    return found if all(map(can_convert, found)) else {code for code in found if can_convert(code)}


def _asks(code: CodeType, names: dict[str, Any], own: dict[str, Any]) -> bool:
    return asks_identity(code)
