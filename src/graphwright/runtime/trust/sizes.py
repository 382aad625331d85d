"""How large a file's program and its values may be.

What several places share counts as often as it is reached, where a value has to be written out.
"""

from __future__ import annotations

import math
from typing import Any

from graphwright.errors import LoadError

__all__ = ["check_bounds", "check_size", "items_in"]

_ALWAYS = 1_000  # items that a value may have whatever the file holds
_DEEPEST = 200
_MOST_ITEMS = 20_000_000  # of a program: nodes, arguments, attributes, all that is written
_MOST_NESTED = 400  # levels of lists and dicts; a body within a body takes four


def check_bounds(program: Any) -> None:
    """Refuse a program that is larger or nested deeper than any that `save` writes. O(n) in what is written.

    >>> deep = []
    >>> for _ in range(1000):
    ...     deep = [deep]
    >>> check_bounds({"nodes": deep})
    Traceback (most recent call last):
    graphwright.errors.LoadError: the program in the file is nested more than 400 levels deep
      fix: load files only from those you trust
    """
    count, depth, level = 0, 0, [program]
    while level:
        depth += 1
        count += len(level)
        if depth > _MOST_NESTED or count > _MOST_ITEMS:
            is_deep = depth > _MOST_NESTED
            what = (
                f"is nested more than {_MOST_NESTED} levels deep" if is_deep else f"has more than {_MOST_ITEMS:,} items"
            )
            raise LoadError(f"the program in the file {what}", fix="load files only from those you trust")
        parts = [item.values() if type(item) is dict else item for item in level if type(item) in (dict, list)]
        level = [part for held in parts for part in held]


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
