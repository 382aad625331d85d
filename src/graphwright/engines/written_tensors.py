"""What a program may write to in place, where it is known what is a tensor and what only holds some.

What is made once of a tensor of a module that the program writes to would be stale.
"""

from __future__ import annotations

import collections
import operator
from collections.abc import Collection, Iterator
from typing import Any

from torch import Tensor, nn

from graphwright.analysis import Shapes, written_values
from graphwright.ir import Graph, Node, bodies_of
from graphwright.ops import (
    delete_attribute,
    gives_several,
    is_region,
    results_of,
    set_attribute,
    shared_inputs,
    values_for,
)
from graphwright.rewrite import Calls, GraphEffects

_OF_CONTAINERS = (operator.setitem, operator.delitem, set_attribute, delete_attribute)
_CONTAINERS = (list, dict, set, collections.deque)


def tensors_written(node: Node, calls: Calls, shapes: Shapes) -> list[Node]:
    """The values in which an operation may change numbers, and not only which tensors they hold."""
    if is_region(node):
        inner = [each for body in bodies_of(node) for each in body.nodes]
        return node.all_input_nodes if any(tensors_written(each, calls, shapes) for each in inner) else []
    written = written_values(node, calls.module, calls.of)
    if not written or not (node.op == "call_method" or node.target in _OF_CONTAINERS):
        return written
    kinds = _CONTAINERS if node.op == "call_method" else object
    held = shapes.known_value(written[0])
    is_holder = held is not None and isinstance(held, kinds) and not isinstance(held, Tensor | nn.Module)
    return [] if is_holder else written


class TensorEffects(GraphEffects):
    """What the operations of one graph do to tensors: what they put into containers and objects is not looked at."""

    def __init__(self, graph: Graph, calls: Calls, shapes: Shapes) -> None:
        self._shapes = shapes
        super().__init__(graph, calls)

    def _writes(self, node: Node) -> list[Node]:
        return tensors_written(node, self.calls, self._shapes)


class WrittenTensors:
    """What a program may write to that it has not made itself.

    paths: those of some tensors of modules. has_inputs: whether inputs are written to that are tensors. has_objects:
    whether those are that other inputs hold.
    """

    def __init__(self, gm: nn.Module, graph: Graph, shapes: Shapes, paths: Collection[str]) -> None:
        self._calls = Calls(gm)
        self._around = {body: node for node in graph.all_nodes() for body in bodies_of(node)}
        self.paths: set[str] = set()
        self.has_inputs = self.has_objects = False
        seen: set[Node] = set()
        for node in graph.all_nodes():
            for value in [] if is_region(node) else tensors_written(node, self._calls, shapes):
                for root in self._roots(value, seen):
                    if root.op == "get_attr" and root.target in paths:
                        self.paths.add(str(root.target))
                    elif root.op == "placeholder":
                        is_object = not isinstance(shapes.known_value(root), Tensor)
                        self.has_objects |= is_object
                        self.has_inputs |= not is_object

    def _roots(self, value: Node, seen: set[Node]) -> Iterator[Node]:
        """The tensors of modules and the inputs of the program whose memory a value may be, where it is not known."""
        waiting = [value]
        while waiting:
            node = waiting.pop()
            if node in seen:
                continue
            seen.add(node)
            around = self._around.get(node.graph) if node.op == "placeholder" else None
            if around is not None:
                given: list[Any] = values_for(around, node) if is_region(around) else around.all_input_nodes
                waiting += [each for each in given if isinstance(each, Node)]
            elif node.op in ("placeholder", "get_attr"):
                yield node
            else:
                waiting += self._shared(node)

    def _shared(self, node: Node) -> list[Node]:
        """The values whose memory that of a node may be."""
        source = node.args[0] if node.target is operator.getitem else None
        if isinstance(source, Node) and is_region(source) and gives_several(source) and type(node.args[1]) is int:
            return [each for each in results_of(source, node.args[1]) if isinstance(each, Node)]
        if is_region(node):
            ends = [body.output_node() for body in bodies_of(node)]
            return [*node.all_input_nodes, *(each for end in ends for each in end.all_input_nodes)]
        shared = shared_inputs(node, self._calls.module)
        return node.all_input_nodes if shared is None else shared
