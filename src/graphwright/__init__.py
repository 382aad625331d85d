"""Capture PyTorch programs as graphs, rewrite them, and get them back as ordinary Python."""

from graphwright import conveniences
from graphwright.analysis import verify
from graphwright.capture import (
    GraphAppendingTracer,
    Proxy,
    Tracer,
    TracerBase,
    Transformer,
    symbolic_trace,
    trace,
    wrap,
)
from graphwright.errors import CaptureError, GraphError, GraphwrightError, GuardError, TraceError
from graphwright.ir import Graph, Node, map_arg
from graphwright.runtime import GraphModule, Interpreter
from graphwright.runtime import graph_of as graph

conveniences.bind()

__all__ = [
    "CaptureError",
    "Graph",
    "GraphAppendingTracer",
    "GraphError",
    "GraphModule",
    "GraphwrightError",
    "GuardError",
    "Interpreter",
    "Node",
    "Proxy",
    "TraceError",
    "Tracer",
    "TracerBase",
    "Transformer",
    "graph",
    "map_arg",
    "symbolic_trace",
    "trace",
    "verify",
    "wrap",
]
