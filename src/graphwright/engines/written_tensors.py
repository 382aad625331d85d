"""What a program may write to in place, where it is known what is a tensor and what only holds some.

What is made once of a tensor of a module that the program writes to would be stale.
"""

from __future__ import annotations

import collections
import operator
from collections.abc import Collection

from torch import Tensor, nn

from graphwright.analysis import Effects, Place, Shapes, written_values
from graphwright.ir import Graph, Node, bodies_of
from graphwright.ops import delete_attribute, is_region, set_attribute
from graphwright.rewrite import Calls, GraphEffects
from graphwright.runtime import graph_of

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


def kept_apart(gm: nn.Module, shapes: Shapes, paths: Collection[str]) -> tuple[set[str], bool]:
    """The paths of tensors that a program may write to; and whether it may write to what inputs hold, no tensors."""
    effects, calls, graph = Effects(gm), Calls(gm), graph_of(gm)
    plain = [node for node in graph.all_nodes() if not is_region(node)]
    values = dict.fromkeys(value for node in plain for value in tensors_written(node, calls, shapes))
    written = {place for value in values for place in effects.memory(value) if place.kind not in ("value", "unknown")}
    inputs = {str(node.target): shapes.known_value(node) for node in graph.placeholders()}
    objects = {each for each in written if each.kind == "input" and not isinstance(inputs[each.name], Tensor)}
    tensors = {Place("parameter", path): path for path in paths}
    apart = {path for own, path in tensors.items() for each in written - objects if effects.may_be_same(own, each)}
    return apart, bool(objects)
