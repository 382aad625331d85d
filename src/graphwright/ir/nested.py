"""A graph that is being written inside another one: what it uses from around comes in as inputs, made at need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphwright.ir.graph import Graph
from graphwright.ir.node import Node, map_arg

__all__ = ["NestedGraph", "first_operation", "shared_operands"]


def first_operation(graph: Graph) -> Node | None:
    """The first node of a graph that is no input."""
    node = graph._root._next
    while node._op == "placeholder":
        node = node._next
    return None if node is graph._root else node


class NestedGraph:
    """The body of a branch or loop while it is written, inside another one, or the program's own graph.

    >>> program = NestedGraph()
    >>> x = program.graph.placeholder("x")
    >>> body = NestedGraph(program)
    >>> body.close(body.graph.call_method("relu", (body.lift(x),)))
    >>> shared_operands([body]), [*body.graph.nodes]
    ([x], [x, relu, output])
    """

    def __init__(self, outer: NestedGraph | None = None, graph: Graph | None = None) -> None:
        self.graph = Graph() if graph is None else graph
        self.outer = outer
        self.lifted: dict[Node, Node] = {}  # node of the graph around -> the input that stands for it
        self.written: dict[Node, Node] = {}  # node of a value, of any graph -> the one here that wrote to it

    def holds(self, node: Node) -> bool:
        """Tell whether a value is computed in this body, or inside it, so that the graphs around do not have it."""
        outer = self.outer
        while outer is not None:
            if outer.graph is node.graph:
                return False
            outer = outer.outer
        return True

    def latest(self, node: Node) -> Node:
        """The node through which a value is read here: the last that wrote to it, in this graph or one around it.

        What a body writes to is read through its own node again where that is over: there the write is an effect.
        """
        nested: NestedGraph | None
        found: Node | None = node
        while found is not None:
            node, nested, found = found, self, None
            while found is None and nested is not None:
                found, nested = nested.written.get(node), nested.outer
        return node

    def lift(self, node: Node) -> Node:
        """The node that stands for a value here. Raises LookupError for one of a body that is over."""
        if node.graph is self.graph:
            return node
        if self.outer is None:
            raise LookupError(node)
        outside = self.outer.lift(node)
        inside = self.lifted.get(outside)
        if inside is None:
            inside = self.lifted[outside] = self.add_input(outside.name)
        return inside

    def lifted_in(self, argument: Any) -> Any:
        """An argument with every value of graphs around as it is known in this one."""
        return map_arg(argument, self.lift)

    def add_input(self, name: str) -> Node:
        """Make one more input, after those there are."""
        first = first_operation(self.graph)
        with self.graph.inserting_after() if first is None else self.graph.inserting_before(first):
            node = self.graph.create_node("placeholder", name, (), {}, name)
        node._target = node.name
        return node

    def close(self, result: Any, origin: Any = None) -> None:
        """Write what the body gives, at a place of the user's program."""
        self.graph.output(self.lifted_in(result))._origin = origin

    def is_empty(self) -> bool:
        """Tell whether nothing is computed here."""
        first = first_operation(self.graph)
        return first is None or first._op == "output"

    def take(self, operands: list[Node]) -> None:
        """Have exactly these values of the graph around as inputs, in this order, after those that stand for none."""
        inputs = [self.lift(node) for node in operands]
        first = first_operation(self.graph)
        for node in inputs:
            if first is not None:
                first.prepend(node)


def shared_operands(bodies: Sequence[NestedGraph]) -> list[Node]:
    """What any of several bodies uses from the graph around, each of them having it as inputs from here on."""
    operands = list(dict.fromkeys(outside for body in bodies for outside in body.lifted))
    for body in bodies:
        body.take(operands)
    return operands
