"""Training flags as constants: a program of one mode, without the branches of the other."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from graphwright.passes.regions.fold_conditions import FoldConditions
from graphwright.passes.support.bodies import put_in_place
from graphwright.runtime import graphs_of

__all__ = ["SetTraining", "training_flags"]


def training_flags(gm: nn.Module) -> dict[str, bool]:
    """The training flags that a captured module's graphs read, as they are now, by the paths of their modules."""
    paths = dict.fromkeys(
        str(node.target).rpartition(".")[0]
        for graph in graphs_of(gm)
        for node in graph.all_nodes()
        if node.op == "get_attr" and str(node.target).rpartition(".")[2] == "training"
    )
    return {path: gm.get_submodule(path).training for path in paths}


@dataclass(frozen=True, slots=True)
class SetTraining:
    """Put constants in the place of training flags, and the side that is taken in the place of each branch on them.

    `training` is the mode; without one each flag is what it is now. Calls of modules go on as their own flags say: a
    captured module that is to run in the other mode has to be captured in it, or given to this pass in it, once more.
    Returns the number of changes.

    >>> import torch
    >>> from graphwright import trace
    >>> class Noisy(nn.Module):
    ...     def forward(self, x):
    ...         return x + torch.randn_like(x) if self.training else x.relu()
    >>> gm = trace(Noisy(), torch.ones(2))
    >>> SetTraining(False).run(gm)
    2
    >>> print(gm.code.split("return ")[-1].strip())
    x.relu()
    """

    training: bool | None = None

    def run(self, gm: nn.Module) -> int:
        """Edit a captured module in place; return the number of changes."""
        flags, count = training_flags(gm), 0
        for graph in graphs_of(gm):
            for node in [*graph.all_nodes()]:
                path, _, name = str(node.target).rpartition(".")
                if node.op == "get_attr" and name == "training":
                    put_in_place(node, flags[path] if self.training is None else self.training)
                    count += 1
        return count + FoldConditions().run(gm) if count else 0
