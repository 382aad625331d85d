"""Breaking long lines of generated code, inside their brackets, where Python allows it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_OPEN, _CLOSE = "([{", ")]}"
_FEW = 24  # characters: brackets with fewer in them are not broken where the expression may stand in its own


def wrap(text: str, indent: str, width: int = 112) -> str:
    """Break one statement where it, indented, is longer than `width`: inside its last outermost brackets, mostly.

    These are broken at their commas; of a definition they are those around its parameters, and a comprehension is
    broken before what it goes over. Where they hold little, or what is before them is too long, the expression of the
    statement gets brackets of its own, and is broken before its operators if it must be.

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
    >>> print(wrap("y = alpha(x).beta * gamma", "", 20))
    y = (
        alpha(x).beta
        * gamma
    )
    """
    if len(indent) + len(text) <= width:
        return text
    signature, arrow, _ = text.rpartition(" -> ") if text.startswith("def ") else ("", "", "")
    group = _last_group(signature if arrow else text)
    broken = None if group is None else _in_brackets(text, group, indent, width)
    if arrow or (broken is not None and group is not None and not group.is_small and _fits(broken, width)):
        return broken or text
    is_better = broken is None or group is None or group.is_small or not _begins_well(broken, indent, width)
    return _in_own_brackets(text, indent, width, is_better) or broken or text


def _fits(text: str, width: int) -> bool:
    return all(len(line) <= width for line in text.split("\n"))


def _begins_well(text: str, indent: str, width: int) -> bool:
    return len(indent) + len(text.partition("\n")[0]) <= width


def _in_brackets(text: str, group: _Group, indent: str, width: int) -> str | None:
    """Break a text inside of brackets; None where there is nothing in them to break at."""
    start, end = group.start, group.end
    after = [i + 1 if text[i] == "," else i for i in group.breaks]
    parts = [text[a:b].strip() for a, b in zip([start + 1, *after], [*group.breaks, end], strict=True)]
    if not all(parts):
        return None  # an empty call, or a one-tuple's trailing comma
    inner = indent + "    "
    if group.is_comprehension or len(parts) == 1:  # `(x,)` and `y[x,]` would be tuples
        lines = [_part(part, inner, width) for part in parts]
    else:
        lines = [""]
        for part in parts:
            if lines[-1] and len(inner) + len(lines[-1].rpartition("\n")[2]) + len(part) + 2 > width:
                lines.append("")
            lines[-1] += f"{' ' if lines[-1] else ''}{_part(part, inner, width - 1)},"
    body = "".join(f"\n{inner}{line}" for line in lines)
    return f"{text[: start + 1]}{body}\n{indent}{text[end:]}"


def _part(text: str, indent: str, width: int) -> str:
    """Break what stands inside of brackets, where a line may end before every operator."""
    if len(indent) + len(text) <= width:
        return text
    group = _last_group(text)
    broken = None if group is None else _in_brackets(text, group, indent, width)
    if broken is not None and group is not None and not group.is_small and _begins_well(broken, indent, width):
        return broken
    operands = _operands(text)
    if len(operands) == 1:
        return broken or text
    first, *others = [_part(operand, f"{indent}    " if i else indent, width) for i, operand in enumerate(operands)]
    return "".join([first, *[f"\n{indent}    {other}" for other in others]])


def _in_own_brackets(text: str, indent: str, width: int, may_be_broken: bool) -> str | None:
    """Put brackets around the expression of a statement, where it fits there or may be broken before its operators."""
    start, end = _expression(text)
    if start == end:
        return None
    inner = f"{indent}    "
    expression = text[start:end]
    if len(inner) + len(expression) <= width:
        lines = [expression]
    else:
        lines = [_part(operand, inner, width) for operand in _operands(expression)]
        if len(lines) == 1 or not may_be_broken:
            return None
    body = "".join(f"\n{inner}{line}" for line in lines)
    return f"{text[:start]}({body}\n{indent}){text[end:]}"


def _expression(text: str) -> tuple[int, int]:
    """Where the expression of a statement stands that may get brackets of its own; two equal numbers if it has none."""
    start, end = 0, len(text)
    keyword = _KEYWORD.match(text)
    if keyword is not None:
        start = keyword.end()
        end -= text.endswith(":")
    for token, at in _outside(text):
        if token in (";", "lambda", "for") or (keyword is not None and token == ":" and at != end):
            return 0, 0
        if token.endswith("= "):
            start = at + len(token)
    return (start, end) if start else (0, 0)


_KEYWORD = re.compile(r"(?:return|if|elif|while) ")
# By how loosely they bind: the operators before which an expression may be broken.
_OPERATORS = [
    re.compile(rf" (?={operator} )")
    for operator in ("(?:if|else)", "or", "and", "(?:<=?|>=?|==|!=)", r"\|", r"\^", "&", "[-+]", "(?:\\*|//?|%|@)")
]
_SPACE = "|".join(operator.pattern for operator in _OPERATORS)


def _operands(text: str) -> list[str]:
    """Cut an expression before those of its operators that bind most loosely."""
    spaces = [at for token, at in _outside(text) if token == " "]
    if any(token == "lambda" for token, _ in _outside(text)):
        return [text]
    for operator in _OPERATORS:
        cuts = [at for at in spaces if operator.match(text, at)]
        if cuts:
            return [text[a:b].strip() for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    return [text]


def _outside(text: str) -> Iterator[tuple[str, int]]:
    """The words and signs outside of all brackets and strings that say how a statement may be broken."""
    depth = 0
    for match in _SIGN.finditer(text):
        token = match[0]
        if token in _OPEN:
            depth += 1
        elif token in _CLOSE:
            depth -= 1
        elif depth == 0 and token[0] not in "'\"":
            yield token, match.start()


class _Group(NamedTuple):
    """Where brackets open and close, and where what is directly inside may be broken: at its commas, or its `for`s."""

    start: int
    end: int
    breaks: list[int]
    is_comprehension: bool

    @property
    def is_small(self) -> bool:
        """Whether breaking there would make three lines of few words."""
        return self.end - self.start < _FEW


_STRING = r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*\""""
# A string, what opens or closes, a comma or colon, or a word; names of attributes are no words.
_TOKEN = re.compile(rf"(?:{_STRING}|[([{{]|[)\]}}]|[,:]|(?<![\w.])(?:for|lambda)(?!\w))")
_ASSIGNS = r" (?:[-+*/%@&|^]|//|\*\*|<<|>>)?= "
# The same with what ends a statement, assigns, or stands before an operator.
_SIGN = re.compile(rf"(?:{_STRING}|[([{{]|[)\]}}]|[:;]|(?<![\w.])(?:for|lambda)(?!\w)|{_ASSIGNS}|{_SPACE})")


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
