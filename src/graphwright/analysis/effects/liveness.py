"""From where to where the values of a graph are needed, and the memory behind them."""

from __future__ import annotations

from torch import nn

from graphwright.errors import GraphError
from graphwright.ir import Node, bodies_of
from graphwright.ops import shared_inputs
from graphwright.runtime import graph_of, read_attribute


class Liveness:
    """Which values of a captured module are needed until where.

    A use in the body of a branch or loop counts where that is. Nothing is kept: the answers follow edits. Raises
    GraphError for nodes of other graphs.

    >>> from graphwright import symbolic_trace
    >>> gm = symbolic_trace(lambda x: (x.exp().view(-1).sum(), x.neg()))
    >>> x, exp, view, sum_1, neg, output = gm.graph.nodes
    >>> liveness = Liveness(gm)
    >>> liveness.last_use(exp), liveness.last_use_of_memory(exp), liveness.last_use(neg)
    (view, sum_1, output)
    >>> liveness.after(view)
    [x, view]
    """

    def __init__(self, gm: nn.Module) -> None:
        self._gm = gm
        self._graph = graph_of(gm)

    def last_use(self, node: Node) -> Node:
        """The last node that reads a value: the output, where the program returns it; itself, where nothing does."""
        self._own(node)
        return max(node.users, default=node)

    def last_use_of_memory(self, node: Node) -> Node:
        """The last node that reads a value or what may be a view of it, or of what it is a view of.

        After it the memory is free, unless that is an input's or a parameter's.
        """
        last = self.last_use(node)
        seen, waiting = {node}, [node]
        while waiting:
            value = waiting.pop()
            last = max(last, self.last_use(value))
            near = [user for user in value.users if user.op != "output" and value in self._shared(user)]
            for other in (*near, *self._shared(value)):
                if other not in seen:
                    seen.add(other)
                    waiting.append(other)
        return last

    def after(self, node: Node) -> list[Node]:
        """The values that are there after a node and read later, in order. O(n)."""
        self._own(node)
        found = []
        for value in node.graph.nodes:
            if any(user > node for user in value.users):
                found.append(value)
            if value is node:
                break
        return found

    def _shared(self, node: Node) -> list[Node]:
        """The values whose memory a value may be."""
        if node.op in ("placeholder", "get_attr"):
            return []
        shared = None if bodies_of(node) else shared_inputs(node, self._module)
        return node.all_input_nodes if shared is None else shared

    def _module(self, node: Node) -> nn.Module | None:
        return read_attribute(self._gm, str(node.target)) if node.op == "call_module" else None

    def _own(self, node: Node) -> None:
        if node._erased or not any(node.graph is graph for graph in self._graph.all_graphs()):
            raise GraphError(
                f"{node.name} is no node of the module", fix="ask for one of its graph, or of a body in it"
            )
