"""Numbers in branches and loops, which torch's operators take and give as tensors."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from graphwright.interop.operands import NUMBERS, as_bool, as_tensor, number_as_tensor, number_of_rows
from graphwright.interop.operator_parts import CONTAINERS, call, names_of, no_operator
from graphwright.ir import Graph, Node
from graphwright.ops import is_loop, is_region, kind_of
from graphwright.passes import (
    items_of,
    own_bodies,
)
from graphwright.runtime import GraphModule, read_attribute


class Numbers:
    """Finds the values that are numbers, as far as the graph tells, and hands them to operators as tensors."""

    def __init__(self, module: GraphModule) -> None:
        self._module = module
        self._known: set[Node] = set()

    def change(self, graph: Graph) -> None:
        """Change the branches and loops of a graph, and those inside them."""
        for node in [*graph.nodes]:
            if self._is_number(node):
                self._known.add(node)
            if is_region(node):
                self._change(node)

    def _is_number(self, value: Any) -> bool:
        if not isinstance(value, Node):
            return isinstance(value, NUMBERS)
        if value in self._known or kind_of(value) in _WORDS:
            return True
        if value.op == "placeholder" and (value.type in (bool, int, float) or _is_by_default(value)):
            return True
        if value.op == "get_attr":
            return isinstance(read_attribute(self._module, str(value.target)), NUMBERS)
        if value.op != "call_function":
            return False
        if value.target in _ALWAYS:
            return True
        return value.target in _OF_NUMBERS and all(self._is_number(arg) for arg in value.args)

    def _change(self, node: Node) -> None:
        before = len(own_bodies(node)[0].placeholders()) - len(node.args[3])
        carried = tuple(node.args[2]) if is_loop(node) else ()
        given = (*carried, *node.args[3])
        are = [self._is_number(value) for value in given]
        for i, value in enumerate(carried):
            if not (are[i] or isinstance(value, Node | torch.Tensor)):
                raise no_operator(
                    node, f"that {names_of(node.args[1], 0)[i]} is a {type(value).__name__} before a loop"
                )
        for value in given:
            if isinstance(value, Node) and value.target in CONTAINERS:
                raise no_operator(node, f"a body that is given a {getattr(value.target, '__name__', value.target)}")
        with node.graph.inserting_before(node):
            made = tuple(
                self._outside(value, node) if is_one else value for value, is_one in zip(given, are, strict=True)
            )
        node.args = (
            (*node.args[:2], made[:before], made[before:]) if carried or is_loop(node) else (*node.args[:3], made)
        )
        for body in own_bodies(node):
            self._open(body.placeholders(), are)
            self.change(body)
        if is_loop(node):
            self._give_carried(node, are[:before])
        else:
            self._give_results(node)

    def _outside(self, value: Any, node: Node) -> Node:
        if isinstance(value, Node) and value.type is None and _is_by_default(value):
            made = call(node.graph, number_as_tensor, value, value.name)
        else:
            made = call(node.graph, as_tensor, value)
        made.origin = node.origin
        return made

    def _open(self, inputs: Sequence[Node], are: Sequence[bool]) -> None:
        """Take numbers out of the tensors that a body is given."""
        for placeholder, is_one in zip(inputs, are, strict=True):
            if is_one and placeholder.users:
                with placeholder.graph.inserting_after(inputs[-1]):
                    self._known.add(_as_item(placeholder))

    def _give_carried(self, node: Node, are: Sequence[bool]) -> None:
        """Give the carried numbers as tensors in each iteration, and take them out again after the loop."""
        test, body = own_bodies(node)
        _change_output(test, partial(call, test, as_bool))
        values = body.output_node().args[0]
        for name, value, is_one in zip(names_of(body, 0), values, are, strict=False):
            if self._is_number(value) is not is_one:
                kinds = ("a number", "no number") if is_one else ("no number", "a number")
                raise no_operator(node, f"that {name} is {kinds[0]} before a loop, and {kinds[1]} in it")
        _change_output(body, partial(_wrapped, body, are))
        self._open_results(node, are)

    def _give_results(self, node: Node) -> None:
        """Give what is a number on both sides as a tensor, and take it out again behind the branch."""
        sides = own_bodies(node)
        results = [side.output_node().args[0] for side in sides]
        are = [all(self._is_number(value) for value in values) for values in zip(*results, strict=True)]
        for side in sides:
            _change_output(side, partial(_wrapped, side, are))
        self._open_results(node, are)

    def _open_results(self, node: Node, are: Sequence[bool]) -> None:
        items = items_of(node)
        if items is None and any(are):
            raise no_operator(node, "a result with numbers that is used as a whole")
        for i, takers in (items or {}).items():
            for taker in takers:
                if are[i] and taker.users:
                    with node.graph.inserting_after(taker):
                        self._known.add(_as_item(taker))


def _is_by_default(value: Node) -> bool:
    """Tell whether an input is a number by default."""
    return value.op == "placeholder" and value.type is None and bool(value.args) and isinstance(value.args[0], NUMBERS)


def _as_item(node: Node) -> Node:
    """A node that takes a number out of a tensor, for all that read it; it is made where the graph inserts."""
    item = node.graph.call_method("item", (node,))
    item.origin = node.origin
    for user in [user for user in node.users if user is not item]:
        user.replace_input_with(node, item)
    return item


def _wrapped(body: Graph, are: Sequence[bool], values: Sequence[Any]) -> tuple[Any, ...]:
    return tuple([call(body, as_tensor, value) if one else value for value, one in zip(values, are, strict=True)])


def _change_output(body: Graph, change: Callable[[Any], Any]) -> None:
    output = body.output_node()
    with body.inserting_before(output):
        output.args = (change(output.args[0]),)


_WORDS = ("int", "float", "scalar", "bool")
_ALWAYS = frozenset(
    {bool, int, float, len, operator.not_, operator.is_, operator.is_not, operator.contains, number_of_rows}
)
_OF_NUMBERS = frozenset({
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow,
    operator.neg, operator.pos, operator.invert, operator.and_, operator.or_, operator.xor, operator.lt, operator.le,
    operator.gt, operator.ge, operator.eq, operator.ne, operator.lshift, operator.rshift, abs, max, min, round,
    math.sqrt, math.ceil, math.floor, math.exp, math.log, torch.sym_max, torch.sym_min, torch.sym_not, torch.sym_int,
    torch.sym_float,
})  # fmt: skip
