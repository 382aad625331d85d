"""Running a graph on an example, and both sides of its branches."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

from torch import nn

from graphwright.errors import PassError
from graphwright.ir import Graph, Node, bodies_of
from graphwright.ops import cond
from graphwright.runtime import Interpreter


class BothSides(Interpreter):
    """Runs a graph, and after the side of a branch that the example takes the other one, for what its nodes do.

    A value that is None on the side that was taken is what the other side made of it where a later branch asks; so the
    side for a mask that is there can run, too. What cannot run is told to `not_run`.
    """

    def __init__(self, gm: nn.Module) -> None:
        super().__init__(gm)
        self.extra_traceback = False
        self.is_second = False  # whether this is a side that the example does not take
        self._others: dict[Node, Any] = {}  # what values would be, had the other side been taken

    def inputs(self, node: Node) -> dict[Node, Any]:
        """The values that a node reads."""
        return {used: self.env[used] for used in node.all_input_nodes}

    def run_plain(self, node: Node, inputs: Mapping[Node, Any]) -> Any:
        """Run a node, a branch on both sides."""
        if node.target is cond and bodies_of(node):
            return self._run_branch(node, inputs)
        value = super().run_node(node)
        if node.target is operator.getitem and node.args[0] in self._others and type(node.args[1]) is int:
            other = self._others[node.args[0]]
            if isinstance(other, tuple | list) and len(other) > node.args[1]:
                self._others[node] = other[node.args[1]]
        return value

    def _run_branch(self, node: Node, inputs: Mapping[Node, Any]) -> Any:
        pred, *sides, operands = node.args
        for side in sides:
            for placeholder, operand in zip(side.placeholders(), operands, strict=True):
                if operand in self._others:
                    self._others[placeholder] = self._others[operand]
        value = super().run_node(node)
        other = sides[1] if inputs.get(pred, pred) else sides[0]
        given = [self._as_other(each, inputs) if isinstance(each, Node) else each for each in operands]
        before, self.is_second = self.is_second, True
        try:
            self._others[node] = self.run_body(other, *given)
        except PassError:
            raise
        except Exception:
            self.not_run(node, other)
        finally:
            self.is_second = before
        return value

    def _as_other(self, node: Node, inputs: Mapping[Node, Any]) -> Any:
        value = inputs[node]
        return self._others.get(node) if value is None else value

    def not_run(self, node: Node, side: Graph) -> None:
        """Be told of a side that is not made for the example."""
