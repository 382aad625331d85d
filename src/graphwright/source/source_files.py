"""Source files, parsed once: where statements, handlers and definitions stand."""

from __future__ import annotations

import ast
import dataclasses
import linecache
from collections.abc import Iterator

__all__ = ["Source", "source_of"]

_MOST_FILES = 256

_parsed: dict[str, Source] = {}  # by file name


@dataclasses.dataclass(frozen=True)
class Source:
    """A file: its lines, and what stands where. Without source that parses, everything is empty."""

    lines: list[str]
    statements: dict[int, list[ast.stmt]] = dataclasses.field(default_factory=dict)  # of a line, outermost first
    handlers: list[ast.Try] = dataclasses.field(default_factory=list)
    leavings: list[ast.Try | ast.With] = dataclasses.field(default_factory=list)  # what runs code however it is left
    definitions: dict[tuple[str, int], list[ast.FunctionDef | ast.Lambda]] = dataclasses.field(default_factory=dict)
    imports: set[str] = dataclasses.field(default_factory=set)  # names that are imported outside of functions

    def line(self, number: int) -> str:
        """The text of a line, counted from one; empty for one that is not there."""
        return self.lines[number - 1].strip() if 0 < number <= len(self.lines) else ""

    def read(self) -> None:
        """Parse the lines. Does nothing where they are no Python."""
        try:
            tree = ast.parse("".join(self.lines))
        except (SyntaxError, ValueError):
            return
        self.imports.update(_imported(tree.body))
        for node in ast.walk(tree):
            if isinstance(node, ast.stmt):
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
            elif isinstance(node, ast.Lambda):
                self.definitions.setdefault(("<lambda>", node.lineno), []).append(node)


def _imported(statements: list[ast.stmt]) -> Iterator[str]:
    for statement in statements:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            yield from [alias.asname or alias.name.partition(".")[0] for alias in statement.names]
        elif not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for block in ("body", "orelse", "finalbody", "handlers"):
                yield from _imported(getattr(statement, block, []))


def source_of(filename: str) -> Source:
    """The source of a file, which is read anew where its text has changed: a cell of a notebook."""
    lines = linecache.getlines(filename)
    known = _parsed.get(filename)
    if known is None or (known.lines is not lines and known.lines != lines):
        if len(_parsed) >= _MOST_FILES:
            _parsed.clear()
        known = Source(lines)
        known.read()
        _parsed[filename] = known
    return known
