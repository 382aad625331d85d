"""Modules of parts of captured programs: a graph of its own, and only what it uses, under the names of the whole."""

from __future__ import annotations

from torch import nn

from graphwright.ir import Graph
from graphwright.runtime.entries import STATE
from graphwright.runtime.graph_module import GraphModule


def part_module(root: nn.Module, graph: Graph, class_name: str = "GraphModule") -> GraphModule:
    """Make a module of a graph that names modules and tensors of `root`: it has these, under their names.

    Modules and tensors are shared with `root`. Its code is written as that of captures with example inputs.

    >>> graph = Graph()
    >>> _ = graph.output(graph.create_node("call_module", "1", (graph.placeholder("x"),)))
    >>> list(part_module(nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 4)), graph).state_dict())
    ['1.weight', '1.bias']
    """
    module = GraphModule(root, graph, class_name)
    module.__dict__[STATE].is_readable = True
    return module
