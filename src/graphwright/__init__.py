"""Capture PyTorch programs as graphs, rewrite them, and get them back as ordinary Python."""

from graphwright import conveniences
from graphwright.errors import GraphwrightError
from graphwright.ir import Graph, Node, map_arg
from graphwright.runtime import GraphModule, Interpreter

conveniences.bind()

__all__ = ["Graph", "GraphModule", "GraphwrightError", "Interpreter", "Node", "map_arg"]
