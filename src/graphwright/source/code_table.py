"""What is known of code objects, for as long as they live."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from types import CodeType
from typing import Generic, TypeVar

Value = TypeVar("Value")


class CodeTable(Generic[Value]):
    """A table of code objects by identity, which keeps none of them alive.

    Code objects are equal where they read alike, wherever they stand, and take long to compare and to hash.

    >>> table: CodeTable[int] = CodeTable()
    >>> function = lambda: 0
    >>> table[function.__code__] = 1
    >>> table.get(function.__code__), len(table)
    (1, 1)
    >>> del function
    >>> len(table)
    0
    """

    def __init__(self) -> None:
        self.known: dict[int, tuple[weakref.ref[CodeType], Value]] = {}  # by id

    def __len__(self) -> int:
        return len(self.known)

    def __contains__(self, code: CodeType) -> bool:
        known = self.known.get(id(code))
        return known is not None and known[0]() is code

    def get(self, code: CodeType, default: Value | None = None) -> Value | None:
        """Return what is known of a code object."""
        known = self.known.get(id(code))
        return default if known is None or known[0]() is not code else known[1]

    def __setitem__(self, code: CodeType, value: Value) -> None:
        key, known = id(code), self.known
        known[key] = weakref.ref(code, lambda _: known.pop(key, None)), value


def by_code(find: Callable[[CodeType], Value]) -> Callable[[CodeType], Value]:
    """Have what a function finds out about a code object found out once.

    >>> names = by_code(lambda code: [*code.co_names])
    >>> names(names.__code__) is names(names.__code__)
    True
    """
    table: CodeTable[Value] = CodeTable()

    @functools.wraps(find)
    def found(code: CodeType) -> Value:
        known = table.known.get(id(code))
        if known is not None and known[0]() is code:
            return known[1]
        table[code] = value = find(code)
        return value

    return found


def by_instruction(
    table: CodeTable[dict[int, Value]],
) -> Callable[[Callable[[CodeType, int], Value]], Callable[[CodeType, int], Value]]:
    """Have what a function finds out about an instruction of a code object found out once, and kept in a table."""

    def decorate(find: Callable[[CodeType, int], Value]) -> Callable[[CodeType, int], Value]:
        @functools.wraps(find)
        def found(code: CodeType, instruction: int) -> Value:
            entry = table.known.get(id(code))
            if entry is None or entry[0]() is not code:
                table[code] = {}
                entry = table.known[id(code)]
            value = entry[1].get(instruction)
            if value is None:
                value = entry[1][instruction] = find(code, instruction)
            return value

        return found

    return decorate
