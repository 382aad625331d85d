"""What a graph does, as rows that compare and hash: values are numbers, whatever they are called."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from graphwright.ir import ATOMS, Graph, Node

_NUMBERS = frozenset({float, complex})
_AS_THEY_ARE = ATOMS - _NUMBERS


def rows_of(graph: Graph, is_body: bool = False) -> tuple[Hashable, ...]:
    """A row for each node of a graph; the inputs of a body are told by their order, others by name.

    >>> one, other = Graph(), Graph()
    >>> _ = one.call_method("relu", (one.placeholder("x"),)), other.call_method("relu", (other.placeholder("y"),))
    >>> rows_of(one) == rows_of(other), rows_of(one, is_body=True) == rows_of(other, is_body=True)
    (False, True)
    """
    numbers: dict[Node, int] = {}
    rows = []
    for node in graph.nodes:
        target = None if is_body and node._op == "placeholder" else node._target
        kwargs = plain(node._kwargs, numbers) if node._kwargs else None
        rows.append((node._op, plain(target, numbers), plain(node._args, numbers), kwargs))
        numbers[node] = len(numbers)
    return tuple(rows)


def plain(value: Any, numbers: Mapping[Node, int]) -> Hashable:
    """An argument as data that compares, given the number of each node.

    >>> plain((1.0, [True]), {}) == plain((1.0, [1]), {}), plain(0.0, {}) == plain(-0.0, {})
    (False, False)
    """
    kind = type(value)
    if kind is Node:
        return Node, numbers[value]
    if kind in _AS_THEY_ARE:
        return kind, value
    if kind in _NUMBERS:
        return kind, repr(value)  # -0.0 is another one than 0.0
    if kind is tuple or isinstance(value, tuple | list):
        row: list[Any] = [kind]
        for item in value:
            its = type(item)
            if its is Node:
                row.append(numbers[item])
            else:
                row.append((its, item) if its in _AS_THEY_ARE else plain(item, numbers))
        return tuple(row)
    if kind is Graph:
        return Graph, rows_of(value, is_body=True)
    if isinstance(value, dict):
        return dict, *[(key, plain(item, numbers)) for key, item in value.items()]
    if kind is slice:
        return slice, *[plain(item, numbers) for item in (value.start, value.stop, value.step)]
    if isinstance(value, float | complex):
        return kind, repr(value)
    return kind, value if kind.__hash__ is not None else id(value)
