"""A graph as Python that a person would write: the form of captures that know their source.

    # BertSelfOutput.forward (modeling_bert.py), encoder.layer.0.output
    # 294: hidden_states = self.dense(hidden_states)
    hidden_states = self.encoder.layer[0].output.dense(context);  del context

Statements follow the user's: values are named as the source names them, and an operation whose value the source does
not name, and which one other operation of the same statement reads, is written inside that one (nesting.py). The order
of evaluation is exactly the order of the nodes.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from graphwright.codegen.function import PythonCode, Writer, attribute
from graphwright.codegen.nesting import Statement, is_statement, statement_key, statements_of, unpacked_items
from graphwright.codegen.operators import ATOM, INPLACE
from graphwright.codegen.regions import region_exits
from graphwright.codegen.wrapping import wrap
from graphwright.ir import Graph, Node
from graphwright.ops import exit_context

if TYPE_CHECKING:
    from graphwright.ir import Origin

__all__ = ["graph_to_readable_source", "readable_source"]


def graph_to_readable_source(graph: Graph, root: str = "self", name: str = "forward", owner: Any = None) -> PythonCode:
    """Write a graph as the source of a function, statements grouped and commented as in the user's program.

    `owner` is the module that the graph belongs to: it tells where `layer.0` may be written `layer[0]`.
    """
    writer = _ReadableWriter(graph, root, owner)
    blocks = writer.blocks()
    header = f"\n\n\n{wrap(writer.header(name).strip(), '')}\n"
    lines: list[Node | None] = []
    for node, comment, text in blocks:
        lines += [None] * comment.count("\n") + [node] * (text.count("\n") + 1)
    body = "".join(f"{comment}{text}\n" for _, comment, text in blocks)
    return PythonCode(f"{header}{body or '    pass'}", writer.names.values, header.count("\n") + 1, lines)


def readable_source(gm: Any, path: str, root: str = "self") -> str:
    """Return the generated lines of one submodule: those whose operations ran inside the module at this path.

    Raises ValueError where no operation of the graph ran there.
    """
    writer = _ReadableWriter(gm.graph, root, gm)
    chosen = [comment + text for node, comment, text in writer.blocks() if _is_inside(node, path)]
    if not chosen:
        raise ValueError(f"no operation of the graph ran inside {path!r}")
    return "\n".join(chosen).lstrip("\n")


def _is_inside(node: Node, path: str) -> bool:
    origin = node.origin
    return origin is not None and (origin.module == path or origin.module.startswith(path + "."))


class _ReadableWriter(Writer):
    """Writes expressions inside one another, containers by subscript, and statements with comments."""

    equals = "="

    def __init__(self, graph: Graph, root: str, owner: Any) -> None:
        super().__init__(graph, root, short=True)
        self.owner = owner
        self.inside: dict[Node, tuple[str, int]] = {}  # expressions waiting to be written inside another
        self.exits = region_exits(self.nodes)

    # ---- blocks of lines

    def blocks(self) -> list[tuple[Node, str, str]]:
        """Return each statement: the node whose value it computes, the comments before it, its text."""
        plan = statements_of(self)
        exits = self.exits
        closing = {exit_node: enter for enter, exit_node in exits.items()}
        free = _free_after(plan, exits)
        comments = _Comments()
        out: list[tuple[Node, str, str]] = []
        indent = "    "
        for i, (node, text, _) in enumerate(plan):
            if node in closing:
                if out and out[-1][0] is closing[node]:
                    out.append((node, "", f"{indent}pass"))
                indent = indent[:-4]
                if i in free:
                    out.append((node, "", f"{indent}del {', '.join(used.name for used in free[i])}"))
                continue
            comment = "".join(f"{indent if line else ''}{line}\n" for line in comments.before(node))
            tail = f";  del {', '.join(used.name for used in free[i])}" if i in free and node not in exits else ""
            out.append((node, comment, f"{indent}{wrap(text, indent)}{tail}"))
            if node in exits:
                indent += "    "
        return out

    def statement(self, node: Node) -> str:
        """Write the statement that computes a node, without what frees values after it."""
        if node in self.exits:
            return f"with {self.function_call(node._args[0], node._args[1:], node._kwargs)[0]}:"
        items = unpacked_items(node)
        if items:
            unused = self.names.new("_") if None in items else ""
            return f"{', '.join(unused if item is None else item.name for item in items)} = {self.value(node._args[0])}"
        if node.users:
            return super().statement(node)
        if is_statement(node) and node._target in INPLACE and len(node._args) == 2:
            left, right = node._args
            if self.may_assign(left):
                return f"{self.value(left)} {INPLACE[node._target]} {self.value(right)}"
            return self.function_call(node._target, node._args, {})[0]
        # Nothing reads the value: only the effect counts.
        return super().statement(node).removeprefix(f"{node.name} = ")

    def may_assign(self, left: Any) -> bool:
        """Tell whether `left += ...` does what calling `operator.iadd` does, as far as the graph needs it.

        What a capture recorded (it has an origin) changes in place, so that naming the result `left` again changes
        nothing; another value may be a number, which `left` would then stand for no longer.
        """
        if type(left) is not Node or left.origin is None:
            return False
        return left not in self.inside or (left._op == "get_attr" and not self.inside[left][0].endswith((")", "]")))

    # ---- expressions

    def node(self, node: Node) -> tuple[str, int]:
        """Write a use of a node: its expression where that was kept to stand inside, else its name."""
        return self.inside.get(node) or (node.name, ATOM)

    def value(self, arg: Any) -> str:
        """Write an argument where any expression may stand."""
        return self.node(arg)[0] if type(arg) is Node else super().value(arg)

    def operand(self, arg: Any, strength: int) -> str:
        """Write an argument as an operand, in parentheses where it binds less tightly than its place."""
        if type(arg) is not Node:
            return self.literal_operand(arg, type(arg), strength)
        text, binds = self.node(arg)
        return text if binds >= strength else f"({text})"

    def call(self, args: Any, kwargs: Any) -> str:
        """Write the arguments of a call."""
        texts = [self.value(arg) for arg in args]
        self.keywords(kwargs, texts)
        return ", ".join(texts)

    def key(self, key: Any) -> str:
        """Write a subscript with Python's own slices: `x[1:, None, ..., ::2]`."""
        if type(key) is tuple and key:
            return ", ".join(self._key_part(part) for part in key) + ("," if len(key) == 1 else "")
        return self._key_part(key)

    def _key_part(self, part: Any) -> str:
        if part is ...:
            return "..."
        if type(part) is not slice:
            return self.value(part)
        start, stop, step = ("" if bound is None else self.value(bound) for bound in (part.start, part.stop, part.step))
        return f"{start}:{stop}" + (f":{step}" if step else "")

    def path(self, target: str) -> str:
        """Write a dotted path from the root, with `[0]` and `["key"]` where containers allow it."""
        text, value = self.root, self.owner
        for atom in target.split("."):
            subscript = None if value is None or value is self.owner or atom.isidentifier() else _subscript(value, atom)
            text = f"{text}[{subscript}]" if subscript else attribute(text, atom, self.getattr)
            value = None if value is None else getattr(value, atom, None)
        return text


def _subscript(container: Any, atom: str) -> str | None:
    """The subscript by which a container module gives its child of this name, or None."""
    if not hasattr(type(container), "__getitem__") or (
        atom.isdigit() and list(container._modules) != [str(i) for i in range(len(container._modules))]
    ):
        return None  # with gaps between its places, `[1]` need not mean "1"
    key: int | str = int(atom) if atom.isdigit() else atom
    try:
        return repr(key) if container[key] is getattr(container, atom) else None
    except Exception:  # a user's container may raise anything for a key that it does not know
        return None


def _free_after(plan: list[Statement], exits: dict[Node, Node]) -> dict[int, list[Node]]:
    """Map each statement, by its number, to the named values that nothing reads after it."""
    last: dict[Node, int] = {}
    for i, (_, _, read) in enumerate(plan):
        for used in read:
            last[used] = i
    free: dict[int, list[Node]] = {}
    end = len(plan) - 1
    for used, i in last.items():
        if used._op != "placeholder" and used not in exits and not (i == end and plan[end][0]._op == "output"):
            free.setdefault(i, []).append(used)
    return free


class _Comments:
    """The comments before statements: which function the code comes from, and the source line, each said once."""

    def __init__(self) -> None:
        self._function: tuple[Any, ...] | None = None
        self._statement: tuple[Any, ...] | None = None

    def before(self, node: Node) -> list[str]:
        """The lines to write before a statement."""
        origin: Origin | None = node.origin
        if origin is None or node._op == "placeholder" or node._target is exit_context:
            return []
        lines = []
        function = (origin.file, origin.function, origin.module, origin.call)
        if function != self._function:
            where = f", {origin.module}" if origin.module else ""
            lines += ["", f"# {origin.function} ({os.path.basename(origin.file)}){where}"]
            self._function, self._statement = function, None
        if statement_key(origin) != self._statement and origin.source:
            lines.append(f"# {origin.statement}: {origin.source}")
            self._statement = statement_key(origin)
        return [" ".join(line.splitlines()) for line in lines]  # what a comment quotes must not end it
