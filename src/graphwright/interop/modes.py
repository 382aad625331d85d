"""Programs of one mode: training flags as constants, and the side that is taken in the place of each branch on them."""

from __future__ import annotations

import copy

from graphwright.ops import is_inplace
from graphwright.passes import FoldConditions, RemoveNoOps, SetTraining
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


def without_idle_dropouts(module: GraphModule) -> GraphModule:
    """A copy without the dropouts that are off, of a program that writes in place; of another one, the program itself.

    What such a dropout gives is what it is given. torch.export takes it for another tensor, which a write does not
    reach.

    >>> import torch, graphwright
    >>> def program(x):
    ...     kept = torch.nn.functional.dropout(x, 0.5, training=False)
    ...     x += 1
    ...     return kept
    >>> other = without_idle_dropouts(graphwright.trace(program, torch.ones(2)))
    >>> [node.name for node in other.graph.nodes]
    ['x', 'x_1', 'output']
    """
    calls = (node for node in graph_of(module).all_nodes() if node.op.startswith("call"))
    if not any(map(is_inplace, calls)):
        return module
    other = copy.copy(module)
    RemoveNoOps(inference=True).run(other)
    return other
