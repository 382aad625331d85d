"""Nodes that are known to be good: those of a copy of a graph, and what pickle saved."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from graphwright.ir.arguments import ATOMS, EMPTY_KWARGS
from graphwright.ir.graph import Graph, own_bodies
from graphwright.ir.node import Argument, Node, Target, map_arg, nodes_in

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


def copied_graph(graph: Graph) -> Graph:
    """Copy nodes, names and meta; functions and constants in arguments are shared."""
    if graph._unnamed:
        graph._make_names()
    other = Graph(tracer_cls=graph._tracer_cls, tracer_extras=graph._tracer_extras)
    other._writer = copy.deepcopy(graph._writer)
    other.has_bodies = graph.has_bodies
    values: dict[Node, Argument] = {}
    for node in graph.nodes:
        meta = node._meta
        values[node] = restore_node(
            other,
            node._name,  # type: ignore[arg-type]
            node._op,
            node._target,
            _copied_args(node._args, values),
            map_arg(node._kwargs, values.__getitem__) if node._kwargs else EMPTY_KWARGS,
            node.type,
            meta if meta is None else copy.copy(meta),
            node._origin,
        )
    other._namespace = graph._namespace.copy()
    other.constants = dict(graph.constants)
    if graph._meta is not None:
        other._meta = copy.copy(graph._meta)
    return other


def _copied_args(args: tuple[Argument, ...], values: dict[Node, Argument]) -> tuple[Argument, ...]:
    """Rebuild positional arguments for the copy of a graph; flat ones without the general walk."""
    copied = []
    for arg in args:
        kind = type(arg)
        if kind is Node:
            copied.append(values[arg])
        elif kind in ATOMS:
            copied.append(arg)
        else:
            return own_bodies(map_arg(args, values.__getitem__))
    return tuple(copied)
