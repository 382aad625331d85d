"""Editing a captured module so that it can be taken back: its graphs, and which modules and tensors it holds."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from torch import nn

from graphwright.ir import GraphSnapshot
from graphwright.runtime.entries import STATE
from graphwright.runtime.graph_module import _adopt, graphs_of
from graphwright.runtime.modules.nested import nested_in

_TABLES = ("_modules", "_parameters", "_buffers", "_non_persistent_buffers_set")


class Snapshot:
    """What a captured module was like when this was made. `restore` brings back its graphs, modules and tensors.

    Those of nested captured modules, too. The values inside of tensors are not kept. O(nodes + modules).
    """

    def __init__(self, gm: nn.Module) -> None:
        self._gm = gm
        own = graphs_of(gm)
        self._nested = nested_in(gm)
        entries = [entry for module in self._nested for entry in module.__dict__[STATE].entries.values()]
        self._entries = [(entry, entry.graph, entry.shared) for entry in entries]
        graphs = list({id(graph): graph for graph in (*own, *[each[1] for each in self._entries])}.values())
        self._graphs = [GraphSnapshot(inner) for graph in graphs for inner in graph.all_graphs()]
        self._constants = [(graph, dict(graph.constants)) for graph in graphs]
        self._tables = [(module, name, _copy(vars(module)[name])) for module in gm.modules() for name in _TABLES]

    def restore(self) -> None:
        """Make the module what it was."""
        for module, name, table in self._tables:
            current = vars(module)[name]
            current.clear()
            current.update(table)
        for entry, graph, shared in self._entries:
            entry.graph, entry.shared = graph, shared
        for module in self._nested:
            _adopt(module, module.__dict__[STATE])
        for graph, constants in self._constants:
            graph.constants.clear()
            graph.constants.update(constants)
        for snapshot in self._graphs:
            snapshot.restore()


def _copy(table: Any) -> Any:
    return table.copy()


@contextlib.contextmanager
def transaction(gm: nn.Module) -> Iterator[Snapshot]:
    """Edit a captured module: if the block raises, the module is what it was before, and the exception goes on.

    The snapshot that the block gets can be restored later, too.

    >>> from graphwright import symbolic_trace
    >>> gm = symbolic_trace(lambda x: x + 1)
    >>> with transaction(gm) as before:
    ...     _ = gm.graph.output_node().prepend(gm.graph.call_function(print, ()))
    >>> len(gm.graph.nodes)
    4
    >>> before.restore()
    >>> len(gm.graph.nodes)
    3
    """
    before = Snapshot(gm)
    try:
        yield before
    except BaseException:
        before.restore()
        raise
