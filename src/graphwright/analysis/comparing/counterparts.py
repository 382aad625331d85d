"""Which nodes of two captured modules give the same value, one being a rewritten twin of the other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import nn

from graphwright.ir import Node
from graphwright.runtime import graph_of

Kinds = Mapping[str, Any]


def counterparts(original: nn.Module, changed: nn.Module, kinds: tuple[Kinds, Kinds] = ({}, {})) -> dict[str, str]:
    """Map names of nodes to those of the nodes that stand for them in the other module, in the order of the first.

    A node and its namesake belong together. Where only nodes that the other side lacks come next, one after another,
    the ends belong together: a convolution that has swallowed a batch norm stands for that. `kinds` says of the
    nodes of either module, by name, of what kind their values are: an end is of the kind of what it stands for, so that
    a value is not compared with itself in whole numbers. Nodes without a namesake belong to what they were put in the
    place of, as `meta["from_node"]` says; where that is not known, to the last one from the same place in the user's
    program.

    >>> from graphwright import symbolic_trace
    >>> gm, twin = symbolic_trace(lambda x: x.exp().neg().sin()), symbolic_trace(lambda x: x.exp().sin())
    >>> counterparts(gm, twin)
    {'neg': 'exp', 'sin': 'sin'}
    """
    ours, theirs = _calls(original), _calls(changed)

    def alike(name: str, node: Node) -> bool:
        return bool(kinds[0].get(name) == kinds[1].get(node.name))

    pairs: dict[str, str] = {}
    for name, node in ours.items():
        if name in theirs:
            pairs[_end(node, theirs, kinds[0]).name] = _end(theirs[name], ours, kinds[1]).name
    taken = set(pairs.values())
    left = [node for name, node in theirs.items() if name not in taken and name not in ours]
    by_source: dict[str, str] = {}
    for node in left:
        source = next(
            (name for name in _sources(node) if name in ours and name not in pairs and alike(name, node)), None
        )
        if source is not None:
            by_source[source] = node.name  # the last one made for it wins: it gives the value
    pairs.update(by_source)
    taken.update(by_source.values())
    by_place = {_place(node): name for name, node in ours.items() if name not in pairs and node.origin is not None}
    for node in left:
        place = by_place.get(_place(node))
        if node.name not in taken and place is not None and alike(place, node):
            pairs[place] = node.name  # the last one of a place wins
    return {name: pairs[name] for name in ours if name in pairs}


def _sources(node: Node) -> list[str]:
    """The names of the nodes that a node was put in the place of: those of the program as captured first."""
    found: list[str] = []
    level = list((node._meta or {}).get("from_node", ()))
    while level:
        found += [source.name for source in level]
        level = [below for source in level for below in source.from_node]
    return found[::-1]


def _calls(gm: nn.Module) -> dict[str, Node]:
    return {node.name: node for node in graph_of(gm).all_nodes() if node.op.startswith("call")}


def _end(node: Node, known: Iterable[str], kinds: Kinds) -> Node:
    """The last one of this kind of the nodes that follow one after another and that the other side does not know."""
    end = node
    while len(node.users) == 1:
        (user,) = node.users
        if user.op == "output" or user.name in known:
            break
        node = user
        if kinds.get(node.name) == kinds.get(end.name):
            end = node
    return end


def _place(node: Node) -> Any:
    origin = node.origin
    if origin is None:
        return None
    return origin.file, origin.line, origin.column, origin.end_column, origin.module, origin.call
