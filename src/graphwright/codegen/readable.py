"""A graph as Python that a person would write: the form of captures that know their source.

    # BertSelfOutput.forward (modeling_bert.py), encoder.layer.0.output
    # 294: hidden_states = self.dense(hidden_states)
    hidden_states = self.encoder.layer[0].output.dense(context);  del context

Statements follow the user's: values are named as the source names them, and an operation whose value the source does
not name, and which one other operation of the same statement reads, is written inside that one. The order of
evaluation is exactly the order of the nodes.
"""

from __future__ import annotations

import operator
import os
from typing import TYPE_CHECKING, Any

from graphwright.codegen.function import PythonCode, Writer, attribute
from graphwright.codegen.operators import ATOM, STATEMENTS
from graphwright.ir import Graph, Node, nodes_in

if TYPE_CHECKING:
    from graphwright.ir import Origin

__all__ = ["graph_to_readable_source", "readable_source"]

_LONGEST_INSIDE = 88  # characters: a longer expression gets a statement of its own


def graph_to_readable_source(graph: Graph, root: str = "self", name: str = "forward", owner: Any = None) -> PythonCode:
    """Write a graph as the source of a function, statements grouped and commented as in the user's program.

    `owner` is the module that the graph belongs to: it tells where `layer.0` may be written `layer[0]`.
    """
    writer = _ReadableWriter(graph, root, owner)
    statements = writer.statements()
    header = writer.header(name)
    lines: list[Node | None] = []
    for node, text in statements:
        lines += [None] * text.count("\n")
        lines.append(node)
    body = "".join(f"{text}\n" for _, text in statements)
    return PythonCode(f"{header}{body or '    pass'}", writer.names.values, header.count("\n") + 1, lines)


def readable_source(gm: Any, path: str, root: str = "self") -> str:
    """Return the generated lines of one submodule: those whose operations ran inside the module at this path.

    Raises ValueError where no operation of the graph ran there.
    """
    writer = _ReadableWriter(gm.graph, root, gm)
    chosen = [text for node, text in writer.statements() if node is not None and _is_inside(node, path)]
    if not chosen:
        raise ValueError(f"no operation of the graph ran inside {path!r}")
    return "\n".join(chosen)


def _is_inside(node: Node, path: str) -> bool:
    origin = node.origin
    return origin is not None and (origin.module == path or origin.module.startswith(path + "."))


class _ReadableWriter(Writer):
    """Writes statements that nest the operations of one source statement."""

    equals = "="

    def __init__(self, graph: Graph, root: str, owner: Any) -> None:
        super().__init__(graph, root)
        self.owner = owner
        self._inside: dict[Node, tuple[str, int]] = {}  # expressions waiting to be written inside another

    def statements(self) -> list[tuple[Node | None, str]]:
        """Return each statement with the node that it computes; comments stand before the statement they explain."""
        out: list[tuple[Node | None, str]] = []
        comments = _Comments()
        waiting: list[Node] = []  # in order of evaluation; a suffix of it may go inside the next expression
        plan: list[tuple[Node, str, list[Node]]] = []  # (node, text, nodes whose values the text reads)
        reads: dict[Node, list[Node]] = {}

        def settle(count: int) -> None:
            """Write the first waiting expressions as statements of their own."""
            for node in waiting[:count]:
                text, _ = self._inside.pop(node)
                plan.append((node, f"{node.name} = {text}", reads.pop(node)))
            del waiting[:count]

        for node in self.graph.nodes:
            if node._op == "placeholder":
                renamed = self.bind_parameter(node)
                if renamed:
                    plan.append((node, renamed, []))
                continue
            mentioned = _in_order_of_evaluation(node)
            held = [used for used in mentioned if used in self._inside]
            keep = len(waiting) - len(held)
            if held != waiting[keep:] or any(not _same_statement(used, node) for used in held):
                settle(len(waiting))
                held = []
            read = [name for used in mentioned for name in (reads.pop(used) if used in held else [used])]
            if node._op == "output":
                settle(len(waiting) - len(held))
                plan.append((node, f"return {self.value(node._args[0]) if node._args else None}", read))
                break
            if not _may_stand_inside(node):
                settle(len(waiting) - len(held))
                plan.append((node, self.statement(node), read))
            else:
                text, strength = self.expression(node)
                self._inside[node] = text, strength
                reads[node] = read
            if held:
                del waiting[len(waiting) - len(held) :]
                for used in held:
                    self._inside.pop(used, None)
            if node in self._inside:
                waiting.append(node)
                if len(self._inside[node][0]) > _LONGEST_INSIDE:
                    settle(len(waiting))
        else:
            settle(len(waiting))

        last: dict[Node, int] = {}
        for i, (_, _, read) in enumerate(plan):
            for used in read:
                last[used] = i
        free: dict[int, list[Node]] = {}
        for used, i in last.items():
            if used._op != "placeholder":
                free.setdefault(i, []).append(used)
        for i, (node, text, _) in enumerate(plan):
            dead = free.get(i, [])
            if not node.users and node._op not in ("output", "placeholder") and text.startswith(f"{node.name} = "):
                text = text.removeprefix(f"{node.name} = ")  # nothing reads the value: only its effect counts
            tail = "" if node._op == "output" or not dead else f";  del {', '.join(n.name for n in dead)}"
            out.append((node, f"{comments.before(node)}    {text}{tail}"))
        return out

    def node(self, node: Node) -> tuple[str, int]:
        """Write a use of a node: its expression where that was kept to stand inside, else its name."""
        return self._inside.get(node) or (node.name, ATOM)

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
            holds_by = None if value is None or atom.isidentifier() else _subscript(value, atom)
            text = f"{text}[{holds_by}]" if holds_by else attribute(text, atom)
            value = getattr(value, atom, None) if value is not None else None
        return text


def _subscript(container: Any, atom: str) -> str | None:
    """The subscript by which a container module gives its child of this name, or None."""
    if not hasattr(type(container), "__getitem__"):
        return None
    key: int | str = int(atom) if atom.isdigit() else atom
    try:
        return repr(key) if container[key] is getattr(container, atom) else None
    except Exception:  # a user's container may raise anything for a key that it does not know
        return None


def _may_stand_inside(node: Node) -> bool:
    """Tell whether a node is an expression that the source does not name and exactly one place reads."""
    origin = node.origin
    if origin is None or origin.target or node.type is not None or len(node.users) != 1:
        return False
    (user,) = node.users
    if sum(used is node for used in (*nodes_in(user._args), *nodes_in(user._kwargs))) != 1:
        return False
    return node._op != "call_function" or not _is_statement(node)


def _in_order_of_evaluation(node: Node) -> list[Node]:
    """The nodes whose values a statement reads, as Python comes to them: `a[k] = v` evaluates v first."""
    args = node._args
    if node._op == "call_function" and node._target is operator.setitem:
        args = (args[-1], *args[:-1])
    return [*nodes_in(args), *nodes_in(node._kwargs)]


def _is_statement(node: Node) -> bool:
    """Tell whether a node is written as a statement: an assignment to an item, or in place."""
    return node._target in STATEMENTS


def _same_statement(one: Node, other: Node) -> bool:
    a, b = one.origin, other.origin
    return a is not None and b is not None and _statement_key(a) == _statement_key(b)


def _statement_key(origin: Origin) -> tuple[Any, ...]:
    return origin.file, origin.function, origin.statement, origin.module, origin.call


class _Comments:
    """The comments before statements: which function the code comes from, and the source line, each said once."""

    def __init__(self) -> None:
        self._function: tuple[Any, ...] | None = None
        self._statement: tuple[Any, ...] | None = None

    def before(self, node: Node) -> str:
        origin = node.origin
        if origin is None or node._op in ("placeholder", "output"):
            return ""
        text = ""
        function = (origin.file, origin.function, origin.module, origin.call)
        if function != self._function:
            where = f", {origin.module}" if origin.module else ""
            text += f"\n    # {origin.function} ({os.path.basename(origin.file)}){where}\n"
            self._function = function
            self._statement = None
        if _statement_key(origin) != self._statement and origin.source:
            text += f"    # {origin.statement}: {origin.source}\n"
            self._statement = _statement_key(origin)
        return text
