"""Breaking long lines of generated code, inside their brackets, where Python allows it."""

from __future__ import annotations

import re
from typing import NamedTuple

_OPEN, _CLOSE = "([{", ")]}"


def wrap(text: str, indent: str, width: int = 112) -> str:
    """Break one statement at the commas of its last outermost brackets where it, indented, is longer than `width`.

    Of a definition these are the brackets around its parameters. A comprehension is broken before what it goes over.

    >>> print(wrap("y = f(alpha, beta, gamma)", "", 20))
    y = f(
        alpha, beta,
        gamma,
    )
    >>> print(wrap("y = [a * b for a, b in pairs]", "", 20))
    y = [
        a * b
        for a, b in pairs
    ]
    """
    if len(indent) + len(text) <= width:
        return text
    signature, arrow, _ = text.rpartition(" -> ") if text.startswith("def ") else ("", "", "")
    group = _last_group(signature if arrow else text)
    if group is None or (not group.breaks and text[group.start] != "("):
        return text
    start, end = group.start, group.end
    after = [i + 1 if text[i] == "," else i for i in group.breaks]
    parts = [text[a:b].strip() for a, b in zip([start + 1, *after], [*group.breaks, end], strict=True)]
    if not all(parts):
        return text  # an empty call, or a one-tuple's trailing comma
    inner = indent + "    "
    if group.is_comprehension or (text[start] == "(" and len(parts) == 1):  # `(x,)` would be a tuple
        lines = parts
    else:
        lines = [""]
        for part in parts:
            if lines[-1] and len(inner) + len(lines[-1]) + len(part) + 2 > width:
                lines.append("")
            lines[-1] += f"{' ' if lines[-1] else ''}{part},"
    body = "".join(f"\n{inner}{line}" for line in lines)
    return f"{text[: start + 1]}{body}\n{indent}{text[end:]}"


class _Group(NamedTuple):
    """Where brackets open and close, and where what is directly inside may be broken: at its commas, or its `for`s."""

    start: int
    end: int
    breaks: list[int]
    is_comprehension: bool


# A string, what opens or closes, a comma or colon, or a word; names of attributes are no words.
_TOKEN = re.compile(r"""(?:'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")|[([{]|[)\]}]|[,:]|(?<![\w.])(?:for|lambda)(?!\w)""")


def _last_group(text: str) -> _Group | None:
    """The last outermost brackets."""
    found: _Group | None = None
    depth = start = 0
    breaks: list[int] = []
    loops: list[int] = []
    is_in_lambda = False  # whose parameters have commas of their own
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token in _OPEN:
            if depth == 0:
                start, breaks, loops, is_in_lambda = match.start(), [], [], False
            depth += 1
        elif token in _CLOSE:
            depth -= 1
            if depth == 0:
                found = _Group(start, match.start(), loops or breaks, bool(loops))
        elif depth == 1:
            if token == "lambda":
                is_in_lambda = True
            elif token == ":":
                is_in_lambda = False
            elif token == "for":
                loops.append(match.start())
            elif token == "," and not is_in_lambda:
                breaks.append(match.start())
    return found
