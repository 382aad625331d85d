"""Capture PyTorch programs as graphs, rewrite them, and get them back as ordinary Python."""

import typing
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # mypy takes three of the names for the files that they are in, too
    from graphwright.analysis import profile, summary, verify
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
        record,
        recorded_calls,
        symbolic_trace,
        trace,
        wrap,
    )
    from graphwright.codegen import CodeGen
    from graphwright.engines import cuda_graph, inline, optimize_for_inference
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
    from graphwright.hierarchy import flatten, source, unflatten
    from graphwright.interop import (  # type: ignore[no-redef]
        compile_backend,
        from_export,
        from_fx,
        to_export,
        to_fx,
    )
    from graphwright.ir import Graph, Node, map_arg
    from graphwright.ops import has_side_effect
    from graphwright.passes import extract, minimize, prune, split
    from graphwright.quantization import quantize_model as quantize
    from graphwright.rewrite import (  # type: ignore[no-redef]
        Any,
        Lit,
        Var,
        explain,
        maybe,
        mod,
        one_of,
        repeat,
        replace_pattern,
        rewrite,
        rule,
    )
    from graphwright.runtime import GraphModule, Interpreter, load, save
    from graphwright.runtime import graph_of as graph
    from graphwright.script import script  # type: ignore[no-redef]
    from graphwright.settings import config
    from graphwright.viz import view

from graphwright import loading
from graphwright.ops import register_containers
from graphwright.version import __version__ as __version__

loading.install()
register_containers()


def __getattr__(name: str) -> typing.Any:
    return loading.public(name)


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
    "config",
    "converted_source",
    "cuda_graph",
    "doctor",
    "explain",
    "extract",
    "flatten",
    "from_export",
    "from_fx",
    "graph",
    "has_side_effect",
    "inline",
    "load",
    "map_arg",
    "maybe",
    "minimize",
    "mod",
    "one_of",
    "optimize_for_inference",
    "profile",
    "prune",
    "quantize",
    "record",
    "recorded_calls",
    "repeat",
    "replace_pattern",
    "rewrite",
    "rule",
    "save",
    "script",
    "source",
    "split",
    "summary",
    "symbolic_trace",
    "to_export",
    "to_fx",
    "trace",
    "unflatten",
    "verify",
    "view",
    "wrap",
]


def __dir__() -> list[str]:
    return sorted({*__all__, *loading.ROOMS, "__all__", "__doc__", "__file__", "__name__", "__path__", "__version__"})
