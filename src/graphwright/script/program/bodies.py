"""The graphs that are written: the program's own, and those of the branches and loops inside it.

A body takes the values that it uses from outside as inputs, made when they are first used.
"""

from __future__ import annotations

import contextlib
import operator
from typing import Any

from graphwright.ir import Graph, Node, map_arg
from graphwright.ops import evaluated, is_impure, is_region

__all__ = ["Body"]


class Body:
    """One graph that is being written, inside another one or none."""

    def __init__(self, outer: Body | None = None) -> None:
        self.graph = Graph()
        self.outer = outer
        self.result: Any = None  # of the test of a loop
        self.is_tried: bool = outer is not None and outer.is_tried  # inside `try`: what nobody reads may raise
        self.lifted: dict[Node, Node] = {}  # node of the body around -> the input that stands for it
        self.written: dict[Node, Node] = {}  # node of a value, of any body -> the one here that wrote to it

    def latest(self, node: Node) -> Node:
        """The node through which a value is read here: the last that wrote to it, in this body or one around it.

        What a body writes to is read through its own node again where that is over: there the write is an effect.
        """
        found: Node | None = node
        while found is not None:
            node, body = found, self
            found = body.written.get(node)
            while found is None and body.outer is not None:
                body = body.outer
                found = body.written.get(node)
        return node

    def lift(self, node: Node) -> Node:
        """The node that stands for a value in this body. Raises LookupError for one of a body that is over."""
        if node.graph is self.graph:
            return node
        if self.outer is None:
            raise LookupError(node)
        outside = self.outer.lift(node)
        inside = self.lifted.get(outside)
        if inside is None:
            inside = self.lifted[outside] = self.add_input(outside.name)
        return inside

    def add_input(self, name: str) -> Node:
        """Make one more input, after those there are."""
        first = next((node for node in self.graph.nodes if node.op != "placeholder"), None)
        with contextlib.nullcontext() if first is None else self.graph.inserting_before(first):
            node = self.graph.create_node("placeholder", name, (), {}, name)
        node.target = node.name
        return node

    def here(self, argument: Any) -> Any:
        """An argument with every value of other bodies as it is known in this one."""
        return map_arg(argument, self.lift)

    def operands(self) -> list[Node]:
        """What this body uses from the one around it, in that one's nodes."""
        return list(self.lifted)

    def close(self, result: Any, operands: list[Node]) -> None:
        """Write what the body returns, and have exactly these operands as inputs, after those that are none."""
        output = self.graph.output(self.here(result))
        if self.is_tried:
            self._keep_what_may_raise(output)
        inputs = [self.lift(node) for node in operands]
        first = next(node for node in self.graph.nodes if node.op != "placeholder")
        for node in inputs:
            first.prepend(node)

    def _keep_what_may_raise(self, output: Node) -> None:
        """Have what nobody reads count: computing it may raise what the program catches."""
        for node in list(self.graph.nodes):
            source = node.args[0] if node.target is operator.getitem else node
            if node.users or not node.op.startswith("call_") or (isinstance(source, Node) and is_region(source)):
                continue
            if not is_impure(node):
                with self.graph.inserting_after(node):
                    made = self.graph.call_function(evaluated, (node,))
                    made.origin = node.origin

    def is_empty(self) -> bool:
        """Tell whether nothing is computed here."""
        return all(node.op in ("placeholder", "output") for node in self.graph.nodes)

    def holds(self, node: Node) -> bool:
        """Tell whether a value is computed in this body, so that the bodies around it do not have it."""
        outer, graphs = self.outer, []
        while outer is not None:
            graphs.append(outer.graph)
            outer = outer.outer
        return node.graph not in graphs
