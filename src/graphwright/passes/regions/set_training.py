"""Training flags that are known before the program runs: literals in the place of what the graph reads."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from graphwright.ir import Node
from graphwright.ops import written_attributes
from graphwright.passes.support.bodies import put_in_place
from graphwright.runtime import graphs_of, read_attribute


@dataclass(frozen=True, slots=True)
class SetTraining:
    """Put a module in one mode for good: each training flag that its graph reads becomes the literal that it is then.

    training: the mode that `gm.train(training)` puts the module in first, which a class may have an idea of its own of,
        such as norms that stay in evaluation; None leaves each flag as it is.

    `FoldConditions` then folds the branches on these flags, and `RemoveNoOps` takes out dropout that is off. A flag
    that the program writes stays. `train()` and `eval()` change afterwards what called modules do, as ever, and no
    longer what the program itself asks. Returns the number of flags and modes changed.

    >>> from graphwright import trace
    >>> import torch
    >>> class Noisy(nn.Module):
    ...     def forward(self, x):
    ...         return x + torch.randn_like(x) if self.training else x.relu()
    >>> from graphwright.passes import FoldConditions
    >>> gm = trace(Noisy(), torch.ones(2))
    >>> SetTraining(False).run(gm), FoldConditions().run(gm)
    (2, 1)
    >>> print(gm.code.split("return ")[-1].strip())
    x.relu()
    """

    training: bool | None = None

    def run(self, gm: nn.Module) -> int:
        """Edit a captured module in place; return the number of changes."""
        before = {path: module.training for path, module in gm.named_modules()}
        if self.training is not None:
            gm.train(self.training)
        count = sum(module.training is not before[path] for path, module in gm.named_modules())
        for graph in graphs_of(gm):
            written = set(written_attributes(graph))
            for node in [node for node in graph.all_nodes() if _is_flag(node) and node.target not in written]:
                put_in_place(node, read_attribute(gm, str(node.target)))
                count += 1
        return count


def _is_flag(node: Node) -> bool:
    return node.op == "get_attr" and str(node.target).rpartition(".")[2] == "training"
