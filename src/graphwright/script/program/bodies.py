"""The graphs that are written: the program's own, and those of the branches and loops inside it.

A body takes the values that it uses from outside as inputs, made when they are first used.
"""

from __future__ import annotations

import operator
from typing import Any

from graphwright.ir import NestedGraph, Node
from graphwright.ops import evaluated, is_impure, is_region

__all__ = ["Body"]


class Body(NestedGraph):
    """One graph that is being written, inside another one or none."""

    outer: Body | None

    def __init__(self, outer: Body | None = None) -> None:
        super().__init__(outer)
        self.result: Any = None  # of the test of a loop
        self.is_tried: bool = outer is not None and outer.is_tried  # inside `try`: what nobody reads may raise

    def close(self, result: Any) -> None:
        """Write what the body returns."""
        output = self.graph.output(self.lifted_in(result))
        if self.is_tried:
            self._keep_what_may_raise(output)

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

    def holds(self, node: Node) -> bool:
        """Tell whether a value is computed in this body, so that the bodies around it do not have it."""
        outer, graphs = self.outer, []
        while outer is not None:
            graphs.append(outer.graph)
            outer = outer.outer
        return node.graph not in graphs
