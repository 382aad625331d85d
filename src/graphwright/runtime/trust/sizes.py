"""How large a file's program and its values may be.

What several places share counts as often as it is reached, where a value has to be written out.
"""

from __future__ import annotations

import math
from typing import Any

from graphwright.errors import LoadError

_ALWAYS = 1_000  # items that a value may have whatever the file holds
_TOGETHER = 1_000_000  # and all values of a program together
_TIMES = 10  # as often they may hold what the file holds once
_DEEPEST = 200
_FIX = "load files only from those you trust"
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
            raise LoadError(f"the program in the file {what}", fix=_FIX)
        parts = [item.values() if type(item) is dict else item for item in level if type(item) in (dict, list)]
        level = [part for held in parts for part in held]


def check_tree(children: list[list[int]]) -> None:
    """Refuse modules that hold themselves, or that are nested deeper than any program.

    `children` has the numbers of the modules that each module holds, and some may be held by several.

    >>> check_tree([[1, 2], [2], []])
    >>> check_tree([[1], [0]])
    Traceback (most recent call last):
    graphwright.errors.LoadError: a module in the file is inside itself
      fix: load files only from those you trust
    """
    holders = [0] * len(children)
    for held in children:
        for child in held:
            holders[child] += 1
    level = [number for number, count in enumerate(holders) if count == 0]
    depth = seen = 0
    while level:
        depth += 1
        seen += len(level)
        below = []
        for number in level:
            for child in children[number]:
                holders[child] -= 1
                if holders[child] == 0:
                    below.append(child)
        level = below
    if seen < len(children):
        raise LoadError("a module in the file is inside itself", fix=_FIX)
    if depth > _MOST_NESTED:
        raise LoadError(f"the modules in the file are nested {depth:,} levels deep, more than {_MOST_NESTED}", fix=_FIX)


class WrittenOut:
    """How large the arguments of a program's nodes are when they are written out, each and all together.

    Graphs have no containers that share others: arguments are copied, and lists that share lists thirty levels deep
    would have no end; nor would one long list that thousands of nodes share. `held` is how many items the file has for
    what they may share.

    >>> pair = [1, 2]
    >>> for _ in range(30):
    ...     pair = [pair, pair]
    >>> WrittenOut(60).add(pair, 2)
    Traceback (most recent call last):
    graphwright.errors.LoadError: an argument of a node is larger than the 1,062 items that the file has for it
      fix: load files only from those you trust
    """

    def __init__(self, held: int) -> None:
        self._held = held
        self._shared = 0  # items that the file does not write where they are used

    def add(self, value: Any, own: int) -> None:
        """Add the arguments of a node, for which the file has `own` items of their own. O(n) in these and the shared.

        Raises LoadError where they are much larger than the items that the file has for them.
        """
        size = _written_out(value, {}, 0)
        most = _ALWAYS + self._held + own
        if size > most:
            raise LoadError(
                f"an argument of a node is larger than the {most:,} items that the file has for it", fix=_FIX
            )
        self._shared += max(0, int(size) - own)
        if self._shared > _TOGETHER + _TIMES * self._held:
            raise LoadError(
                f"the arguments of the nodes have {self._shared:,} items more than the file has for them", fix=_FIX
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
