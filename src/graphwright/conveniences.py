"""torch.fx's convenience methods on `ir` classes that need lower rooms, bound in one place.

`ir` alone is usable without them: it knows neither torch nor code generation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphwright.codegen import PythonCode, graph_to_readable_source, graph_to_source
from graphwright.ir import Graph, Node, format_node
from graphwright.ops import is_impure

__all__ = ["bind"]


def python_code(self: Graph, root_module: str = "self") -> PythonCode:
    """Write the graph as the source of a function whose first parameter is called `root_module`."""
    if self.has_bodies:
        return graph_to_readable_source(self, root_module, owner=self.owning_module)
    return graph_to_source(self, root_module)


def eliminate_dead_code(self: Graph, is_impure_node: Callable[[Node], bool] | None = None) -> bool:
    """Erase nodes that nothing reads and that have no effect beyond their value; answer whether any went.

    In-place operations, random ones, checks and functions of unknown effect stay. `is_impure_node` decides
    instead, where given.
    """
    impure = is_impure_node or node_is_impure
    before = len(self.nodes)
    for node in reversed(self.nodes):
        if not node.users and not impure(node):
            self.erase_node(node)
    return len(self.nodes) != before


def node_is_impure(self: Node) -> bool:
    """Tell whether the node has an effect beyond its value, so that it stays though nobody reads it."""
    owner = self.graph.owning_module
    module = None
    if self.op == "call_module" and owner is not None:
        module = owner.get_submodule(self.target)
    return is_impure(self, module)


def bind() -> None:
    """Bind the methods below to their classes."""
    table: dict[type, dict[str, Any]] = {
        Graph: {"python_code": python_code, "eliminate_dead_code": eliminate_dead_code},
        Node: {"is_impure": node_is_impure, "format_node": format_node},
    }
    for kind, methods in table.items():
        for name, function in methods.items():
            setattr(kind, name, function)
