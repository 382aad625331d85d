"""The methods of `Graph` whose code lives in files that know graphs, bound in one place.

`graph.py` and `node.py`, which only together make sense, know no other file that knows them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphwright.ir.graph import Graph
from graphwright.ir.lint import lint as check_graph
from graphwright.ir.restoring import copied_graph
from graphwright.ir.text import format_graph, format_table


def lint(self: Graph) -> None:
    """Check every invariant of the graph; raise GraphError naming the first that is broken. O(n)."""
    check_graph(self)


def print_tabular(self: Graph) -> None:
    """Print the nodes as a table: opcode, name, target, args, kwargs."""
    print(format_table(self))


def _as_text(self: Graph) -> str:
    return format_graph(self)


def _deepcopy(self: Graph, memo: dict[int, Any] | None = None) -> Graph:
    """Copy nodes, names and meta; functions and constants in arguments are shared."""
    other = copied_graph(self)
    if memo is not None:
        memo[id(self)] = other
    return other


def bind() -> None:
    """Bind the methods above to `Graph`."""
    table: dict[str, Callable[..., Any]] = {
        "lint": lint,
        "print_tabular": print_tabular,
        "__str__": _as_text,
        "__deepcopy__": _deepcopy,
    }
    for name, function in table.items():
        function.__name__, function.__qualname__ = name, f"Graph.{name}"
        setattr(Graph, name, function)
