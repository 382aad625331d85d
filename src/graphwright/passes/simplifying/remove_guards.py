"""Take the checks of what a capture took for granted out of the program."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from graphwright.ir import Node
from graphwright.ops import is_impure
from graphwright.runtime import CAPTURE, Guard, forget_modules, graph_of, guards_of


def remove_guards(module: nn.Module, wanted: Callable[[Guard], bool] = lambda guard: True) -> int:
    """Remove the guards of a captured module that are `wanted`, all by default; return how many.

    What computed nothing but what they checked goes, too. Without a guard nobody notices inputs for which the program
    takes another way than the captured one: remove those of which you know that they hold. The questions by which a
    module of several captures chooses one stay.

    >>> import torch, graphwright
    >>> gm = graphwright.trace(lambda x, scale=None: x if scale is None else x * scale, (torch.ones(2),))
    >>> len(gm.guards), remove_guards(gm, lambda guard: guard.name == "scale"), len(gm.guards)
    (2, 1, 1)
    """
    removed = 0
    graph = graph_of(module)
    for guard in guards_of(graph):
        node = guard.node
        if node is None:
            if wanted(guard):
                removed += 1
                forget_modules(graph)
            continue
        if CAPTURE in node.meta or not wanted(guard):
            continue
        removed += 1
        read = node.all_input_nodes
        if guard.name:
            node.kwargs = {name: pair for name, pair in node.kwargs.items() if name != guard.name}
        if not (guard.name and node.kwargs):
            node.graph.erase_node(node)
        _erase_unread(read)
    return removed


def _erase_unread(nodes: list[Node]) -> None:
    """Erase what nothing reads any more and what has no effect, and then what only that read."""
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if node.users or node.graph is None or node.op == "placeholder" or node._erased or is_impure(node):
            continue
        waiting += node.all_input_nodes
        node.graph.erase_node(node)
