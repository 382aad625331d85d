"""PyTorch program -> graph.

A module or function comes in, unmodified and never written to; a GraphModule goes out. Read symbolic.py and
tracer.py first, then trace.py for capture with example inputs.
"""

from graphwright.capture.doctor import doctor
from graphwright.capture.obstacles import Diagnosis, Obstacle
from graphwright.capture.origins import Scope, ScopeContextManager
from graphwright.capture.proxy import Attribute, MetaProxy, ParameterProxy, Proxy
from graphwright.capture.proxyable import ProxyableClassMeta
from graphwright.capture.questions import TracerWarning
from graphwright.capture.recording import GraphAppendingTracer, TracerBase
from graphwright.capture.root_inputs import PH, PHBase, PHWithMeta
from graphwright.capture.symbolic import symbolic_trace
from graphwright.capture.trace import trace
from graphwright.capture.tracer import Tracer, is_fx_symbolic_tracing, is_fx_tracing
from graphwright.capture.transformer import Transformer
from graphwright.capture.wrap import wrap

__all__ = [
    "PH",
    "Attribute",
    "Diagnosis",
    "GraphAppendingTracer",
    "MetaProxy",
    "Obstacle",
    "PHBase",
    "PHWithMeta",
    "ParameterProxy",
    "Proxy",
    "ProxyableClassMeta",
    "Scope",
    "ScopeContextManager",
    "Tracer",
    "TracerWarning",
    "TracerBase",
    "Transformer",
    "doctor",
    "is_fx_symbolic_tracing",
    "is_fx_tracing",
    "symbolic_trace",
    "trace",
    "wrap",
]
