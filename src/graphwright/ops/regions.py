"""Operators of captured programs that hold graphs of their own: branches and loops.

The graphs are arguments of the node. Each takes the values that it uses from outside as its inputs, in the order of
`operands`, and is printed as the block of a native `if`, `while` or `for`. Its call_module and get_attr nodes name
modules and tensors of the module that owns the graph around it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from graphwright.errors import GraphError
from graphwright.ir import Graph, Node, register_signature
from graphwright.ops.statements import raise_error

Body = Graph | Callable[..., Any]


def cond(pred: Any, true: Body, false: Body, operands: Sequence[Any] = ()) -> Any:
    """Run one of two bodies on the operands and return its value: `if pred: ... else: ...`.

    >>> cond(3 > 2, lambda x: x + 1, lambda x: x - 1, (10,))
    11
    """
    return run_body(true if pred else false, operands)


def while_loop(
    test: Body, body: Body, carried: Sequence[Any], operands: Sequence[Any] = (), breaks: bool = False
) -> tuple[Any, ...]:
    """Replace the carried values by what `body` gives for them, as long as `test` holds; return the last ones.

    Both bodies take the carried values, then the operands, which stay. `body` returns a tuple of new carried values;
    with `breaks`, whether the loop ends there comes first. A variable that has no value before the loop is None.

    >>> while_loop(lambda n, by: n < 100, lambda n, by: (n * by,), (1,), (3,))
    (243,)
    >>> while_loop(lambda n: True, lambda n: (n > 5, n + 1), (0,), breaks=True)
    (7,)
    """
    values = tuple(carried)
    while run_body(test, (*values, *operands)):
        given = run_body(body, (*values, *operands))
        values = tuple(given[1:] if breaks else given)
        if breaks and given[0]:
            break
    return values


def for_loop(
    iterable: Iterable[Any], body: Body, carried: Sequence[Any], operands: Sequence[Any] = (), breaks: bool = False
) -> tuple[Any, ...]:
    """Replace the carried values by what `body` gives for each item and them; return the last ones.

    `body` takes an item, the carried values and the operands, and returns a tuple of new carried values; with
    `breaks`, whether the loop ends there comes first.

    >>> for_loop(range(4), lambda i, total: (total + i,), (0,))
    (6,)
    >>> for_loop(range(4), lambda i, total: (i == 2, total + i), (0,), breaks=True)
    (3,)
    """
    values = tuple(carried)
    for item in iterable:
        given = run_body(body, (item, *values, *operands))
        values = tuple(given[1:] if breaks else given)
        if breaks and given[0]:
            break
    return values


class LoopParts(NamedTuple):
    """The arguments of a loop: `subject` is its test or its iterable."""

    subject: Any
    body: Graph
    carried: tuple[Any, ...]
    operands: tuple[Any, ...]
    breaks: bool

    @property
    def stop(self) -> Any:
        """What the body gives for whether the loop ends there; False where it never does."""
        return self.body.output_node().args[0][0] if self.breaks else False

    @property
    def given(self) -> tuple[Any, ...]:
        """What the body gives for the carried values."""
        return tuple(self.body.output_node().args[0][self.breaks :])


def loop_parts(node: Node) -> LoopParts:
    """Take the arguments of a `while_loop` or `for_loop` apart.

    >>> graph, body = Graph(), Graph()
    >>> _ = body.output((body.placeholder("item"),))
    >>> loop_parts(graph.call_function(for_loop, (range(3), body, (0,), ()))).given
    (item,)
    """
    subject, body, carried, operands, *breaks = node.args
    return LoopParts(subject, body, tuple(carried), tuple(operands), breaks == [True])


def is_loop(node: Node) -> bool:
    """Tell whether a node is a `while_loop` or a `for_loop`."""
    return node.op == "call_function" and (node.target is while_loop or node.target is for_loop)


def is_region(node: Node) -> bool:
    """Tell whether a node is a branch or a loop."""
    return is_loop(node) or (node.op == "call_function" and node.target is cond)


def values_for(node: Node, placeholder: Node) -> list[Any]:
    """What a branch or loop hands a body for one of its placeholders: an operand, or a start and what the body gives.

    >>> graph, body = Graph(), Graph()
    >>> item, total = body.placeholder("item"), body.placeholder("total")
    >>> _ = body.output((body.call_function(max, (item, total)),))
    >>> loop = graph.call_function(for_loop, (graph.placeholder("xs"), body, (0,), ()))
    >>> values_for(loop, item), values_for(loop, total)
    ([xs], [0, max_1])
    """
    index = placeholder.graph.placeholders().index(placeholder)
    if node.target is cond:
        return [node.args[3][index]]
    parts = loop_parts(node)
    values: list[list[Any]] = [[parts.subject]] if node.target is for_loop else []
    values += [list(pair) for pair in zip(parts.carried, parts.given, strict=True)]
    return [*values, *([operand] for operand in parts.operands)][index]


def gives_several(node: Node) -> bool:
    """Tell whether a branch or loop gives several values, of which items are taken; a branch may give one.

    >>> graph, true, false = Graph(), Graph(), Graph()
    >>> _ = true.output((1, 2)), false.output((3, 4))
    >>> gives_several(graph.call_function(cond, (graph.placeholder("test"), true, false, ())))
    True
    """
    return node.target is not cond or all(type(body.output_node().args[0]) is tuple for body in node.args[1:3])


def results_of(node: Node, index: int) -> list[Any]:
    """What an item of what a branch or loop gives may be: that of either side, or its start and what the body gives.

    >>> graph, true, false = Graph(), Graph(), Graph()
    >>> _ = true.output((1, 2)), false.output((3, 4))
    >>> results_of(graph.call_function(cond, (graph.placeholder("test"), true, false, ())), 1)
    [2, 4]
    """
    if node.target is cond:
        return [body.output_node().args[0][index] for body in node.args[1:3]]
    parts = loop_parts(node)
    return [parts.carried[index], parts.given[index]]


def run_body(body: Body, operands: Sequence[Any]) -> Any:
    """Run a body: a graph with the module that owns it, or any function."""
    if not isinstance(body, Graph):
        return body(*operands)
    owner = body.owning_module
    if owner is None:
        raise GraphError("a body runs with the module that owns it", fix="make a GraphModule of the graph around it")
    return owner.run_body(body, operands)


# ---- what lint checks


def _check_cond(node: Node) -> str | None:
    return _check(node, ("pred", "true", "false", "operands"), (1, 2), 0)


def _check_while(node: Node) -> str | None:
    return _check(node, _WHILE, (0, 1), 0) or _check_returned(node)


def _check_for(node: Node) -> str | None:
    return _check(node, _FOR, (1,), 1) or _check_returned(node)


_WHILE = ("test", "body", "carried", "operands", "breaks")
_FOR = ("iterable", "body", "carried", "operands", "breaks")


def _check(node: Node, names: tuple[str, ...], bodies: tuple[int, ...], more: int) -> str | None:
    """Say what is wrong with the signature of a region: its bodies take as many inputs as it has values for."""
    count = len(node.args)
    if node.kwargs or not (count == len(names) or (count == 4 and names[-1] == "breaks")):
        return f"takes the arguments {', '.join(names)}, by position"
    given = more
    for name, arg in zip(names, node.args, strict=False):
        if name in ("carried", "operands"):
            if not isinstance(arg, tuple | list):
                return f"takes a tuple of {name}"
            given += len(arg)
        elif name == "breaks" and type(arg) is not bool:
            return "takes True or False for breaks"
    for i in bodies:
        body = node.args[i]
        if isinstance(body, Graph):
            inputs = len(body.placeholders())
            if inputs != given:
                return f"gives {given} values to its {names[i]!r}, which takes {inputs}"
        elif not callable(body):
            return f"needs a graph for {names[i]!r}"
    return None


def _check_returned(node: Node) -> str | None:
    """Say where the body of a loop does not give one value for each carried one, after whether to stop."""
    body, wanted = node.args[1], len(node.args[2]) + (node.args[4:] == (True,))
    last = body._root._prev if isinstance(body, Graph) else None
    if last is None or (last.op == "output" and last._prev.target is raise_error):
        return None
    if last.op != "output":
        return "has a body without an output"
    value = last.args[0] if last.args else None
    if not isinstance(value, tuple | list):
        return f"needs a tuple of {wanted} values from its body"
    return None if len(value) == wanted else f"needs {wanted} values from its body, which returns {len(value)}"


register_signature(cond, _check_cond)
register_signature(while_loop, _check_while)
register_signature(for_loop, _check_for)
