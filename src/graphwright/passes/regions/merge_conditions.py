"""Branches on one condition: inside each other, where it is known, and in a row, where one branch is enough."""

from __future__ import annotations

import operator
from dataclasses import dataclass

from torch import nn

from graphwright.ir import Graph, Node
from graphwright.ops import add_operand, cond, is_impure, is_region
from graphwright.passes.support.bodies import (
    ends_by_raising,
    inline,
    items_of,
    may_write,
    module_of,
    nodes_between,
    own_bodies,
    plain_graphs,
    put_in_place,
    regions_in,
)
from graphwright.runtime import graph_of


@dataclass(frozen=True, slots=True)
class MergeConditions:
    """Where a side of a branch branches on the same condition again, put the side that is taken in its place.

    Two branches in a row on one condition become one, if what is between them needs nothing of the first. In programs
    that write in place nothing is merged, since a condition may be a tensor. Returns the number of branches that went.

    >>> from graphwright import Graph, GraphModule
    >>> def side(*values):
    ...     body = Graph()
    ...     x = body.placeholder("x")
    ...     body.output(body.call_method(values[0], (x,)))
    ...     return body
    >>> then, graph = Graph(), Graph()
    >>> p, x = then.placeholder("p"), then.placeholder("x")
    >>> _ = then.output(then.call_function(cond, (p, side("relu"), side("neg"), (x,))))
    >>> other = Graph()
    >>> _, x = other.placeholder("p"), other.placeholder("x")
    >>> _ = other.output(x)
    >>> p, x = graph.placeholder("p"), graph.placeholder("x")
    >>> _ = graph.output(graph.call_function(cond, (p, then, other, (p, x))))
    >>> gm = GraphModule(nn.Module(), graph)
    >>> MergeConditions().run(gm)
    1
    >>> [node.target for node in then.nodes]
    ['p', 'x', 'relu', 'output']
    """

    def run(self, gm: nn.Module) -> int:
        """Edit a captured module in place; return the number of changes."""
        if may_write(graph_of(gm).nodes, gm):
            return 0
        count = 0
        for node in regions_in(gm):
            if node.target is not cond or not isinstance(node.args[0], Node):
                continue
            for is_true, body in zip((True, False), own_bodies(node), strict=True):
                for placeholder, operand in zip(body.placeholders(), node.args[3], strict=True):
                    if operand is node.args[0]:
                        count += _settle(body, placeholder, is_true)
        for graph in plain_graphs(graph_of(gm)):
            last: dict[Node, Node] = {}  # the branch on a condition that came last
            for node in list(graph.nodes):
                if node.target is cond and isinstance(node.args[0], Node) and own_bodies(node):
                    first = last.get(node.args[0])
                    if first is not None and _may_be_one(first, node, gm):
                        _make_one(first, node)
                        count += 1
                    else:
                        last[node.args[0]] = node
        return count


def _may_be_one(first: Node, second: Node, gm: nn.Module) -> bool:
    """Tell whether a branch may wait until another one on its condition, and be one with it."""
    bodies = [*own_bodies(first), *own_bodies(second)]
    outputs = [body.output_node().args[0] for body in bodies if not ends_by_raising(body)]
    if len(outputs) < 4:
        return False
    if _width(outputs[0]) != _width(outputs[1]) or _width(outputs[2]) != _width(outputs[3]):
        return False
    items = {node for node in first.users if node.target is operator.getitem and node.args[0] is first}
    between, find = nodes_between(first, second, items), module_of(gm)
    if any(is_impure(node, find(node), in_any_mode=True) or is_region(node) for node in between):
        return False
    return not any(used is first or used in items for node in between for used in node.all_input_nodes)


def _width(value: object) -> int:
    """How many values a body gives as a tuple; -1 where it gives one."""
    return len(value) if isinstance(value, tuple) else -1


def _make_one(first: Node, second: Node) -> None:
    """Have a branch do on each side what another one does there afterwards."""
    graph = first.graph
    second.prepend(first)
    before, after = (_width(own_bodies(node)[0].output_node().args[0]) for node in (first, second))
    if before < 0:  # it gives a tuple from now on
        with graph.inserting_before(second):
            only = graph.call_function(operator.getitem, (first, 0), name=first.name)
        first.replace_all_uses_with(only, lambda user: user is not only)
    items = [user for user in first.users if user.target is operator.getitem]
    for item in items:
        second.prepend(item)
    places = {item: item.args[1] for item in items}
    for operand in second.args[3]:
        if isinstance(operand, Node) and operand is not first and operand not in places:
            add_operand(first, operand)
    for body, more in zip(own_bodies(first), own_bodies(second), strict=True):
        output = body.output_node()
        given = output.args[0] if isinstance(output.args[0], tuple) else (output.args[0],)
        inputs = dict(zip(first.args[3], body.placeholders(), strict=True)) if first.args[3] else {}
        known = {**inputs, **{item: given[int(place)] for item, place in places.items()}, first: given}
        values = [known.get(value, value) if isinstance(value, Node) else value for value in second.args[3]]
        result = inline(more, values, output)
        output.args = ((*given, *(result if isinstance(result, tuple) else (result,))),)
    with graph.inserting_before(second):
        names = {i: takers[0].name for i, takers in (items_of(second) or {}).items()}
        taken = [
            graph.call_function(operator.getitem, (first, abs(before) + i), name=names.get(i, second.name))
            for i in range(abs(after))
        ]
    put_in_place(second, taken[0] if after < 0 else tuple(taken))


def _settle(body: Graph, pred: Node, is_true: bool) -> int:
    """Take away the branches on a condition, in a body and those inside it, where it is known."""
    count = 0
    for node in list(body.nodes):
        if node._erased or not is_region(node) or not own_bodies(node):
            continue
        if node.target is cond and node.args[0] is pred:
            side = node.args[1 if is_true else 2]
            if not ends_by_raising(side):
                put_in_place(node, inline(side, node.args[3], node))
                count += 1
                continue
        operands = node.args[3]
        for inner in own_bodies(node):
            inputs = inner.placeholders()
            for i, operand in enumerate(operands):
                if operand is pred:
                    count += _settle(inner, inputs[i - len(operands)], is_true)
    return count
