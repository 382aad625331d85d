"""Capture PyTorch programs as graphs, rewrite them, and get them back as ordinary Python."""

import importlib
import typing
from typing import TYPE_CHECKING

from graphwright import compat, conveniences
from graphwright.analysis import verify
from graphwright.capture import (
    PH,
    GraphAppendingTracer,
    Proxy,
    ProxyableClassMeta,
    Tracer,
    TracerBase,
    TracerWarning,
    Transformer,
    converted_source,
    doctor,
    symbolic_trace,
    trace,
    wrap,
)
from graphwright.codegen import CodeGen
from graphwright.engines import inline, optimize_for_inference
from graphwright.errors import (
    CaptureError,
    GraphError,
    GraphwrightError,
    GuardError,
    LoadError,
    ScriptError,
    TraceError,
    UnknownNameError,
)
from graphwright.interop import compile_backend, from_export, from_fx, read_others, to_export, to_fx
from graphwright.ir import Graph, Node, map_arg
from graphwright.ops import has_side_effect
from graphwright.passes import extract, prune, split
from graphwright.quantization import quantize_model as quantize
from graphwright.rewrite import Any, Lit, Var, explain, maybe, mod, one_of, repeat, replace_pattern, rewrite, rule
from graphwright.runtime import GraphModule, Interpreter, load, save
from graphwright.script import script

conveniences.bind()
compat.install()
read_others()
if TYPE_CHECKING:
    from graphwright.runtime import graph_of as graph
else:
    graph = importlib.import_module("graphwright.graph")  # a module, as in torch.fx, and a function: `graph(module)`


def __getattr__(name: str) -> typing.Any:
    return compat.load(name)


__all__ = [
    "PH",
    "Any",
    "CaptureError",
    "CodeGen",
    "Graph",
    "GraphAppendingTracer",
    "GraphError",
    "GraphModule",
    "GraphwrightError",
    "GuardError",
    "Interpreter",
    "Lit",
    "LoadError",
    "Node",
    "Proxy",
    "ProxyableClassMeta",
    "ScriptError",
    "TraceError",
    "Tracer",
    "TracerBase",
    "TracerWarning",
    "Transformer",
    "UnknownNameError",
    "Var",
    "compile_backend",
    "converted_source",
    "doctor",
    "explain",
    "extract",
    "from_export",
    "from_fx",
    "graph",
    "has_side_effect",
    "inline",
    "load",
    "map_arg",
    "maybe",
    "mod",
    "one_of",
    "optimize_for_inference",
    "prune",
    "quantize",
    "repeat",
    "replace_pattern",
    "rewrite",
    "rule",
    "save",
    "script",
    "split",
    "symbolic_trace",
    "to_export",
    "to_fx",
    "trace",
    "verify",
    "wrap",
]
