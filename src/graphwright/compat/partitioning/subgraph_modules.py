"""Graphs of parts of a module: as modules of their own, and compared."""

from __future__ import annotations

from typing import Any

from torch import nn

from graphwright.ir import Graph, Node, map_arg
from graphwright.runtime import GraphModule

__all__ = ["HolderModule", "compare_graphs", "lift_subgraph_as_module"]


class HolderModule(nn.Module):
    """A module that only holds others, by name.

    >>> [name for name, _ in HolderModule({"relu": nn.ReLU()}).named_children()]
    ['relu']
    """

    def __init__(self, d: dict[str, nn.Module | None]) -> None:
        super().__init__()
        for name, module in d.items():
            self.add_module(name, module)


def lift_subgraph_as_module(
    gm: GraphModule, subgraph: Graph, comp_name: str = "", class_name: str = "GraphModule"
) -> tuple[GraphModule, dict[str, str]]:
    """Make a module of a graph that uses attributes of `gm`.

    Returns it, and for each attribute that it uses `comp_name.path` by the path.

    >>> from graphwright import symbolic_trace
    >>> gm = symbolic_trace(nn.Sequential(nn.ReLU()))
    >>> lift_subgraph_as_module(gm, gm.graph, "part")[1]
    {'0': 'part.0'}
    """
    used = dict.fromkeys(str(node.target) for node in subgraph.nodes if node.op in ("call_module", "get_attr"))
    return GraphModule(gm, subgraph, class_name), {path: f"{comp_name}.{path}" for path in used}


def compare_graphs(left: Graph, right: Graph) -> bool:
    """Tell whether two graphs compute the same in the same way: node by node, whatever the names.

    >>> from graphwright import symbolic_trace
    >>> compare_graphs(symbolic_trace(lambda x: x + 1).graph, symbolic_trace(lambda y: y + 1).graph)
    True
    """
    if len(left.nodes) != len(right.nodes):
        return False
    place = {node: i for graph in (left, right) for i, node in enumerate(graph.nodes)}
    return all(_form(a, place) == _form(b, place) for a, b in zip(left.nodes, right.nodes, strict=True))


def _form(node: Node, place: dict[Node, int]) -> Any:
    """What a node does, with nodes by their places; an input's target is only its name."""

    def at(used: Node) -> Any:
        return ("node", place[used])

    target = None if node.op == "placeholder" else node.target
    return node.op, target, map_arg(node.args, at), map_arg(dict(node.kwargs), at)
