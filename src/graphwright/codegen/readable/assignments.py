"""Assignments in a row: which may be written one by one, and which at once."""

from __future__ import annotations

import re
from collections.abc import Sequence


def is_simple(text: str) -> bool:
    """Tell whether reading a value takes nothing: the name of a variable, or a number."""
    return text.isidentifier() or text.replace(".", "", 1).removeprefix("-").isdigit()


def mentions(text: str, name: str) -> bool:
    """Tell whether code reads, or may read, a variable."""
    return name in text and re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) is not None


def in_sequence(pairs: Sequence[tuple[str, str]]) -> list[str]:
    """Write that variables get values, one by one where no value reads a variable that has got its own.

    What is computed is computed in the order given.

    >>> in_sequence([("a", "b"), ("b", "a + b")])
    ['a, b = b, a + b']
    >>> in_sequence([("i", "i + 1"), ("total", "total + i"), ("last", "last")])
    ['i, total = i + 1, total + i']
    >>> in_sequence([("previous", "x"), ("x", "f(x)")])
    ['previous = x', 'x = f(x)']
    """
    left = [(target, text) for target, text in pairs if target != text]
    lines = []
    while left:
        for i, (target, text) in enumerate(left):
            must_wait = not is_simple(text) and any(not is_simple(other) for _, other in left[:i])
            if not must_wait and not any(mentions(other, target) for _, other in (*left[:i], *left[i + 1 :])):
                lines.append(f"{target} = {text}")
                del left[i]
                break
        else:
            lines.append(f"{', '.join(t for t, _ in left)} = {', '.join(text for _, text in left)}")
            break
    return lines
