"""The one writer of nodes that hold graphs: a branch, a loop or a `try`, its operands and the items that it gives.

The bodies are written; what is left is to close each with what it gives, to hand it what it uses from around, and to
make the node. How a room makes a node, with the place of the user's program, it says by a function. What of a node
came to be of no use is taken away here, too: operands, and values that loops carry.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from graphwright.ir import Graph, NestedGraph, Node, bodies_of, shared_operands
from graphwright.ops.effects import is_impure
from graphwright.ops.regions import cond, for_loop, is_region, loop_parts, while_loop
from graphwright.ops.statements import evaluated, raise_error
from graphwright.ops.transforms import transformed

Make = Callable[[Callable[..., Any], tuple[Any, ...], str], Node]  # of a function, its arguments and a name, if any


def write_branch(
    make: Make,
    pred: Any,
    sides: Sequence[NestedGraph],
    results: Sequence[Sequence[Any]],
    names: Sequence[str],
    origins: Sequence[Any],
    name: str = "",
) -> list[Node]:
    """Write a branch whose sides give these results, and return a node for each; none where it does nothing at all.

    >>> program = NestedGraph()
    >>> x = program.graph.placeholder("x")
    >>> sides = [NestedGraph(program), NestedGraph(program)]
    >>> results = [[side.graph.call_method(name, (side.lift(x),))] for side, name in zip(sides, ("relu", "neg"))]
    >>> def make(function, args, name):
    ...     return program.graph.call_function(function, args, name=name or None)
    >>> write_branch(make, x, sides, results, ["y"], (None, None)), [*sides[1].graph.nodes]
    ([y], [x, neg, output])
    """
    if not names and all(side.is_empty() for side in sides):
        return []
    for side, given, origin in zip(sides, results, origins, strict=True):
        side.close(None if not given else given[0] if len(given) == 1 else tuple(given), origin)
    operands = tuple(shared_operands(sides))
    args = (pred, *[side.graph for side in sides], operands)
    if len(names) == 1:
        return [make(cond, args, names[0])]
    return _items(make, make(cond, args, name), names)


def write_loop(
    make: Make,
    subject: Any,
    test: tuple[NestedGraph, Any] | None,
    body: NestedGraph,
    starts: Sequence[Any],
    given: Sequence[Any],
    stop: Any,
    names: Sequence[str],
    origin: Any,
    name: str = "",
) -> list[Node]:
    """Write a loop, and return a node for each value that it carries.

    A `while` has a body that gives a `test`, a `for` a `subject` to go over. A `stop` other than None says in an
    iteration whether the loop ends there.
    """
    breaks = stop is not None
    bodies = [body]
    if test is not None:
        bodies.insert(0, test[0])
        test[0].close(test[1], origin)
    body.close((stop, *given) if breaks else tuple(given), origin)
    operands = tuple(shared_operands(bodies))
    args = (*[each.graph for each in bodies], tuple(starts), operands, *((True,) if breaks else ()))
    loop = make(while_loop, args, name) if test is not None else make(for_loop, (subject, *args), name)
    return _items(make, loop, names)


def write_attempt(
    make: Make,
    body: NestedGraph,
    given: Sequence[Any],
    errors: tuple[type[BaseException], ...],
    may_raise: Callable[[Node], bool],
    names: Sequence[str],
    origin: Any,
    name: str = "",
) -> tuple[Node, list[Node]]:
    """Write the body of a `try`, and return a node for the error that it raises, and one for each value it gives.

    What in it `may_raise` is computed there even though nothing reads it.
    """
    body.close(tuple(given), origin)
    _keep_computing(body.graph, may_raise)
    operands = tuple(shared_operands([body]))
    options = {"errors": errors, "count": len(given)}
    node = make(transformed, ("attempt", body.graph, (), operands, options), name)
    error, *items = _items(make, node, ["error", *names])
    return error, items


def add_operand(node: Node, value: Node) -> dict[Graph, Node]:
    """Give the bodies of a branch, loop or transform a value as an operand, if it is none; return what stands for it.

    >>> graph, true, false = Graph(), Graph(), Graph()
    >>> x = graph.placeholder("x")
    >>> _ = true.output(1), false.output(2)
    >>> branch = graph.call_function(cond, (x, true, false, ()))
    >>> inside = add_operand(branch, x)
    >>> branch.args[3], true.placeholders() == [inside[true]], add_operand(branch, x) == inside
    ((x,), True, True)
    """
    operands = node.args[3]
    bodies = [body for body in node._args if isinstance(body, Graph)]
    behind = [i for i, operand in enumerate(operands) if operand is value]
    if behind:
        return {body: body.placeholders()[behind[0] - len(operands)] for body in bodies}
    made = {}
    for body in bodies:
        known = body.placeholders()
        with body.inserting_after(known[-1]) if known else body.inserting_before(next(iter(body.nodes))):
            made[body] = body.create_node("placeholder", value.name, (), {}, value.name)
        made[body].target = made[body].name
    node.args = (*node._args[:3], (*operands, value), *node._args[4:])
    return made


def ends_by_raising(body: Graph) -> bool:
    """Tell whether the last thing that a body does is to raise."""
    last = body._root._prev
    return (last._prev if last._op == "output" else last)._target is raise_error


def drop_operands(node: Node, among: Iterable[int] | None = None) -> int:
    """Take away the operands that no body of a branch, loop or transform reads; return how many.

    Only those whose numbers are `among` these, where given.

    >>> graph, true, false = Graph(), Graph(), Graph()
    >>> x, y = graph.placeholder("x"), graph.placeholder("y")
    >>> for side in (true, false):
    ...     used, unused = side.placeholder("x"), side.placeholder("y")
    ...     _ = side.output(used)
    >>> branch = graph.call_function(cond, (x, true, false, (x, y)))
    >>> drop_operands(branch), branch.args[3]
    (1, (x,))
    """
    operands = node._args[3]
    left = set(range(len(operands)) if among is None else among)
    inputs = []
    for body in node._args if left else ():
        if isinstance(body, Graph):
            inputs.append(placeholders := body.placeholders()[-len(operands) :])
            left.difference_update([i for i, placeholder in enumerate(placeholders) if placeholder.users])
    if left:
        for placeholders in inputs:
            for i in left:
                placeholders[i].graph.erase_node(placeholders[i])
        kept = tuple([operand for i, operand in enumerate(operands) if i not in left])
        node.args = (*node._args[:3], kept, *node._args[4:])
    return len(left)


def keep_carried(loop: Node, kept: Sequence[int], as_operands: Sequence[int] = ()) -> None:
    """Have a loop carry only those of its values that have these numbers; what else it carries goes, with its readers.

    Some of the rest, which never change, stay as operands. All that reads the loop takes items of it.

    >>> graph, body = Graph(), Graph()
    >>> i, total, step = (body.placeholder(name) for name in ("i", "total", "step"))
    >>> _ = body.output((body.call_function(operator.add, (total, step)), step))
    >>> x = graph.placeholder("x")
    >>> loop = graph.call_function(for_loop, (range(3), body, (0, x), ()))
    >>> keep_carried(loop, [0], as_operands=[1])
    >>> loop.args[2:], body.output_node().args
    (((0,), (x,)), ((add,),))
    """
    parts = loop_parts(loop)
    given = [parts.given[i] for i in kept]
    parts.body.output_node().args = ((parts.stop, *given) if parts.breaks else (*given,),)
    for body in bodies_of(loop):
        inputs = body.placeholders()
        first = len(inputs) - len(parts.operands) - len(parts.carried)
        last = inputs[-1]
        for i, placeholder in enumerate(inputs[first : first + len(parts.carried)]):
            if i in as_operands:
                if placeholder is not last:
                    last.append(placeholder)
                last = placeholder
            elif i not in kept:
                _erase_with_readers(placeholder)
    operands = (*parts.operands, *[parts.carried[i] for i in as_operands])
    loop.args = (*loop.args[:2], tuple([parts.carried[i] for i in kept]), operands, *loop.args[4:])
    for item in list(loop.users):
        if item.args[1] in kept:
            item.args = (loop, kept.index(item.args[1]))
        else:
            item.graph.erase_node(item)


def _erase_with_readers(node: Node) -> None:
    while node.users:
        _erase_with_readers(next(iter(node.users)))
    node.graph.erase_node(node)


def _items(make: Make, node: Node, names: Sequence[str]) -> list[Node]:
    """A node for each item of what another one gives."""
    return [make(operator.getitem, (node, i), name) for i, name in enumerate(names)]


def _keep_computing(graph: Graph, may_raise: Callable[[Node], bool]) -> None:
    """Have what may raise an error computed, in a graph and those inside it, though nothing reads it."""
    for node in list(graph.all_nodes()):
        source = node.args[0] if node.target is operator.getitem else node
        if node.users or node.op in ("placeholder", "output", "get_attr"):
            continue
        if isinstance(source, Node) and is_region(source):
            continue
        if may_raise(node) and not is_impure(node):
            with node.graph.inserting_after(node):
                made = node.graph.call_function(evaluated, (node,))
            made._origin = node._origin
