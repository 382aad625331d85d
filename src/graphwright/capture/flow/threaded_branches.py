"""Jump threading: the branch that a program ends with goes into the one before it, whose sides decide it.

A `return` inside of a loop sets a flag, and a branch on it follows the loop. Where the loop is run layer by layer, it
is made of branches that know the flag at each of their ends, and may return there themselves:

    if a: y, returned = x, True         if a: return x
    else: y, returned = g(x), False     return f(g(x))
    if returned: return y
    return f(y)
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from graphwright.ir import Graph, Node, bodies_of
from graphwright.ops import add_operand, cond, ends_by_raising


def thread_end(graph: Graph) -> None:
    """Have the branch that a graph ends with be part of the one that decides it, where no operation comes twice."""
    asking = _branch_before(graph.output_node(), [graph.output_node()])
    flag = asking and asking.args[0]
    if asking is None or not isinstance(flag, Node) or flag.graph is not graph:
        return
    deciding = _branch_before(asking, [asking])
    if deciding is None or (flag is not deciding and flag.args[:1] != (deciding,)):
        return
    truths = _truths(deciding, flag)
    busy = [truth for truth, side in zip((True, False), asking.args[1:3], strict=True) if not _is_idle(side)]
    if truths is None or len({*truths}) < 2 or len(busy) > 1 or any(truths.count(truth) > 1 for truth in busy):
        return
    items = [item for item in deciding.users if item is not asking]
    _go_inside(deciding, flag, asking, asking.args[3])
    deciding.type = asking.type
    asking.replace_all_uses_with(deciding)
    graph.erase_node(asking)
    for item in items:
        graph.erase_node(item)


def _branch_before(node: Node, readers: Sequence[Node]) -> Node | None:
    """The branch that is the last thing before a node, where nothing else reads what it gives, nor its items."""
    items: list[Node] = []
    at = node.prev
    while at.target is operator.getitem and {*at.users} <= {*readers}:
        items.append(at)
        at = at.prev
    if at.op != "call_function" or at.target is not cond or len(bodies_of(at)) < 2:
        return None
    is_all = {*at.users} <= {*items, *readers} and all(item.args[0] is at for item in items)
    return at if is_all else None


def _is_idle(body: Graph) -> bool:
    """Tell whether a body only gives back what it gets."""
    return all(node.op in ("placeholder", "output") for node in body.nodes)


def _given(body: Graph, branch: Node, value: Node) -> Any:
    """What a side gives where a value is the branch, or an item of what that gives."""
    given = body.output_node().args[0]
    return given if value is branch else given[value.args[1]]


def _truths(branch: Node, flag: Node) -> list[bool] | None:
    """What a flag is at each end of a branch that gives it; None where an end does not know."""
    found: list[bool] = []
    for body in bodies_of(branch):
        value = None if ends_by_raising(body) else _given(body, branch, flag)
        if isinstance(value, Node):
            inner = _branch_before(body.output_node(), [body.output_node()])
            is_given = inner is not None and (value is inner or value.args[:1] == (inner,))
            truths = _truths(inner, value) if inner is not None and is_given else None
            if truths is None:
                return None
            found += truths
        elif isinstance(value, bool):
            found.append(value)
        elif not ends_by_raising(body):
            return None
    return found


def _go_inside(branch: Node, flag: Node, asking: Node, values: Sequence[Any]) -> None:
    """Have each end of a branch do what the asking one does for its flag; `values` are the operands of that."""
    own = {branch, *[user for user in branch.users if user.target is operator.getitem]}
    inside = {value: add_operand(branch, value) for value in values if isinstance(value, Node) and value not in own}
    like = asking.args[1].output_node().args[0]
    for body in bodies_of(branch):
        output = body.output_node()
        if ends_by_raising(body):
            output.args = (tuple([None] * len(like)) if isinstance(like, tuple) else None,)
            continue
        here = []
        for value in values:
            if isinstance(value, Node):
                value = _given(body, branch, value) if value in own else inside[value][body]
            here.append(value)
        truth = _given(body, branch, flag)
        with body.inserting_before(output):
            if isinstance(truth, bool):
                side = asking.args[1 if truth else 2]
                output.args = (body.graph_copy(side, dict(zip(side.placeholders(), here, strict=True))),)
                output._origin = side.output_node()._origin
                continue
            inner = _branch_before(output, [output])
            assert inner is not None
            items = [item for item in inner.users if item is not output]
            _go_inside(inner, truth, asking, here)
            names = [_name_of(asking, i) for i in range(len(like))] if isinstance(like, tuple) else []
            taken = [body.call_function(operator.getitem, (inner, i), name=name) for i, name in enumerate(names)]
            output.args = (tuple(taken) if taken else inner,)
        for item in items:
            body.erase_node(item)


def _name_of(branch: Node, number: int) -> str:
    """What an item of what a branch gives is called."""
    return next((user.name for user in branch.users if user.args[1:] == (number,)), "value")
