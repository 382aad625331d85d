"""A graph that is being written inside another one: what it uses from around comes in as inputs, made at need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphwright.ir.arguments import ATOMS
from graphwright.ir.graph import Graph
from graphwright.ir.node import Node, map_arg


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
        outer = self.outer
        if outer is None:
            raise LookupError(node)
        outside = node if node.graph is outer.graph else outer.lift(node)
        inside = self.lifted.get(outside)
        if inside is None:
            inside = self.lifted[outside] = self.add_input(outside.name)
        return inside

    def lifted_in(self, argument: Any) -> Any:
        """An argument with every value of graphs around as it is known in this one."""
        kind = type(argument)
        if kind is Node:
            return argument if argument.graph is self.graph else self.lift(argument)
        if kind is not tuple:
            return argument if kind in ATOMS or (kind is dict and not argument) else map_arg(argument, self.lift)
        found = []
        for item in argument:  # mostly it is flat
            kind = type(item)
            if kind is Node:
                item = item if item.graph is self.graph else self.lift(item)
            elif kind not in ATOMS:
                item = map_arg(item, self.lift)
            found.append(item)
        return tuple(found)

    def add_input(self, name: str) -> Node:
        """Make one more input, after those there are."""
        graph = self.graph
        before, graph._point = graph._point, (first_operation(graph) or graph._root, False)
        try:
            node = graph.create_node("placeholder", name, (), {}, name)
        finally:
            graph._point = before
        node._target = node._name or name
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
        lifted = self.lifted
        inputs = [*lifted.values()] if [*lifted] == operands else [self.lift(node) for node in operands]
        first = first_operation(self.graph)
        if first is None:
            return
        last = first._prev
        for node in reversed(inputs):
            if node is not last:  # they are not there in this order
                for each in inputs:
                    first.prepend(each)
                return
            last = last._prev


def shared_operands(bodies: Sequence[NestedGraph]) -> list[Node]:
    """What any of several bodies uses from the graph around, each of them having it as inputs from here on."""
    used: dict[Node, Node] = {}
    for body in bodies:
        used.update(body.lifted)
    operands = [*used]
    for body in bodies:
        body.take(operands)
    return operands
