"""How large a value is when it is written out: what several places share counts as often as it is reached."""

from __future__ import annotations

import math
from typing import Any

from graphwright.errors import LoadError

__all__ = ["check_size", "items_in"]

_ALWAYS = 1_000  # items that a value may have whatever the file holds
_DEEPEST = 200


def check_size(value: Any, held: int) -> None:
    """Refuse a value that is much larger than the `held` items of the file that it is made of. O(n) in these.

    Graphs have no containers that share others: arguments are copied, and lists that share lists thirty levels deep
    would have no end.

    >>> pair = [1, 2]
    >>> for _ in range(30):
    ...     pair = [pair, pair]
    >>> check_size(pair, 62)
    Traceback (most recent call last):
    graphwright.errors.LoadError: an argument of a node is larger than the 1,062 items that the file has for it
      fix: load files only from those you trust
    """
    if _written_out(value, {}, 0) > _ALWAYS + held:
        raise LoadError(
            f"an argument of a node is larger than the {_ALWAYS + held:,} items that the file has for it",
            fix="load files only from those you trust",
        )


def items_in(data: Any) -> int:
    """Count the items of plain data, each once: it is read from text, and shares nothing. A graph counts as one."""
    count, waiting = 0, [data]
    while waiting:
        item = waiting.pop()
        count += 1
        if type(item) is dict and "graph" in item:
            continue
        waiting += item.values() if type(item) is dict else item if type(item) is list else ()
    return count


def _written_out(value: Any, known: dict[int, float], depth: int) -> float:
    if not isinstance(value, dict | list | tuple | set | frozenset):
        return 1
    if depth > _DEEPEST:
        return math.inf
    size = known.get(id(value))
    if size is None:
        known[id(value)] = math.inf  # for one that holds itself
        inner = [*dict.keys(value), *dict.values(value)] if isinstance(value, dict) else value
        size = known[id(value)] = 1 + sum(_written_out(part, known, depth + 1) for part in inner)
    return size
