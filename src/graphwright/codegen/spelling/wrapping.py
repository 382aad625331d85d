"""Breaking long lines of generated code, inside their brackets, where Python allows it."""

from __future__ import annotations

__all__ = ["wrap"]

_OPEN, _CLOSE = "([{", ")]}"


def wrap(text: str, indent: str, width: int = 112) -> str:
    """Break one statement at the commas of its last outermost brackets where it, indented, is longer than `width`.

    Of a definition these are the brackets around its parameters.

    >>> print(wrap("y = f(alpha, beta, gamma)", "", 20))
    y = f(
        alpha, beta,
        gamma,
    )
    """
    if len(indent) + len(text) <= width:
        return text
    signature, arrow, _ = text.rpartition(" -> ") if text.startswith("def ") else ("", "", "")
    group = _last_group(signature if arrow else text)
    if group is None:
        return text
    start, end, commas = group
    if not commas and text[start] != "(":
        return text
    parts = [text[a:b].strip() for a, b in zip([start + 1, *[c + 1 for c in commas]], [*commas, end], strict=True)]
    if not all(parts):
        return text  # an empty call, or a one-tuple's trailing comma
    inner = indent + "    "
    lines = [""]
    for part in parts:
        if lines[-1] and len(inner) + len(lines[-1]) + len(part) + 2 > width:
            lines.append("")
        lines[-1] += f"{' ' if lines[-1] else ''}{part},"
    if text[start] == "(" and len(parts) == 1:
        lines = [parts[0]]  # `(x,)` would be a tuple
    body = "".join(f"\n{inner}{line}" for line in lines)
    return f"{text[: start + 1]}{body}\n{indent}{text[end:]}"


def _last_group(text: str) -> tuple[int, int, list[int]] | None:
    """Where the last outermost brackets open and close, and the commas directly inside; strings are skipped."""
    found: tuple[int, int, list[int]] | None = None
    depth, start, commas = 0, 0, list[int]()
    quote = ""
    i = 0
    while i < len(text):
        char = text[i]
        if quote:
            if char == "\\":
                i += 1
            elif char == quote:
                quote = ""
        elif char in "'\"":
            quote = char
        elif char in _OPEN:
            if depth == 0:
                start, commas = i, []
            depth += 1
        elif char in _CLOSE:
            depth -= 1
            if depth == 0:
                found = start, i, commas
        elif char == "," and depth == 1:
            commas.append(i)
        i += 1
    return found
