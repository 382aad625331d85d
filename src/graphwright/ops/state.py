"""The operator of captured programs that writes an attribute: what a program keeps from one call to the next.

It names the attribute by its dotted path from the module that runs the graph, as call_module and get_attr nodes do, and
is printed as the assignment that it is: `self.encoder.hidden = hidden`.
"""

from __future__ import annotations

from typing import Any, NoReturn

from graphwright.errors import GraphError
from graphwright.ir import Graph, register_writer

__all__ = ["write_attribute", "written_attributes"]


def write_attribute(path: str, value: Any) -> NoReturn:
    """Stand in a graph for `self.path = value`; called by itself it has no module to write to and raises GraphError.

    >>> graph = Graph()
    >>> _ = graph.call_function(write_attribute, ("encoder.count", 3))
    >>> print(graph.python_code("self").src.strip())
    def forward(self):
        self.encoder.count = 3
    """
    raise GraphError(
        f"{path!r} is written by the module that runs the graph", fix="make a GraphModule of the graph, or interpret it"
    )


def written_attributes(graph: Graph) -> set[str]:
    """The dotted paths of the attributes that a graph writes, in its branches and loops too.

    >>> graph = Graph()
    >>> _ = graph.call_function(write_attribute, ("count", 3))
    >>> written_attributes(graph)
    {'count'}
    """
    return {str(node.args[0]) for node in graph.all_nodes() if node.target is write_attribute}


register_writer(write_attribute)
