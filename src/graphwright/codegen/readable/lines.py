"""Statements as indented lines with comments: `with` blocks, and native `if`, `while` and `for` for regions."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import os
from collections.abc import Iterable
from typing import Any

from graphwright.codegen.readable.nesting import function_key, statement_key
from graphwright.codegen.readable.user_statements import is_from_return
from graphwright.codegen.readable.writer import Block, ReadableWriter
from graphwright.codegen.spelling.wrapping import wrap
from graphwright.ir import Node, Origin
from graphwright.ops import exit_context, raise_error


@dataclasses.dataclass(slots=True)
class Line:
    """One line of a function, or one statement over several: its node, the comments before it, its text."""

    node: Node
    comment: str
    indent: str
    code: str

    @property
    def text(self) -> str:
        """The line as it stands in the function."""
        return self.indent + self.code


# ---- lines


def lines_of(writer: ReadableWriter, frees: bool = True) -> list[Line]:
    """Write the body of a function; with `frees`, say of each variable where it is used no more."""
    lines = _Lines(writer, frees).of(writer, "    ")
    for before, line in itertools.pairwise(lines):
        if len(line.indent) > len(before.indent):  # no block begins with an empty line
            line.comment = line.comment.removeprefix("\n")
    return lines


_WIDTH = 112  # beyond which a `del` gets a line of its own, and a further one


def _deletion(names: Iterable[str], indent: str) -> str:
    """Write that variables are used no more, on as many lines as they take."""
    lines: list[str] = []
    for name in names:
        if lines and len(indent) + len(lines[-1]) + len(name) + 2 <= _WIDTH:
            lines[-1] += f", {name}"
        else:
            lines.append(f"del {name}")
    return f"\n{indent}".join(lines)


class _Lines:
    def __init__(self, root: ReadableWriter, frees: bool) -> None:
        self._root, self._frees = root, frees
        self._comments = _Comments()

    def of(self, writer: ReadableWriter, indent: str) -> list[Line]:
        plan, exits = writer.plan, writer.exits
        closing = {exit_node: enter for enter, exit_node in exits.items()}
        free = _free_after(writer) if self._frees else {}
        out: list[Line] = []
        for i, statement in enumerate(plan):
            node, code = statement.node, statement.code
            if node in closing:
                if out and out[-1].node is closing[node]:
                    out.append(Line(node, "", indent, "pass"))
                indent = indent[:-4]
            dead = _deletion(map(writer.name, free[i]), indent) if i in free and node not in exits else ""
            if node in closing:
                if dead:
                    out.append(Line(node, "", indent, dead))
                continue
            is_end_of_body = node._op == "output" and writer is not self._root and not _returns(writer, node)
            comment = "" if is_end_of_body else self._comments.before(node, indent)
            if isinstance(code, Block):
                lines = self._block(node, code, indent)
                lines[0].comment = comment + lines[0].comment
                out += lines
                if dead and not code.leaves:
                    out.append(Line(node, "", indent, dead))
            elif code:
                line = wrap(code, indent)
                fits = len((indent + line).rpartition("\n")[2]) + len(dead) <= _WIDTH
                after = "" if not dead else f";  {dead}" if fits else f"\n{indent}{dead}"
                out.append(Line(node, comment, indent, line + after))
            if node in exits:
                indent += "    "
        return out

    def _block(self, node: Node, block: Block, indent: str) -> list[Line]:
        out: list[Line] = []
        before = ""
        for clause in block.clauses:
            was_if, before = before == "if", clause.keyword
            if clause.keyword == "else" and was_if and _is_one_if(clause.body):
                lines = self._inside(node, clause.body, indent)
                lines[0].code = f"el{lines[0].code}"
                out += lines
            elif not clause.keyword:
                out += self._inside(node, clause.body, indent)
            else:
                out.append(Line(node, "", indent, wrap(clause.header, indent)))
                comments = copy.copy(self._comments)
                if clause.keyword in ("for", "while"):
                    self._comments.enter(node)
                out += self._inside(node, clause.body, indent + "    ") or [Line(node, "", f"{indent}    ", "pass")]
                self._comments.around = comments.around
                if clause.keyword == "def" or comments.function == self._comments.function:
                    self._comments = comments  # what comes after it goes on with the statement before it
        return out

    def _inside(self, node: Node, body: list[ReadableWriter | str], indent: str) -> list[Line]:
        out: list[Line] = []
        for part in body:
            if isinstance(part, str):
                out.append(Line(node, "", indent, wrap(part, indent)))
            else:
                out += self.of(part, indent)
        return out


def _returns(writer: ReadableWriter, output: Node) -> bool:
    """Tell whether the end of a body is what a `return` of the program gives."""
    return writer.ending is None and is_from_return(output)


def _leaves(writer: ReadableWriter, last: Node) -> bool:
    """Tell whether the last statement of a body returns or raises."""
    return writer.is_end or last._target is raise_error or (last._op == "output" and writer.ending is None)


def _is_one_if(body: list[ReadableWriter | str]) -> bool:
    """Tell whether a body is just another branch: the two are written as `elif`."""
    writer = body[0]
    assert not isinstance(writer, str)
    statements = writer.written()
    if len(statements) != 1 or not isinstance(statements[0].code, Block) or _free_after(writer):
        return False
    first, *_ = clauses = statements[0].code.clauses
    return first.keyword == "if" and all(clause.keyword for clause in clauses)


def _free_after(writer: ReadableWriter) -> dict[int, list[Node]]:
    """Map each statement, by its number, to the named values that nothing reads after it."""
    last: dict[Node, int] = {}
    plan = writer.plan
    for i, statement in enumerate(plan):
        for used in statement.reads:
            last[writer.holder(used)] = i
    kept = set(map(writer.holder, writer.kept))
    free: dict[int, list[Node]] = {}
    ends = (i for i, statement in enumerate(plan) if statement.code and statement.node not in writer.left_after)
    end = max(ends, default=None)
    leaves = end is not None and _leaves(writer, plan[end].node)
    for used, i in last.items():
        if used._op == "placeholder" or used in writer.exits or used in kept or (i == end and leaves):
            continue
        free.setdefault(i, []).append(used)
    return free


# ---- comments


class _Comments:
    """The comments before statements: which function the code comes from, and the source line, each said once."""

    def __init__(self) -> None:
        self.function: tuple[Any, ...] | None = None
        self._statement: tuple[Any, ...] | None = None
        self.around: frozenset[Any] = frozenset()  # the statements of the loops around

    def enter(self, loop: Node) -> None:
        """Say the line of a loop above it only, not inside of it again."""
        if loop.origin is not None:
            self.around |= {statement_key(loop)}

    def before(self, node: Node, indent: str) -> str:
        """The lines to write before a statement."""
        origin: Origin | None = node.origin
        if origin is None or node._op == "placeholder" or node._target is exit_context:
            return ""
        lines = []
        function = function_key(node)
        if function != self.function:
            where = f", {function[2]}" if function[2] else ""
            lines += ["", f"# {origin.function} ({os.path.basename(origin.file)}){where}"]
            self.function, self._statement = function, None
        if statement_key(node) not in (self._statement, *self.around) and origin.source:
            lines.append(f"# {origin.statement}: {origin.source}")
            self._statement = statement_key(node)
        # What a comment quotes must not end it.
        return "".join(f"{indent}{' '.join(line.splitlines())}\n" if line else "\n" for line in lines)
