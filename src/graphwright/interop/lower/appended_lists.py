"""Lists that a loop only appends to, as what the loop collects: one value of each iteration.

The loop becomes `collecting_for` or `collecting_while`, whose body gives the values after the carried ones; the list is
extended by them after the loop. A branch whose sides both append to a list gives what is appended after it.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Sequence
from typing import Any

from graphwright.ir import Graph, Node
from graphwright.ops import Body, for_loop, is_loop, is_region, loop_parts, raise_error, run_body, while_loop
from graphwright.runtime import GraphModule, graph_of


def collecting_for(
    iterable: Iterable[Any], body: Body, carried: Sequence[Any], operands: Sequence[Any], breaks: bool, count: int
) -> tuple[Any, ...]:
    """Run `for_loop`; after the carried values come `count` lists of what the iterations gave beside them.

    >>> collecting_for(range(3), lambda i, total: (total + i, total), (0,), (), False, 1)
    (3, [0, 0, 1])
    """
    lists: tuple[list[Any], ...] = tuple([] for _ in range(count))

    def step(*given: Any) -> tuple[Any, ...]:
        return _kept(run_body(body, given), lists)

    return (*for_loop(iterable, step, carried, operands, breaks), *lists)


def collecting_while(
    test: Body, body: Body, carried: Sequence[Any], operands: Sequence[Any], breaks: bool, count: int
) -> tuple[Any, ...]:
    """Run `while_loop`; after the carried values come `count` lists of what the iterations gave beside them.

    >>> collecting_while(lambda n: n < 3, lambda n: (n + 1, n), (0,), (), False, 1)
    (3, [0, 1, 2])
    """
    lists: tuple[list[Any], ...] = tuple([] for _ in range(count))

    def step(*given: Any) -> tuple[Any, ...]:
        return _kept(run_body(body, given), lists)

    return (*while_loop(test, step, carried, operands, breaks), *lists)


def _kept(given: Sequence[Any], lists: tuple[list[Any], ...]) -> tuple[Any, ...]:
    kept = len(given) - len(lists)
    for values, value in zip(lists, given[kept:], strict=True):
        values.append(value)
    return tuple(given[:kept])


def collect_appended(module: GraphModule) -> int:
    """Rewrite the loops of a program whose bodies append to lists from outside, once in each iteration; count them.

    A list that the body reads, or appends to on one side of a branch, stays as it is.
    """
    regions = [node for node in graph_of(module).all_nodes() if is_region(node)]
    return sum([_collect(each) if is_loop(each) else _append_after(each) for each in reversed(regions)])


def _append_after(branch: Node) -> bool:
    """Have a branch whose sides both append one value to a list give the value, which is appended after it."""
    graph, sides = branch.graph, [arg for arg in branch.args if isinstance(arg, Graph)]
    operands = branch.args[3] if len(branch.args) > 3 else ()
    if len(sides) != 2 or any(side.output_node()._prev.target is raise_error for side in sides):
        return False
    inputs = [side.placeholders() for side in sides]
    for i, operand in enumerate(operands):
        appends = [_append_to(side[i]) for side in inputs]
        if not isinstance(operand, Node) or not all(append is not None for append in appends):
            continue
        was_nothing = all(side.output_node().args[0] is None for side in sides)
        for side, append in zip(sides, appends, strict=True):
            assert append is not None
            value, output = append.args[1], side.output_node()
            side.erase_node(append)
            side.erase_node(side.placeholders()[i])
            output.args = (value if was_nothing else (output.args[0], value),)
        branch.args = (*branch.args[:3], tuple([each for j, each in enumerate(operands) if j != i]))
        value = branch
        with graph.inserting_after(branch):
            if not was_nothing:
                value = graph.call_function(operator.getitem, (branch, 1))
                given = graph.call_function(operator.getitem, (branch, 0))
        if not was_nothing:
            branch.replace_all_uses_with(given, delete_user_cb=functools.partial(_is_none_of, (value, given)))
        with graph.inserting_after(value):
            graph.call_method("append", (operand, value)).origin = branch.origin
        return True
    return False


def _is_none_of(nodes: tuple[Node, ...], user: Node) -> bool:
    return user not in nodes


def _collect(loop: Node) -> bool:
    parts = loop_parts(loop)
    body, graph = parts.body, loop.graph
    operands = body.placeholders()[len(body.placeholders()) - len(parts.operands) :]
    appends = [_append_to(inside) for inside in operands]
    found = [
        (i, append)
        for i, append in enumerate(appends)
        if append is not None and isinstance(parts.operands[i], Node) and not _is_read_by_test(loop, i)
    ]
    if not found or body.output_node()._prev.target is None:
        return False
    values = [append.args[1] for _, append in found]
    for _, append in found:
        body.erase_node(append)
    output = body.output_node()
    output.args = ((*output.args[0], *values),)
    kind = collecting_for if loop.target is for_loop else collecting_while
    args = (parts.subject, body, parts.carried, parts.operands, parts.breaks, len(found))
    with graph.inserting_after(loop):
        made = graph.call_function(kind, args)
    made.origin = loop.origin
    loop.replace_all_uses_with(made)
    graph.erase_node(loop)
    after = made
    for k, (i, _) in enumerate(found):
        with graph.inserting_after(after):
            items = graph.call_function(operator.getitem, (made, len(parts.carried) + k))
        with graph.inserting_after(items):
            after = graph.call_method("extend", (parts.operands[i], items))
        items.origin = after.origin = made.origin
    return True


def _append_to(inside: Node) -> Node | None:
    """The one node of a body that uses this operand: it appends to it."""
    users = list(inside.users)
    if len(users) != 1:
        return None
    user = users[0]
    is_append = user.op == "call_method" and user.target == "append" and not user.users
    return user if is_append and user.args[0] is inside and user.args[1] is not inside else None


def _is_read_by_test(loop: Node, operand: int) -> bool:
    test = loop.args[0]
    if not isinstance(test, Graph):
        return False
    inputs = test.placeholders()
    return bool(inputs[len(inputs) - len(loop_parts(loop).operands) + operand].users)
