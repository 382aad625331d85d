"""Source files, each part of them parsed once: where statements, handlers and definitions stand."""

from __future__ import annotations

import ast
import bisect
import collections
import dataclasses
import functools
import linecache
from collections.abc import Iterator

from graphwright.source.suppressing import suppressing

_MOST_FILES = 256

_parsed: dict[str, Source] = {}  # by file name


@dataclasses.dataclass(eq=False)
class Part:
    """One function, or all of a file that is outside of functions: what stands where, by lines of the file."""

    statements: dict[int, list[ast.stmt]] = dataclasses.field(default_factory=dict)  # of a line, outermost first
    handlers: list[ast.Try] = dataclasses.field(default_factory=list)  # and what catches as they do
    leavings: list[ast.Try | ast.With] = dataclasses.field(default_factory=list)  # what runs code however it is left
    definitions: dict[tuple[str, int], list[ast.FunctionDef | ast.Lambda]] = dataclasses.field(default_factory=dict)

    @staticmethod
    def of(body: list[ast.stmt], has_lambdas: bool) -> Part:
        """Note what stands in parsed statements."""
        part = Part()
        tree = ast.Module(body, [])
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
        elif isinstance(node, ast.With):
            self.handlers += suppressing(node)
        if isinstance(node, ast.With) or (isinstance(node, ast.Try) and node.finalbody):
            self.leavings.append(node)
        if isinstance(node, ast.FunctionDef):
            first = min([node.lineno, *[decorator.lineno for decorator in node.decorator_list]])
            self.definitions.setdefault((node.name, first), []).append(node)


class Source:
    """A file: its lines, and its parts, which are parsed when they are asked for. What is no Python has none.

    Parts are functions at the top level, and methods of classes there; or a class without any.
    """

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
        """The `try` statements, and what stands for one, that start on these lines of a function or a whole module."""
        return [node for part in self._around(first, last) for node in part.handlers if first <= node.lineno <= last]

    def leavings(self, first: int, last: int) -> list[ast.Try | ast.With]:
        """The `with` statements, and those with a `finally`, that start on these lines."""
        return [node for part in self._around(first, last) for node in part.leavings if first <= node.lineno <= last]

    @functools.cached_property
    def imports(self) -> frozenset[str]:
        """The names that are imported outside of functions, by lines that begin as imports do: without parsing more."""
        inside = {number for first, last in self._blocks for number in range(first, last + 1)}
        found: set[str] = set()
        for number, line in enumerate(self.lines, 1):
            may_import = "import " in line or "from " in line
            if may_import and number not in inside and line.lstrip().startswith(("import ", "from ")):
                found.update(_imported_by(self.lines[number - 1 : number - 1 + _LONGEST_IMPORT]))
        return frozenset(found)

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
        is_method = False
        if number >= 0:
            first, last = self._blocks[number]
            text = "".join(self.lines[first - 1 : last])
            is_method = text[0] in _SPACES
            text = ("\n" * (first - 2) + "class _:\n" if is_method else "\n" * (first - 1)) + text
        else:
            lines = self.lines.copy()
            for first, last in self._blocks:
                line = lines[first - 1]
                lines[first - 1 : last] = ["\n"] * (last - first + 1)
                if line[0] in _SPACES:  # a class has a body
                    lines[first - 1] = f"{line[: len(line) - len(line.lstrip())]}pass\n"
            text = "".join(lines)
        try:
            body = ast.parse(text).body
        except (SyntaxError, ValueError):
            return None
        if number >= 0 and (len(body) != 1 or (is_method and len(body[0].body) != 1)):  # type: ignore[attr-defined]
            return None
        return Part.of(body, "lambda" in text)

    def _whole(self) -> Part:
        """Parse the whole file as one part; an empty one where it is no Python."""
        self._blocks = []
        self._parts = {-1: self._parsed(-1) or Part()}
        return self._parts[-1]


_SPACES = " \t"
_HEADS = ("class ", "def ", "async def ")
_STARTS = ("def ", "class ", "async def ", "@")
_GOES_ON = " \t\f\r\n#)]}"  # how lines begin that go on with what is before them


def _definitions_in(lines: list[str]) -> list[tuple[int, int]]:
    """The first and last lines of the functions and methods of a file, with their decorators, by how lines begin.

    A class that has no methods is one, too.

    >>> _definitions_in(["import a\\n", "@a.b\\n", "def f(\\n", "    x\\n", "):\\n", "    pass\\n", "y = 3\\n"])
    [(2, 6)]
    >>> _definitions_in(["class A:\\n", "    x = 1\\n", "    def f(self):\\n", "        pass\\n", "    y = 3\\n"])
    [(3, 4)]
    """
    found: list[tuple[int, int]] = []
    for first, last in _blocks_in(lines, 1, len(lines), ""):
        block = lines[first - 1 : last]
        head = next((line for line in block if line.startswith(_HEADS)), "")
        inside = (line for line in block if line[0] in _SPACES) if head[:1] == "c" else ()
        indents = [line[: len(line) - len(each)] for line in inside if (each := line.lstrip()).startswith(_STARTS)]
        found += (_blocks_in(lines, first, last, min(indents, key=len)) if indents else []) or [(first, last)]
    return found


def _blocks_in(lines: list[str], start: int, end: int, indent: str) -> list[tuple[int, int]]:
    """The first and last of these lines of each definition that is indented so far."""
    found, first, is_decorated = [], 0, False
    depth = len(indent)
    for number in range(start, end + 1):
        line = lines[number - 1]
        if (indent and line[:depth] != indent) or line[depth : depth + 1] in _GOES_ON:
            continue
        if first and not is_decorated:
            found.append((first, number - 1))
            first = 0
        is_start = line.startswith(_STARTS, depth)
        first, is_decorated = (first or number if is_start else 0), line[depth] == "@"
    return [*found, (first, end)] if first else found


def _walk_statements(tree: ast.Module) -> Iterator[ast.AST]:
    """Iterate over statements as `ast.walk` does, without going into expressions."""
    waiting: collections.deque[ast.AST] = collections.deque(tree.body)
    while waiting:
        node = waiting.popleft()
        yield node
        for block in ("body", "handlers", "orelse", "finalbody", "cases"):
            waiting.extend(getattr(node, block, ()))


_LONGEST_IMPORT = 1_000


def _imported_by(lines: list[str]) -> list[str]:
    """The names that the import which begins some lines gives; none where they only look as if they did.

    >>> _imported_by(["    from a import (b as c,\\n", "        d)\\n", "x = 1\\n"])
    ['c', 'd']
    """
    text = ""
    for line in lines:
        text += line
        if text.count("(") <= text.count(")") and not line.rstrip().endswith("\\"):
            break
    try:
        statement = ast.parse(text.strip()).body[0]
    except (SyntaxError, ValueError):
        return []
    names = statement.names if isinstance(statement, ast.Import | ast.ImportFrom) else []
    return [alias.asname or alias.name.partition(".")[0] for alias in names]


def source_of(filename: str) -> Source:
    """The source of a file, which is read anew where its text has changed: a cell of a notebook."""
    lines = linecache.getlines(filename)
    known = _parsed.get(filename)
    if known is None or (known.lines is not lines and known.lines != lines):
        if len(_parsed) >= _MOST_FILES:
            _parsed.clear()
        known = _parsed[filename] = Source(lines)
    return known
