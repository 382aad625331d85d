"""PyTorch program -> graph.

A module or function comes in, unmodified and never written to; a GraphModule goes out. Read symbolic.py and
tracer.py first, then trace.py for capture with example inputs.
"""

from graphwright.capture.conversion import converted_source
from graphwright.capture.doctor import doctor
from graphwright.capture.entries import Subject, placeholder_of, share_constants
from graphwright.capture.leaf_modules import LeafModules, leaf_predicate
from graphwright.capture.noting import note_output, noted
from graphwright.capture.obstacles import Diagnosis, Obstacle
from graphwright.capture.origins import Scope, ScopeContextManager, definition_line
from graphwright.capture.proxy import Attribute, MetaProxy, ParameterProxy, Proxy, find_tracer
from graphwright.capture.proxyable import ProxyableClassMeta
from graphwright.capture.recording import GraphAppendingTracer, TracerBase
from graphwright.capture.root_inputs import PH, PHBase, PHWithMeta
from graphwright.capture.sources import Source, source_of
from graphwright.capture.symbolic import symbolic_trace
from graphwright.capture.tidy import erase_unused
from graphwright.capture.trace import trace
from graphwright.capture.tracer import Tracer, is_fx_symbolic_tracing, is_fx_tracing
from graphwright.capture.tracer_warnings import TracerWarning
from graphwright.capture.transformer import Transformer
from graphwright.capture.wrap import wrap

__all__ = [
    "PH",
    "Attribute",
    "Diagnosis",
    "GraphAppendingTracer",
    "LeafModules",
    "MetaProxy",
    "Obstacle",
    "PHBase",
    "PHWithMeta",
    "ParameterProxy",
    "Proxy",
    "ProxyableClassMeta",
    "Scope",
    "ScopeContextManager",
    "Source",
    "Subject",
    "Tracer",
    "TracerWarning",
    "TracerBase",
    "Transformer",
    "converted_source",
    "definition_line",
    "doctor",
    "erase_unused",
    "find_tracer",
    "is_fx_symbolic_tracing",
    "is_fx_tracing",
    "leaf_predicate",
    "note_output",
    "noted",
    "placeholder_of",
    "share_constants",
    "source_of",
    "symbolic_trace",
    "trace",
    "wrap",
]
