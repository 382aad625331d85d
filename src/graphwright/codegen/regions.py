"""Which nodes form `with` blocks."""

from __future__ import annotations

from collections.abc import Iterable

from graphwright.ir import Node
from graphwright.ops import enter_context, exit_context


def region_exits(nodes: Iterable[Node]) -> dict[Node, Node]:
    """Map each node that enters a context to the one that leaves it, where the two can be written as `with`.

    Pairs that are not properly nested are left out: they are written as the calls that they are.
    """
    exits: dict[Node, Node] = {}
    open_regions: list[Node] = []
    for node in nodes:
        if node._op != "call_function":
            continue
        if node._target is enter_context and len(node.users) == 1 and node._args:
            open_regions.append(node)
        elif node._target is exit_context and node._args and node._args[0] in open_regions and not node.users:
            entered = node._args[0]
            while open_regions.pop() is not entered:
                pass
            exits[entered] = node
    return exits
