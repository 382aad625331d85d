"""What a graph was like at one moment, to go back to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from graphwright.ir.graph import Graph
from graphwright.ir.node import Argument, Node, Target, nodes_in


class _Saved(NamedTuple):
    node: Node
    op: str
    target: Target
    args: tuple[Argument, ...]
    kwargs: Mapping[str, Argument]


class GraphSnapshot:
    """The nodes of one graph as they were when this was made: in what order, what each calls and reads. O(n).

    `restore` brings the very same nodes back; those that came later are erased. Names and meta stay what they are.

    >>> import operator
    >>> graph = Graph()
    >>> x = graph.placeholder("x")
    >>> output = graph.output(graph.call_function(operator.neg, (x,)))
    >>> before = GraphSnapshot(graph)
    >>> output.args = (x,)
    >>> graph.erase_node(output.prev)
    >>> before.restore()
    >>> print(graph)
    graph():
        %x : [num_users=1] = placeholder[target=x]
        %neg : [num_users=1] = call_function[target=operator.neg](args = (%x,), kwargs = {})
        return neg
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._saved = [_Saved(node, node._op, node._target, node._args, node._kwargs) for node in graph.nodes]

    def restore(self) -> None:
        """Make the graph what it was."""
        graph, root = self.graph, self.graph._root
        for node in list(graph.nodes):
            node._position = None
            node.users = {}
        last = root
        for position, saved in enumerate(self._saved):
            node = saved.node
            node._op, node._target, node._args, node._kwargs = saved.op, saved.target, saved.args, saved.kwargs
            node.users = {}
            node._position = float(position)
            node._prev, last._next = last, node
            last = node
        last._next, root._prev = root, last
        for saved in self._saved:
            for used in (*nodes_in(saved.args), *nodes_in(saved.kwargs)):
                used.users[saved.node] = None
        graph._len = len(self._saved)
        graph._index = None
        graph._point = (root, False)
        graph._edited()
