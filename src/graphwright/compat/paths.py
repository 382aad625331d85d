"""Which names tools find under torch.fx's module paths, and where they live here.

A row per path below the package: `{"room": "Name other_name"}`. `Name=old` gives the room's `Name` under the
name `old`. A path that is a file of a room of the same name (`passes.shape_prop`) needs no row.
"""

from __future__ import annotations

__all__ = ["PATHS"]

PATHS: dict[str, dict[str, str]] = {
    "graph": {"ir": "Graph", "codegen": "PythonCode"},
    "node": {"ir": "Argument Node Target map_aggregate map_arg"},
    "graph_module": {"runtime": "GraphModule"},
    "immutable_collections": {"ir": "immutable_dict immutable_list"},
    "interpreter": {"runtime": "Interpreter", "capture": "Transformer"},
    "proxy": {"capture": "Attribute GraphAppendingTracer Proxy TracerBase", "errors": "TraceError"},
    "_symbolic_trace": {"capture": "Tracer symbolic_trace wrap"},
}
