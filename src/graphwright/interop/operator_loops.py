"""Loops in the form of torch's `while_loop`: one that counts for each `for`, and none that breaks."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from graphwright.interop.operands import as_bool, number_of_rows
from graphwright.interop.operator_parts import CONTAINERS, call, names_of, no_operator
from graphwright.ir import Graph, Node, Origin, map_arg, nodes_in
from graphwright.ops import cond, for_loop, is_loop, loop_parts, while_loop
from graphwright.passes import (
    inline,
    items_of,
    put_in_place,
)


def count(node: Node) -> None:
    """Have a `for` be a `while` that counts."""
    if node.target is not for_loop:
        return
    items, old, carried, operands, breaks = loop_parts(node)
    with node.graph.inserting_before(node):
        start, stop, step, item = _counted(items, node)
    names = ["i", *names_of(old, 1)[: len(carried)]]
    taken = dict.fromkeys([*nodes_in(item), *nodes_in(operands), *nodes_in(stop)])
    test, (number, *inputs) = _body(names, [*taken])
    end = map_arg(stop, dict(zip(taken, inputs[len(carried) :], strict=True)).__getitem__)
    test.output(test.call_function(operator.lt if step > 0 else operator.gt, (number, end)))
    body, (number, *inputs) = _body(names, [*taken])
    inside = dict(zip(taken, inputs[len(carried) :], strict=True)).__getitem__
    given = (_item(item, body, number, inside), *inputs[: len(carried)], *map_arg(tuple(operands), inside))
    result = tuple(body.graph_copy(old, dict(zip(old.placeholders(), given, strict=True))))  # type: ignore[arg-type]
    body.output((*result[:breaks], body.call_function(operator.add, (number, step)), *result[breaks:]))
    _replace(node, (test, body, (start, *carried), tuple(taken), *[True] * breaks), 1)


def _counted(items: Any, node: Node) -> tuple[Any, Any, int, Any]:
    """What a loop counts from, to and by, and its item: a tensor for its rows, a number for what it counts from there.

    An item None is what is counted itself, and a tuple of items one of several.
    """
    if isinstance(items, range):
        return items.start, items.stop, items.step, None
    if not isinstance(items, Node) or (items.target in CONTAINERS and items.target not in _SEVERAL):
        raise no_operator(node, "a loop over what is no tensor and no range")
    if items.target is range:
        start, stop, step = items.args if len(items.args) == 3 else (*(0, *items.args)[-2:], 1)
        if type(step) is not int:
            raise no_operator(node, "a range whose step only a run knows")
        return start, stop, step, None
    first = items.kwargs.get("start", (*items.args[1:], 0)[0]) if items.target is enumerate else 0
    if type(first) is not int or items.kwargs.get("strict"):
        raise no_operator(node, "a zip that is strict, or an enumeration from where only a run knows")
    if items.target not in _SEVERAL:
        return 0, call(node.graph, number_of_rows, items, _where(node)), 1, items
    parts = [_counted(part, node) for part in (items.args if items.target is zip else items.args[:1])]
    item = tuple([start if one is None else one for start, _, _, one in parts])
    if any(step != 1 or (one is None and start != 0) for start, _, step, one in parts):
        raise no_operator(node, "a range among several that starts elsewhere than at 0")
    stops = [stop for _, stop, _, _ in parts]
    stop = stops[0] if len(stops) == 1 else call(node.graph, min, *stops)
    return 0, stop, 1, item if items.target is zip else (first, *item)


_SEVERAL = (enumerate, zip)


def _item(item: Any, body: Graph, number: Node, inside: Callable[[Node], Any]) -> Any:
    """The item of an iteration, in the body."""
    if item is None:
        return number
    if isinstance(item, tuple):
        return tuple([_item(part, body, number, inside) for part in item])
    if isinstance(item, Node):
        return body.call_method("select", (inside(item), 0, number))
    return call(body, operator.add, number, item) if item else number


def carry_whether_it_goes_on(node: Node) -> None:
    """Have a loop that may break carry whether it goes on, so that its test is asked as often as before."""
    if not (is_loop(node) and loop_parts(node).breaks):
        return
    test, old, carried, operands, *_ = node.args
    names = names_of(old, 0)[: len(carried)]
    with node.graph.inserting_before(node):
        going = call(node.graph, as_bool, inline(test, (*carried, *operands), node))
    asked, (first, *_) = _body(["going", *names], operands)
    asked.output(first)
    body, (_, *given) = _body(["going", *names], operands)
    stop, *result = body.graph_copy(old, dict(zip(old.placeholders(), given, strict=True)))  # type: ignore[misc]
    ended, _ = _body(names, operands)
    ended.output(call(ended, as_bool, False))
    again, inputs = _body(names, operands)
    holds = again.graph_copy(test, dict(zip(test.placeholders(), inputs, strict=True)))
    again.output(call(again, as_bool, holds))
    others = (*result, *given[len(carried) :])
    goes_on = body.call_function(cond, (stop, ended, again, tuple(others)))
    goes_on.origin = node.origin
    body.output((goes_on, *result))
    _replace(node, (asked, body, (going, *carried), tuple(operands)), 1)


def _replace(node: Node, args: tuple[Any, ...], more: int) -> None:
    """Put a `while_loop` that carries some `more` values first in the place of a loop."""
    graph = node.graph
    items = items_of(node)
    count = len(args[2])
    with graph.inserting_before(node):
        made = graph.call_function(while_loop, args, name=node.name)
        made.origin = node.origin
        wanted = range(more, count) if items is None else sorted(i + more for i in items)
        values = {i - more: graph.call_function(operator.getitem, (made, i)) for i in wanted}
    for value in values.values():
        value.origin = node.origin
    put_in_place(node, tuple([values.get(i) for i in range(count - more)]))


def _body(names: Sequence[str], operands: Sequence[Any]) -> tuple[Graph, list[Node]]:
    """A graph with inputs of these names, and one for each operand."""
    graph = Graph()
    given = [operand.name if isinstance(operand, Node) else "value" for operand in operands]
    made = [graph.placeholder(name) for name in (*names, *given)]
    for placeholder in made:
        placeholder.target = placeholder.name  # no two have one
    return graph, made


def _where(node: Node) -> str:
    origin = node.origin
    return f"{origin.file}:{origin.line}: {origin.source}" if isinstance(origin, Origin) else node.name
