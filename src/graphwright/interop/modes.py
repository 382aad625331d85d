"""Programs of one mode: training flags as constants, and the side that is taken in the place of each branch on them."""

from __future__ import annotations

import copy

from graphwright.passes import FoldConditions, SetTraining
from graphwright.runtime import GraphModule, graph_of


def in_its_mode(module: GraphModule) -> tuple[GraphModule, dict[str, bool]]:
    """A copy whose branches on training flags are decided, and these flags by the paths of their modules.

    >>> import torch, graphwright
    >>> class Noisy(torch.nn.Module):
    ...     def forward(self, x):
    ...         return x + torch.randn_like(x) if self.training else x.relu()
    >>> quiet, modes = in_its_mode(graphwright.trace(Noisy().eval(), torch.ones(2)))
    >>> quiet.code.split("return ")[-1].strip(), modes
    ('x.relu()', {'': False})
    """
    other, modes = copy.copy(module), dict[str, bool]()
    for node in graph_of(other).all_nodes():
        path, _, name = str(node.target).rpartition(".")
        if node.op == "get_attr" and name == "training":
            modes[path] = module.get_submodule(path).training
    SetTraining().run(other)
    FoldConditions().run(other)
    return other, modes
