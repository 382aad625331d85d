"""Statements as indented lines with comments: `with` blocks, and native `if`, `while` and `for` for regions.

A branch whose bodies are single expressions is an expression, `a if p else b`, `p and a`. The variables that a
branch gives values to are assigned inside it; where its value is what the program returns, it returns inside.
"""

from __future__ import annotations

import copy
import dataclasses
import os
from typing import TYPE_CHECKING, Any

from graphwright.codegen.nesting import statement_key, unpacked_items
from graphwright.codegen.operators import AND_THEN, NOT, OR_ELSE, TERNARY
from graphwright.codegen.wrapping import wrap
from graphwright.errors import GraphError
from graphwright.ir import Graph, Node
from graphwright.ops import cond, exit_context, loop_parts, while_loop

if TYPE_CHECKING:
    from graphwright.codegen.readable import _ReadableWriter
    from graphwright.ir import Origin

__all__ = ["Block", "Line", "Text", "assignments", "block_of", "branch_expression", "lines_of"]

_LONGEST_EXPRESSION = 88


class Text(str):
    """A piece of code where a value is expected."""

    __slots__ = ()


@dataclasses.dataclass(slots=True)
class Line:
    """One line of a function, or one statement over several: its node, the comments before it, its text."""

    node: Node
    comment: str
    text: str


@dataclasses.dataclass(slots=True)
class Block:
    """A compound statement: plain lines, and headers each with the body that it opens."""

    parts: list[tuple[str, list[_ReadableWriter | str]]]
    returns: bool = False  # whether its bodies return: then nothing comes after it


# ---- lines


def lines_of(writer: _ReadableWriter) -> list[Line]:
    """Write the body of a function."""
    return _Lines(writer).of(writer, "    ")


_WIDTH = 112  # beyond which a `del` gets a line of its own


class _Lines:
    def __init__(self, root: _ReadableWriter) -> None:
        self._root = root
        root.plan = root.statements()
        self._comments = _Comments()

    def of(self, writer: _ReadableWriter, indent: str) -> list[Line]:
        plan, exits = writer.plan, writer.exits
        closing = {exit_node: enter for enter, exit_node in exits.items()}
        free = _free_after(writer)
        out: list[Line] = []
        for i, (node, text, _) in enumerate(plan):
            dead = f"del {', '.join(map(writer.name, free[i]))}" if i in free and node not in exits else ""
            if node in closing:
                if out and out[-1].node is closing[node]:
                    out.append(Line(node, "", f"{indent}pass"))
                indent = indent[:-4]
                if dead:
                    out.append(Line(node, "", f"{indent}{dead}"))
                continue
            is_end_of_body = node._op == "output" and writer is not self._root and not _returns(writer, node)
            comment = "" if is_end_of_body else self._comments.before(node, indent)
            if isinstance(text, Block):
                lines = self._block(node, text, indent)
                lines[0].comment = comment + lines[0].comment
                out += lines
                if dead and not text.returns:
                    out.append(Line(node, "", f"{indent}{dead}"))
            elif text:
                line = indent + wrap(text, indent)
                fits = len(line.rpartition("\n")[2]) + len(dead) <= _WIDTH
                after = "" if not dead else f";  {dead}" if fits else f"\n{indent}{dead}"
                out.append(Line(node, comment, line + after))
            if node in exits:
                indent += "    "
        return out

    def _block(self, node: Node, block: Block, indent: str) -> list[Line]:
        out: list[Line] = []
        for header, body in block.parts:
            if header == "else:" and _is_one_if(body):
                lines = self._inside(node, body, indent)
                lines[0].text = f"{indent}el{lines[0].text.removeprefix(indent)}"
                out += lines
            elif not header:
                out += self._inside(node, body, indent)
            else:
                out.append(Line(node, "", indent + wrap(header, indent)))
                comments = copy.copy(self._comments)
                out += self._inside(node, body, indent + "    ") or [Line(node, "", f"{indent}    pass")]
                if header.startswith("def "):  # what comes after it goes on with the statement before it
                    self._comments = comments
        return out

    def _inside(self, node: Node, body: list[_ReadableWriter | str], indent: str) -> list[Line]:
        out: list[Line] = []
        for part in body:
            if isinstance(part, str):
                out.append(Line(node, "", indent + wrap(part, indent)))
            else:
                out += self.of(part, indent)
        return out


def _returns(writer: _ReadableWriter, output: Node) -> bool:
    """Tell whether the end of a body is what a `return` of the program gives."""
    return writer.targets is None and output.origin is not None and output.origin.source.startswith("return ")


def _is_one_if(body: list[_ReadableWriter | str]) -> bool:
    """Tell whether a body is just another branch: the two are written as `elif`."""
    writer = body[0]
    assert not isinstance(writer, str)
    statements = [text for _, text, _ in writer.plan if text]
    if len(statements) != 1 or not isinstance(statements[0], Block) or _free_after(writer):
        return False
    parts = statements[0].parts
    return parts[0][0].startswith("if ") and all(header for header, _ in parts)


def _free_after(writer: _ReadableWriter) -> dict[int, list[Node]]:
    """Map each statement, by its number, to the named values that nothing reads after it."""
    last: dict[Node, int] = {}
    plan = writer.plan
    for i, (_, _, read) in enumerate(plan):
        for used in read:
            last[used] = i
    free: dict[int, list[Node]] = {}
    end = len(plan) - 1
    returns = bool(plan) and plan[end][0]._op == "output" and writer.targets is None
    for used, i in last.items():
        if used._op == "placeholder" or used in writer.exits or used in writer.kept or (i == end and returns):
            continue
        free.setdefault(i, []).append(used)
    return free


# ---- branches and loops


def branch_expression(writer: _ReadableWriter, node: Node) -> tuple[str, int] | None:
    """Write a branch as an expression, where both its bodies are expressions; else None."""
    known = writer.expressions.get(node)
    if known is not None:
        return known
    pred, true, false, operands = node._args
    if unpacked_items(node) or not node.users or not isinstance(true, Graph) or not isinstance(false, Graph):
        return None
    sides = []
    for body in (true, false):
        inner = writer.body(body, operands, None)
        if [kept._op for kept, _, _ in inner.plan] != ["output"]:
            return None
        sides.append(inner)
    test = writer.value(pred)
    then, other = (_in_place(inner.result_text, strength) for inner, strength in zip(sides, _STRENGTHS, strict=True))
    bare = _is_operand(true, operands, pred), _is_operand(false, operands, pred)
    if bare[1] and not bare[0]:  # `p and a`
        text = f"{writer.operand(pred, AND_THEN)} and {_in_place(sides[0].result_text, NOT)}", AND_THEN
    elif bare[0] and not bare[1]:
        text = f"{writer.operand(pred, OR_ELSE)} or {_in_place(sides[1].result_text, AND_THEN)}", OR_ELSE
    else:
        text = f"{then} if {writer.operand(pred, OR_ELSE)} else {other}", TERNARY
    if len(text[0]) > _LONGEST_EXPRESSION or len(test) > _LONGEST_EXPRESSION:
        return None
    writer.expressions[node] = text
    return text


_STRENGTHS = (OR_ELSE, TERNARY)  # of what stands before `if` and after `else`


def _in_place(text: tuple[str, int], strength: int) -> str:
    return text[0] if text[1] >= strength else f"({text[0]})"


def _value(body: Graph) -> Any:
    return body.output_node()._args[0]


def _is_operand(body: Graph, operands: Any, wanted: Any) -> bool:
    """Tell whether a body gives back one of its inputs, and that is the wanted value."""
    inputs = [node for node in body.nodes if node._op == "placeholder"]
    value = _value(body)
    return type(value) is Node and value in inputs and operands[inputs.index(value)] is wanted


def block_of(writer: _ReadableWriter, node: Node) -> Block:
    """Write a region as a compound statement."""
    bodies = [arg for arg in node._args if isinstance(arg, Graph)]
    if len(bodies) != (1 if node._target not in (cond, while_loop) else 2):
        raise GraphError(f"{node.name!r} has bodies that are no graphs: they cannot be written", at=node.origin)
    if node._target is cond:
        return _branch(writer, node)
    return _loop(writer, node)


def _branch(writer: _ReadableWriter, node: Node) -> Block:
    pred, true, false, operands = node._args
    test = writer.value(pred)
    if writer.returned is node:
        writer.names.release(writer.name(node))  # no variable holds the value
        then = writer.body(true, operands, None)
        return Block([(f"if {test}:", [then]), ("", [writer.body(false, operands, None)])], returns=True)
    targets = _targets(writer, node)
    then, other = writer.body(true, operands, targets), writer.body(false, operands, targets)
    is_empty = [not any(text for _, text, _ in body.plan) for body in (then, other)]
    if is_empty[0] and not is_empty[1]:
        return Block([(f"if {writer.negation(pred)}:", [other])])
    if is_empty[1]:
        return Block([(f"if {test}:", [then])])
    return Block([(f"if {test}:", [then]), ("else:", [other])])


def _targets(writer: _ReadableWriter, node: Node) -> list[str]:
    """The variables that a region gives values to."""
    if not node.users:
        return []
    items = unpacked_items(node)
    if items is None:
        return [writer.name(node)]
    return [_unused_name(writer) if item is None else writer.name(item) for item in items]


def _unused_name(writer: _ReadableWriter) -> str:
    name = writer.names.new("_")
    writer.names.take(name)
    return name


def _loop(writer: _ReadableWriter, node: Node) -> Block:
    """Write a loop: its variables before it, then `for item in ...` or `while test`."""
    subject, body, carried, operands, breaks = loop_parts(node)
    if node.users and unpacked_items(node) is None:
        raise GraphError(f"the values of {node.name!r} are used as a whole: they cannot be written", at=node.origin)
    targets = _targets(writer, node) or [writer.names.new(f"{node.name}_{i}") for i in range(len(carried))]
    for target in targets:
        writer.names.take(target)
    before = assignments(targets, [writer.value(value) for value in carried], at_once=True)
    variables = [Text(target) for target in targets]
    ends: list[Any] = []
    given = targets
    if breaks:
        stop = writer.names.new("stop")
        writer.names.take(stop)
        given, ends = [stop, *targets], [f"if {stop}:", "    break"]
    if node._target is while_loop:
        inputs = [*variables, *operands]
        test = writer.body(subject, inputs, None)
        lines = writer.body(body, inputs, given, at_once=True)
        if [kept._op for kept, _, _ in test.plan] == ["output"]:
            loop: tuple[str, list[Any]] = f"while {test.value(_value(subject))}:", [lines, *ends]
        else:
            flag = writer.names.new("go_on")
            writer.names.take(flag)
            loop = "while True:", [writer.body(subject, inputs, [flag]), f"if not {flag}:", "    break", lines, *ends]
    else:
        first = next(inner for inner in body.nodes if inner._op == "placeholder")
        item = writer.names.new(first.name)
        writer.names.take(item)
        lines = writer.body(body, [Text(item), *variables, *operands], given, at_once=True)
        loop = f"for {item} in {writer.value(subject)}:", [lines, *ends]
    return Block([("", [before]), loop] if before else [loop])


def assignments(targets: list[str], values: list[str], at_once: bool) -> str:
    """Write that variables get values; all at once where a value may mention a variable."""
    pairs = [(target, value) for target, value in zip(targets, values, strict=True) if target != value]
    if at_once:
        left, right = ", ".join(target for target, _ in pairs), ", ".join(value for _, value in pairs)
        return f"{left} = {right}" if pairs else ""
    return ";  ".join(f"{target} = {value}" for target, value in pairs)


# ---- comments


class _Comments:
    """The comments before statements: which function the code comes from, and the source line, each said once."""

    def __init__(self) -> None:
        self._function: tuple[Any, ...] | None = None
        self._statement: tuple[Any, ...] | None = None

    def before(self, node: Node, indent: str) -> str:
        """The lines to write before a statement."""
        origin: Origin | None = node.origin
        if origin is None or node._op == "placeholder" or node._target is exit_context:
            return ""
        lines = []
        function = (origin.file, origin.function, origin.module, origin.call)
        if function != self._function:
            where = f", {origin.module}" if origin.module else ""
            lines += ["", f"# {origin.function} ({os.path.basename(origin.file)}){where}"]
            self._function, self._statement = function, None
        if statement_key(origin) != self._statement and origin.source:
            lines.append(f"# {origin.statement}: {origin.source}")
            self._statement = statement_key(origin)
        # What a comment quotes must not end it.
        return "".join(f"{indent}{' '.join(line.splitlines())}\n" if line else "\n" for line in lines)
