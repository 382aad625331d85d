"""Operators of captured programs that hold graphs of their own: branches and loops.

The graphs are arguments of the node. Each takes the values that it uses from outside as its inputs, in the order of
`operands`, and is printed as the block of a native `if`, `while` or `for`. Its call_module and get_attr nodes name
modules and tensors of the module that owns the graph around it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from graphwright.errors import GraphError
from graphwright.ir import Graph, Node, register_signature

__all__ = ["Body", "cond", "for_loop", "is_region", "run_body", "while_loop"]

Body = Graph | Callable[..., Any]


def cond(pred: Any, true: Body, false: Body, operands: Sequence[Any] = ()) -> Any:
    """Run one of two bodies on the operands and return its value: `if pred: ... else: ...`.

    >>> cond(3 > 2, lambda x: x + 1, lambda x: x - 1, (10,))
    11
    """
    return run_body(true if pred else false, operands)


def while_loop(test: Body, body: Body, carried: Sequence[Any], operands: Sequence[Any] = ()) -> tuple[Any, ...]:
    """Replace the carried values by what `body` gives for them, as long as `test` holds; return the last ones.

    Both bodies take the carried values, then the operands, which stay. `body` returns a tuple of new carried values.

    >>> while_loop(lambda n, by: n < 100, lambda n, by: (n * by,), (1,), (3,))
    (243,)
    """
    values = tuple(carried)
    while run_body(test, (*values, *operands)):
        values = tuple(run_body(body, (*values, *operands)))
    return values


def for_loop(
    iterable: Iterable[Any], body: Body, carried: Sequence[Any], operands: Sequence[Any] = ()
) -> tuple[Any, ...]:
    """Replace the carried values by what `body` gives for each item and them; return the last ones.

    `body` takes an item, the carried values and the operands, and returns a tuple of new carried values.

    >>> for_loop(range(4), lambda i, total: (total + i,), (0,))
    (6,)
    """
    values = tuple(carried)
    for item in iterable:
        values = tuple(run_body(body, (item, *values, *operands)))
    return values


def is_region(node: Node) -> bool:
    """Tell whether a node is a branch or a loop."""
    return node.op == "call_function" and (node.target is cond or node.target is while_loop or node.target is for_loop)


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
    return _check(node, ("test", "body", "carried", "operands"), (0, 1), 0)


def _check_for(node: Node) -> str | None:
    return _check(node, ("iterable", "body", "carried", "operands"), (1,), 1)


def _check(node: Node, names: tuple[str, ...], bodies: tuple[int, ...], more: int) -> str | None:
    """Say what is wrong with the signature of a region: its bodies take as many inputs as it has values for."""
    if node.kwargs or len(node.args) != len(names):
        return f"takes the arguments {', '.join(names)}, by position"
    given = more
    for name, arg in zip(names, node.args, strict=True):
        if name in ("carried", "operands"):
            if not isinstance(arg, tuple | list):
                return f"takes a tuple of {name}"
            given += len(arg)
    for i in bodies:
        body = node.args[i]
        if isinstance(body, Graph):
            inputs = sum(inner.op == "placeholder" for inner in body.nodes)
            if inputs != given:
                return f"gives {given} values to its {names[i]!r}, which takes {inputs}"
        elif not callable(body):
            return f"needs a graph for {names[i]!r}"
    return None


register_signature(cond, _check_cond)
register_signature(while_loop, _check_while)
register_signature(for_loop, _check_for)
