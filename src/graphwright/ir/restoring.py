"""Nodes that are known to be good: those of a copy, and what pickle saved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from graphwright.ir.arguments import ATOMS
from graphwright.ir.node import Argument, Node, Target, nodes_in

if TYPE_CHECKING:
    from graphwright.ir.graph import Graph

__all__ = ["restore_node"]

_new_node = Node.__new__


def restore_node(
    graph: Graph,
    name: str,
    op: str,
    target: Target,
    args: tuple[Argument, ...],
    kwargs: Mapping[str, Argument],
    type_expr: Any = None,
    meta: dict[str, Any] | None = None,
    origin: Any = None,
) -> Node:
    """Put a node at the end of a new graph exactly as it is told, and return it.

    Nothing is checked, named or told to anybody: `args` and `kwargs` are immutable and read nodes of this graph, and
    the name is marked as taken by whoever calls this.

    >>> from graphwright.ir import Graph
    >>> graph = Graph()
    >>> restore_node(graph, "x", "placeholder", "x", (), {}).name
    'x'
    """
    node = _new_node(Node)
    node.graph = graph
    node._name = name
    node._op = op
    node._target = target
    node._args = args
    node._kwargs = kwargs
    node.users = {}
    node.type = type_expr
    node._meta = meta
    node._origin = origin
    for arg in args:
        kind = type(arg)
        if kind is Node:
            arg.users[node] = None
        elif kind not in ATOMS:
            for used in nodes_in(arg):
                used.users[node] = None
    if kwargs:
        for used in nodes_in(kwargs):
            used.users[node] = None
    root = graph._root
    before = root._prev
    node._position = before._position + 1.0  # type: ignore[operator]
    node._prev, node._next = before, root
    before._next = root._prev = node
    graph._len += 1
    return node
