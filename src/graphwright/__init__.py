"""Capture PyTorch programs as graphs, rewrite them, and get them back as ordinary Python."""

from graphwright import conveniences
from graphwright.capture import GraphAppendingTracer, Proxy, Tracer, TracerBase, Transformer, symbolic_trace, trace, wrap
from graphwright.errors import GraphwrightError, TraceError
from graphwright.ir import Graph, Node, map_arg
from graphwright.runtime import GraphModule, Interpreter

conveniences.bind()

__all__ = [
    "Graph",
    "GraphAppendingTracer",
    "GraphModule",
    "GraphwrightError",
    "Interpreter",
    "Node",
    "Proxy",
    "TraceError",
    "Tracer",
    "TracerBase",
    "Transformer",
    "map_arg",
    "symbolic_trace",
    "trace",
    "wrap",
]
