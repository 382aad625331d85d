"""What `import graphwright` leaves for later: its rooms are loaded when something in them is first asked for.

Three tables say what is found where. `PUBLIC` has the names of the package by their rooms, and `METHODS` the methods of
`ir` classes whose code needs lower rooms: torch.fx's convenience methods, and how pickle takes graphs. What waits for a
room to be loaded is in `_WAITING`.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from graphwright import compat
from graphwright.garbage import rare_collections
from graphwright.ir import Graph, Node

__all__ = ["METHODS", "PUBLIC", "ROOMS", "install", "public"]

_PACKAGE = __name__.partition(".")[0]

PUBLIC: dict[str, str] = {
    "analysis": "profile summary verify",
    "capture": "PH GraphAppendingTracer Proxy ProxyableClassMeta Tracer TracerBase TracerWarning Transformer "
    "converted_source doctor record recorded_calls symbolic_trace trace wrap",
    "codegen": "CodeGen",
    "engines": "cuda_graph inline optimize_for_inference",
    "errors": "CaptureError GraphError GraphwrightError GuardError LoadError ScriptError TraceError UnknownNameError",
    "hierarchy": "flatten source unflatten",
    "interop": "compile_backend from_export from_fx to_export to_fx",
    "ir": "Graph Node map_arg",
    "ops": "has_side_effect",
    "passes": "extract minimize prune split",
    "quantization": "quantize_model=quantize",
    "rewrite": "Any Lit Var explain maybe mod one_of repeat replace_pattern rewrite rule",
    "runtime": "GraphModule Interpreter load save",
    "script": "script",
    "viz": "view",
    "settings": "config",
}

# The rooms that are there as attributes, for who looks: `graphwright.passes`.
ROOMS = (
    *("analysis", "capture", "codegen", "distributed", "engines", "errors", "hierarchy", "interop", "ir", "onnx"),
    *("ops", "passes", "quantization", "rewrite", "runtime", "script", "viz"),
)

METHODS: dict[type, dict[str, str]] = {
    Graph: {
        "__reduce__": "runtime.reduce_graph",
        "python_code": "conveniences.python_code",
        "_codegen": "conveniences.codegen",
        "set_codegen": "conveniences.set_codegen",
        "process_inputs": "conveniences.process_inputs",
        "process_outputs": "conveniences.process_outputs",
        "on_generate_code": "codegen.on_generate_code",
        "eliminate_dead_code": "passes.eliminate_dead_code",
    },
    Node: {
        "__reduce__": "runtime.reduce_node",
        "is_impure": "conveniences.node_is_impure",
        "format_node": "conveniences.format_node_with_metadata",
        "normalized_arguments": "conveniences.normalized_arguments",
        "_pretty_print_target": "conveniences.pretty_target",
    },
}


def read(path: str) -> Any:
    """What a path below the package says: `room.name`. The room is loaded, if it is not."""
    room, _, name = path.rpartition(".")
    module = f"{_PACKAGE}.{room}"
    with contextlib.nullcontext() if module in sys.modules else rare_collections():  # what a room is made of stays
        return getattr(importlib.import_module(module), name)


# ---- the names of the package

# By public name, where it is; `name=public` is the room's `name` under another one.
_PATHS = {
    each.rpartition("=")[2]: f"{room}.{each.partition('=')[0]}"
    for room, names in PUBLIC.items()
    for each in names.split()
}


def public(name: str) -> Any:
    """A public name of the package, a room, or a module under one of torch.fx's paths; it stays as an attribute.

    Raises AttributeError for every other name.
    """
    if name not in _PATHS:
        return compat.load(name)
    value = read(_PATHS[name])
    setattr(sys.modules[_PACKAGE], name, value)
    return value


class _Package(ModuleType):
    """The package. A module below it becomes its attribute once it is loaded."""

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, ModuleType):
            for act in _WAITING.get(name, ()):
                act()
            compat.show_paths(name)
            if name in _PATHS:  # `rewrite`, `script` and `source` are functions, that of `source` in another room
                if _PATHS[name] != f"{name}.{name}":
                    return
                value = getattr(value, name)
        super().__setattr__(name, value)


# ---- the methods of graphs and nodes


class _Method:
    """Stands in a class where a method is to be, until somebody asks for it."""

    def __init__(self, kind: type, name: str, path: str) -> None:
        self._kind, self._name, self._path = kind, name, path

    def __get__(self, instance: Any, owner: type) -> Any:
        return self._found().__get__(instance, owner)

    def __set__(self, instance: Any, value: Any) -> None:
        self._found()
        setattr(instance, self._name, value)  # as the class has it from now on

    def _found(self) -> Any:
        if vars(self._kind)[self._name] is self:
            setattr(self._kind, self._name, read(self._path))
        return vars(self._kind)[self._name]


# ---- modules of other systems


def _is_fx(module: Any) -> bool:
    return any(kind.__name__ == "GraphModule" and kind.__module__ == _FX for kind in type(module).__mro__)


_FX = "torch.fx.graph_module"


def _late(path: str) -> Callable[..., Any]:
    """A function that is read when it is called."""
    return lambda *args: read(path)(*args)


def _read_others() -> None:
    """Have functions that only look at a captured module take torch.fx's, those that measure take models,
    and torch.jit.script take captured ones.
    """
    runtime = sys.modules[f"{_PACKAGE}.runtime"]
    runtime.capture_with(_late("capture.trace"))
    runtime.write_scripts(_late("interop.write_for_torchscript"))
    runtime.read_foreign(
        runtime.ForeignModules(_is_fx, _late("interop.from_fx"), _late("interop.note_back"), "from_fx")
    )


def _show_quantization() -> None:
    """Have captured modules say what became of their layers."""
    module = sys.modules[f"{_PACKAGE}.runtime"].GraphModule
    module.quantization = property(_late("quantization.quantization_of"))


_WAITING: dict[str, tuple[Callable[[], None], ...]] = {"runtime": (_read_others, _show_quantization)}


def install() -> None:
    """Have the package load what it needs. Doing it again changes nothing."""
    compat.install()
    sys.modules[_PACKAGE].__class__ = _Package
    for kind, methods in METHODS.items():
        for name, path in methods.items():
            if name not in vars(kind):
                setattr(kind, name, _Method(kind, name, path))
