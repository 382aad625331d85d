"""Operations that nothing needs, and the submodules that nothing calls any more."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from graphwright.ops import is_impure, is_scratch_write
from graphwright.passes.simplifying.dead_values import remove_dead_values
from graphwright.passes.support.bodies import module_of
from graphwright.runtime import GraphModule, graphs_of


@dataclass(frozen=True, slots=True)
class RemoveDeadCode:
    """Erase what nothing reads and what has no effect, in bodies too; see `RemoveDeadValues`.

    submodules: also take submodules out of the captured module that its graph does not use, where it has one graph.
        Their parameters are no longer in its `state_dict`; the original model keeps them.

    Operations that write in place, draw random numbers, check something or are not known stay. Modules are seen in the
    mode that they are in: of one in evaluation goes, too, what it would do in training, as to write statistics. Returns
    the number of operations, values of branches and loops, and submodules that went.

    >>> from graphwright import symbolic_trace
    >>> class Net(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.used, self.unused = nn.Linear(2, 2), nn.Linear(2, 2)
    ...     def forward(self, x):
    ...         self.unused(x).relu()
    ...         return self.used(x)
    >>> gm = symbolic_trace(Net())
    >>> RemoveDeadCode(submodules=True).run(gm)
    3
    >>> [name for name, _ in gm.named_children()]
    ['used']
    """

    submodules: bool = False

    def run(self, gm: nn.Module) -> int:
        """Edit a captured module in place; return the number of changes."""
        find, graphs = module_of(gm), graphs_of(gm)
        count = sum(
            remove_dead_values(graph, lambda node: is_impure(node, find(node)) and not is_scratch_write(node, find))
            for graph in graphs
        )
        if self.submodules and isinstance(gm, GraphModule) and len(graphs) == 1:
            before = len(list(gm.modules()))
            gm.delete_all_unused_submodules()
            count += before - len(list(gm.modules()))
        return count
