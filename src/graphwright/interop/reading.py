"""What is noted on graphs that were read of modules of torch.fx, given to the nodes of these."""

from __future__ import annotations

import torch.fx

from graphwright.ir import Graph


def note_back(module: torch.fx.GraphModule, graph: Graph) -> None:
    """Give the nodes of a module of torch.fx what was noted on those of the graph that was read of it."""
    noted = {node.name: node for node in graph.nodes}
    for node in module.graph.nodes:
        if node.name in noted:
            node.meta.update(noted[node.name].meta)
