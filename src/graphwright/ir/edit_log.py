"""Which nodes of a graph were edited: for analyses that compute anew only what depends on an edit."""

from __future__ import annotations

from graphwright.ir.graph import Graph
from graphwright.ir.node import Node


class EditLog:
    """The nodes of one graph that were made, erased, moved or given something else to call or read since one asked.

    The graph keeps no log alive, and pays for it at edits only. Bodies of branches and loops are graphs of their own.

    >>> import operator
    >>> graph = Graph()
    >>> x = graph.placeholder("x")
    >>> log = EditLog(graph)
    >>> y = graph.call_function(operator.neg, (x,))
    >>> log.take(), log.take()
    ({neg: None}, {})
    """

    __slots__ = ("__weakref__", "_all", "_touched")

    def __init__(self, graph: Graph) -> None:
        self._touched: dict[Node, None] = {}
        self._all = False
        graph._keep_log(self)

    def note(self, node: Node | None) -> None:
        """Note that a node was edited; None for what may concern all nodes."""
        if node is None:
            self._all = True
        else:
            self._touched[node] = None

    @property
    def has_edits(self) -> bool:
        """Whether anything was edited since the last time."""
        return self._all or bool(self._touched)

    def take(self) -> dict[Node, None] | None:
        """The nodes edited since the last time, erased ones too, as the keys of a dict; None for all of them."""
        touched, self._touched = self._touched, {}
        is_all, self._all = self._all, False
        return None if is_all else touched
