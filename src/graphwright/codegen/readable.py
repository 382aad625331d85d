"""A graph as Python that a person would write: the form of captures that know their source.

    # BertSelfOutput.forward (modeling_bert.py), encoder.layer.0.output
    # 294: hidden_states = self.dense(hidden_states)
    hidden_states = self.encoder.layer[0].output.dense(context);  del context

Statements follow the user's: values are named as the source names them, and an operation whose value the source does
not name, and which one other operation of the same statement reads, is written inside that one (nesting.py). The order
of evaluation is exactly the order of the nodes.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from graphwright.codegen.blocks import Block, Text, assignments, block_of, branch_expression, lines_of
from graphwright.codegen.function import Writer, attribute
from graphwright.codegen.nesting import Statement, is_statement, statements_of, unpacked_items
from graphwright.codegen.operators import ATOM, INPLACE, NOT, PRIMARY
from graphwright.codegen.python_code import PythonCode
from graphwright.codegen.regions import region_exits
from graphwright.codegen.spelling import argument
from graphwright.codegen.transforms import transform_block
from graphwright.codegen.wrapping import wrap
from graphwright.ir import Graph, Node
from graphwright.ops import cond, raise_error, transformed, write_attribute

__all__ = ["graph_to_readable_source", "readable_source"]


def graph_to_readable_source(graph: Graph, root: str = "self", name: str = "forward", owner: Any = None) -> PythonCode:
    """Write a graph as the source of a function, statements grouped and commented as in the user's program.

    `owner` is the module that the graph belongs to: it tells where `layer.0` may be written `layer[0]`.
    """
    writer = _ReadableWriter(graph, root, owner)
    lines = lines_of(writer)
    header = f"\n\n\n{wrap(writer.header(name).strip(), '')}\n"
    nodes: list[Node | None] = []
    for line in lines:
        nodes += [None] * line.comment.count("\n") + [line.node] * (line.text.count("\n") + 1)
    body = "".join(f"{line.comment}{line.text}\n" for line in lines)
    return PythonCode(
        f"{header}{body or '    pass'}",
        writer.names.values,
        _prologue_start=4,
        first=header.count("\n") + 1,
        statements=nodes,
        nodes=writer.nodes,
    )


def readable_source(gm: Any, path: str, root: str = "self") -> str:
    """Return the generated lines of one submodule: those whose operations ran inside the module at this path.

    Raises ValueError where no operation of the graph ran there.
    """
    chosen = [
        line.comment + line.text
        for line in lines_of(_ReadableWriter(gm.graph, root, gm))
        if _is_inside(line.node, path)
    ]
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
        self.targets: list[str] | None = None
        self.at_once = False
        self._prepare()

    def _prepare(self) -> None:
        self.inside: dict[Node, tuple[str, int]] = {}  # expressions waiting to be written inside another
        self.texts: dict[
            Node, tuple[str, int]
        ] = {}  # how inputs of a body are written, and names that are not node.name
        self.exits = region_exits(self.nodes)
        self.plan: list[Statement] = []
        self.result_text = ("None", ATOM)  # what a body returns, and how tightly that binds
        self.expressions: dict[Node, tuple[str, int]] = {}  # branches that are expressions
        self.kept: set[Node] = set()  # values that are variables around the body
        last = self.nodes[-1] if self.nodes else None
        value = last._args[0] if last is not None and last._op == "output" and last._args else None
        # The value that the function returns, where that is all that is done with it.
        is_last = type(value) is Node and len(value.users) == 1 and value._next is last
        self.returned = value if self.targets is None and is_last else None

    def statements(self) -> list[Statement]:
        """Cut the graph into statements."""
        return statements_of(self)

    def result(self, node: Node) -> str:
        """Write the statement of the output node: `return`, or what a body gives to the variables around it."""
        value = node._args[0] if node._args else None
        if self.targets is None:
            self.result_text = self._input(value)
            return f"return {self.result_text[0]}"
        if not self.targets or node._prev._target is raise_error:
            return ""
        values = list(value) if type(value) is tuple and (self.at_once or len(self.targets) > 1) else [value]
        return assignments(self.targets, [self.value(item) for item in values], self.at_once)

    def block(self, node: Node) -> Block | None:
        """Write a region as a compound statement; None where it is an expression."""
        if node._target is cond and branch_expression(self, node) is not None:
            return None
        return transform_block(self, node) if node._target is transformed else block_of(self, node)

    def negation(self, pred: Any) -> str:
        """Write that a condition does not hold."""
        return f"not {self.operand(pred, NOT)}"

    def body(
        self, graph: Graph, inputs: Sequence[Any], targets: list[str] | None, at_once: bool = False
    ) -> _ReadableWriter:
        """Make the writer of a body, whose inputs are written as `inputs` are here.

        `targets` are the variables that get the body's values, all `at_once` where the body reads them; None where
        the body returns its values.
        """
        writer = object.__new__(_ReadableWriter)
        graph._make_names()
        writer.graph, writer.nodes, writer.renamed = graph, list(graph.nodes), []
        writer.root, writer.owner, writer.names, writer.getattr = self.root, self.owner, self.names, self.getattr
        writer.targets, writer.at_once = targets, at_once
        writer._prepare()
        named = {} if at_once else _named_as_targets(writer.nodes, targets)
        given = iter(inputs)
        for node in writer.nodes:
            if node._op == "placeholder":
                value = next(given)
                writer.texts[node] = (value, ATOM) if isinstance(value, Text) else self._input(value)
            elif node in named:
                writer.texts[node] = named[node], ATOM
                writer.kept.add(node)
            elif node._op != "output" and node.name in self.names:
                writer.texts[node] = self.names.new(node.name), ATOM
            else:
                self.names.take(node.name)
        writer.plan = statements_of(writer)
        return writer

    def _input(self, value: Any) -> tuple[str, int]:
        return self.node(value) if type(value) is Node else argument(value, self.names, self.node)

    def name(self, node: Node) -> str:
        """The variable that holds a node's value."""
        return self.texts[node][0] if node in self.texts else node.name

    def statement(self, node: Node) -> str:
        """Write the statement that computes a node, without what frees values after it."""
        if node in self.exits:
            return f"with {self.function_call(node._args[0], node._args[1:], node._kwargs)[0]}:"
        if node._target is raise_error and node._args:
            error = self.value(node._args[0])
            return f"raise {error}({self.call(node._args[1:], {})})" if node._args[1:] else f"raise {error}"
        if node._target is write_attribute:
            return self.write(node)
        items = unpacked_items(node)
        if items:
            unused = self.names.new("_") if None in items else ""
            left = ", ".join(unused if item is None else self.name(item) for item in items)
            left += "," if len(items) == 1 else ""
            return f"{left} = {self.value(node._args[0])}"
        if node.users:
            return self.assignment(node)
        if is_statement(node) and node._target in INPLACE and len(node._args) == 2:
            left, right = node._args
            if self.may_assign(left):
                return f"{self.value(left)} {INPLACE[node._target]} {self.value(right)}"
            return self.function_call(node._target, node._args, {})[0]
        # Nothing reads the value: only the effect counts.
        return self.assignment(node).removeprefix(f"{self.name(node)} = ")

    def assignment(self, node: Node) -> str:
        """Write the statement that gives a node's value its name."""
        if node in self.texts and not is_statement(node) and node.type is None:
            return f"{self.name(node)} = {self.expression(node)[0]}"
        return super().statement(node)

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
        return self.inside.get(node) or self.texts.get(node) or (node.name, ATOM)

    def value(self, arg: Any) -> str:
        """Write an argument where any expression may stand."""
        return self.node(arg)[0] if type(arg) is Node else super().value(arg)

    def operand(self, arg: Any, strength: int) -> str:
        """Write an argument as an operand, in parentheses where it binds less tightly than its place."""
        if type(arg) is not Node:
            return self.literal_operand(arg, type(arg), strength)
        text, binds = self.node(arg)
        return text if binds >= strength else f"({text})"

    def expression(self, node: Node) -> tuple[str, int]:
        """Write what a node computes, and say how tightly the text binds."""
        if node._target is cond:
            return branch_expression(self, node) or super().expression(node)
        if node._op == "call_method" and node._target == "__call__" and node._args:
            return f"{self.operand(node._args[0], PRIMARY)}({self.call(node._args[1:], node._kwargs)})", PRIMARY
        return super().expression(node)

    def function_call(self, target: Any, args: Any, kwargs: Any) -> tuple[str, int]:
        """Write a call of a function, as the operator that it is where it is one."""
        if target is operator.not_ and len(args) == 1:
            return f"not {self.operand(args[0], NOT)}", NOT
        return super().function_call(target, args, kwargs)

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


def _named_as_targets(nodes: list[Node], targets: list[str] | None) -> dict[Node, str]:
    """The nodes of a body whose values are just what a variable around it is to hold, each with that variable."""
    output = nodes[-1] if nodes else None
    if not targets or output is None or output._op != "output":
        return {}
    values = output._args[0] if len(targets) > 1 else (output._args[0],)
    named: dict[Node, str] = {}
    for value, target in zip(values, targets, strict=True):
        if type(value) is Node and value._op != "placeholder":
            named.setdefault(value, target)
    return named
