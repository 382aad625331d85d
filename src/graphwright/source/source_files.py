"""Source files, each part of them parsed once: where statements, handlers and definitions stand."""

from __future__ import annotations

import ast
import bisect
import collections
import dataclasses
import linecache
from collections.abc import Iterable, Iterator

__all__ = ["Source", "source_of"]

_MOST_FILES = 256

_parsed: dict[str, Source] = {}  # by file name


@dataclasses.dataclass(eq=False)
class Part:
    """One definition at the top level of a file, or all the rest of it: what stands where, by lines of the file."""

    statements: dict[int, list[ast.stmt]] = dataclasses.field(default_factory=dict)  # of a line, outermost first
    handlers: list[ast.Try] = dataclasses.field(default_factory=list)
    leavings: list[ast.Try | ast.With] = dataclasses.field(default_factory=list)  # what runs code however it is left
    definitions: dict[tuple[str, int], list[ast.FunctionDef | ast.Lambda]] = dataclasses.field(default_factory=dict)
    imports: frozenset[str] = frozenset()  # names that are imported outside of functions

    @staticmethod
    def of(tree: ast.Module, has_lambdas: bool) -> Part:
        """Note what stands in a parsed text."""
        part = Part(imports=frozenset(_imported(tree.body)))
        for node in ast.walk(tree) if has_lambdas else _walk_statements(tree):
            if isinstance(node, ast.stmt):
                part._note(node)
            elif isinstance(node, ast.Lambda):
                part.definitions.setdefault(("<lambda>", node.lineno), []).append(node)
        return part

    def _note(self, node: ast.stmt) -> None:
        body = getattr(node, "body", None)
        last = body[0].lineno - 1 if body else node.end_lineno or node.lineno
        for line in range(node.lineno, max(last, node.lineno) + 1):
            self.statements.setdefault(line, []).append(node)
        if isinstance(node, ast.Try):
            self.handlers.append(node)
        if isinstance(node, ast.With) or (isinstance(node, ast.Try) and node.finalbody):
            self.leavings.append(node)
        if isinstance(node, ast.FunctionDef):
            first = min([node.lineno, *[decorator.lineno for decorator in node.decorator_list]])
            self.definitions.setdefault((node.name, first), []).append(node)


class Source:
    """A file: its lines, and its parts, which are parsed when they are asked for. What is no Python has none."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self._blocks = _definitions_in(lines)
        self._parts: dict[int, Part] = {}  # by number of the definition; -1 for what stands outside of them

    def line(self, number: int) -> str:
        """The text of a line, counted from one; empty for one that is not there."""
        return self.lines[number - 1].strip() if 0 < number <= len(self.lines) else ""

    def part(self, line: int) -> Part:
        """The part that a line is in."""
        at = bisect.bisect_right(self._blocks, (line, len(self.lines))) - 1
        return self._part(at if at >= 0 and line <= self._blocks[at][1] else -1)

    def statements(self, line: int) -> list[ast.stmt]:
        """The statements on a line, outermost first; those with a block inside stand where their heads do."""
        return self.part(line).statements.get(line, [])

    def definitions(self, name: str, line: int) -> list[ast.FunctionDef | ast.Lambda]:
        """The functions of a name that start on a line, where their decorators do."""
        return self.part(line).definitions.get((name, line), [])

    def handlers(self, first: int, last: int) -> list[ast.Try]:
        """The `try` statements that start on these lines, of one function or a whole module."""
        return [node for part in self._around(first, last) for node in part.handlers if first <= node.lineno <= last]

    def leavings(self, first: int, last: int) -> list[ast.Try | ast.With]:
        """The `with` statements, and those with a `finally`, that start on these lines."""
        return [node for part in self._around(first, last) for node in part.leavings if first <= node.lineno <= last]

    @property
    def imports(self) -> frozenset[str]:
        """The names that are imported outside of functions."""
        return self._part(-1).imports

    def _around(self, first: int, last: int) -> list[Part]:
        there = [n for n, (start, end) in enumerate(self._blocks) if start <= last and first <= end]
        is_inside = len(there) == 1 and self._blocks[there[0]][0] <= first and last <= self._blocks[there[0]][1]
        return [*map(self._part, there)] if is_inside else [*map(self._part, [*there, -1])]

    def _part(self, number: int) -> Part:
        known = self._parts.get(number)
        if known is None:
            known = self._parsed(number)
            if known is None:
                return self._whole()
            self._parts[number] = known
        return known

    def _parsed(self, number: int) -> Part | None:
        """Parse one part; None where it is none after all, as in a text over several lines that looks like Python."""
        if number >= 0:
            first, last = self._blocks[number]
            text = "\n" * (first - 1) + "".join(self.lines[first - 1 : last])
        else:
            lines = self.lines.copy()
            for first, last in self._blocks:
                lines[first - 1 : last] = ["\n"] * (last - first + 1)
            text = "".join(lines)
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError):
            return None
        return Part.of(tree, "lambda" in text) if number < 0 or len(tree.body) == 1 else None

    def _whole(self) -> Part:
        """Parse the whole file as one part; an empty one where it is no Python."""
        self._blocks = []
        self._parts = {-1: self._parsed(-1) or Part()}
        return self._parts[-1]


_STARTS = ("def ", "class ", "async def ", "@")
_GOES_ON = " \t\f\r\n#)]}"  # how lines begin that go on with what is before them


def _definitions_in(lines: list[str]) -> list[tuple[int, int]]:
    """The first and last lines of the functions and classes of a file, with their decorators, by how lines begin.

    >>> _definitions_in(["import a\\n", "@a.b\\n", "def f(\\n", "    x\\n", "):\\n", "    pass\\n", "y = 3\\n"])
    [(2, 6)]
    """
    found, first, is_decorated = [], 0, False
    for number, line in enumerate(lines, 1):
        if line[:1] in _GOES_ON:
            continue
        if first and not is_decorated:
            found.append((first, number - 1))
            first = 0
        is_start = line.startswith(_STARTS)
        first, is_decorated = (first or number if is_start else 0), line[0] == "@"
    return [*found, (first, len(lines))] if first else found


def _walk_statements(tree: ast.Module) -> Iterator[ast.AST]:
    """Iterate over statements as `ast.walk` does, without going into expressions."""
    waiting: collections.deque[ast.AST] = collections.deque(tree.body)
    while waiting:
        node = waiting.popleft()
        yield node
        for block in ("body", "handlers", "orelse", "finalbody", "cases"):
            waiting.extend(getattr(node, block, ()))


def _imported(statements: Iterable[ast.AST]) -> Iterator[str]:
    for statement in statements:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            yield from [alias.asname or alias.name.partition(".")[0] for alias in statement.names]
        elif not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for block in ("body", "orelse", "finalbody", "handlers"):
                yield from _imported(getattr(statement, block, ()))


def source_of(filename: str) -> Source:
    """The source of a file, which is read anew where its text has changed: a cell of a notebook."""
    lines = linecache.getlines(filename)
    known = _parsed.get(filename)
    if known is None or (known.lines is not lines and known.lines != lines):
        if len(_parsed) >= _MOST_FILES:
            _parsed.clear()
        known = _parsed[filename] = Source(lines)
    return known
