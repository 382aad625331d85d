"""Which nodes of two captured modules give the same value, one being a rewritten twin of the other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import nn

from graphwright.ir import Node
from graphwright.runtime import graph_of

__all__ = ["counterparts"]


def counterparts(original: nn.Module, changed: nn.Module) -> dict[str, str]:
    """Map names of nodes to those of the nodes that stand for them in the other module, in the order of the first.

    A node and its namesake belong together. Where only nodes that the other side lacks come next, one after another,
    the ends belong together: a convolution that has swallowed a batch norm stands for that. Nodes without a namesake
    belong to the last one from the same place in the user's program.

    >>> from graphwright import symbolic_trace
    >>> gm, twin = symbolic_trace(lambda x: x.exp().neg().sin()), symbolic_trace(lambda x: x.exp().sin())
    >>> counterparts(gm, twin)
    {'neg': 'exp', 'sin': 'sin'}
    """
    ours, theirs = _calls(original), _calls(changed)
    pairs: dict[str, str] = {}
    for name, node in ours.items():
        if name in theirs:
            pairs[_end(node, theirs).name] = _end(theirs[name], ours).name
    taken = set(pairs.values())
    by_place = {_place(node): name for name, node in ours.items() if name not in pairs and node.origin is not None}
    for name, node in theirs.items():
        if name not in taken and name not in ours and (place := _place(node)) in by_place:
            pairs[by_place[place]] = name  # the last one of a place wins
    return {name: pairs[name] for name in ours if name in pairs}


def _calls(gm: nn.Module) -> dict[str, Node]:
    return {node.name: node for node in graph_of(gm).all_nodes() if node.op.startswith("call")}


def _end(node: Node, known: Iterable[str]) -> Node:
    """The last of the nodes that follow one after another and that the other side does not know."""
    while len(node.users) == 1:
        (user,) = node.users
        if user.op == "output" or user.name in known:
            break
        node = user
    return node


def _place(node: Node) -> Any:
    origin = node.origin
    if origin is None:
        return None
    return origin.file, origin.line, origin.column, origin.end_column, origin.module, origin.call
