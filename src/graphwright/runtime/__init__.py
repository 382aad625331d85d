"""Running a graph: as a module with generated code, or node by node.

A graph and the modules that it calls come in; a callable `nn.Module` goes out. Read graph_module.py first.
"""

from graphwright.runtime.captured import captured_module
from graphwright.runtime.graph_module import GraphModule, graph_of
from graphwright.runtime.guards import Guard, expect, expect_tensors, expect_values, guards_of
from graphwright.runtime.interpreter import Interpreter
from graphwright.runtime.shells import Shells

__all__ = [
    "Guard",
    "GraphModule",
    "Interpreter",
    "Shells",
    "captured_module",
    "expect",
    "expect_tensors",
    "expect_values",
    "graph_of",
    "guards_of",
]
