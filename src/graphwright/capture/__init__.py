"""PyTorch program -> graph.

A module or function comes in, unmodified and never written to; a GraphModule goes out. Read symbolic.py and
tracer.py first, then trace.py for capture with example inputs.
"""

from graphwright.capture.proxy import Attribute, Proxy
from graphwright.capture.symbolic import symbolic_trace
from graphwright.capture.trace import trace
from graphwright.capture.tracer import GraphAppendingTracer, Tracer, TracerBase
from graphwright.capture.transformer import Transformer
from graphwright.capture.wrap import wrap

__all__ = [
    "Attribute",
    "GraphAppendingTracer",
    "Proxy",
    "Tracer",
    "TracerBase",
    "Transformer",
    "symbolic_trace",
    "trace",
    "wrap",
]
