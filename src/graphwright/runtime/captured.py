"""The module that a capture returns: the program's own class, tree and state, with a generated forward."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from torch import nn

from graphwright.ir import Graph
from graphwright.runtime.graph_module import GraphModule, _adopt, _instance_class, _State
from graphwright.runtime.shells import Shells

__all__ = ["captured_module", "users_names"]

_OUR_NAMES = ("graph", "code", "guards", "meta")


def captured_module(root: nn.Module | None, graph: Graph, name: str) -> GraphModule:
    """Make the captured module of a graph: an instance of the class of `root`, or of GraphModule without one.

    It has a second tree of the same modules, attributes and hooks; parameters and buffers are shared with `root`. Where
    the program uses a name of ours, such as `graph`, its own meaning wins.
    """
    if root is None:
        module = GraphModule(nn.Module(), graph, name)
        _adopt(module, _State(graph, is_readable=True))
        return module
    original = type(root)
    if issubclass(original, GraphModule):  # captured again
        original = next(kind for kind in original.__mro__ if not kind.__dict__.get("_is_instance_class"))
    bases = (original,) if issubclass(original, GraphModule) else (original, GraphModule)
    users = users_names(name for name in _OUR_NAMES if _holds(root, name))
    kind = _instance_class(type(root).__name__, bases, users)
    module = cast(GraphModule, Shells(root, root_class=kind).root)
    module.__dict__.pop("forward", None)
    for constant, value in graph.constants.items():
        module.register_buffer(constant, value, persistent=False)
    signed = original if "forward" not in root.__dict__ and not issubclass(original, GraphModule) else None
    _adopt(module, _State(graph, is_readable=True, original=signed))
    return module


def users_names(names: Iterable[str]) -> dict[str, Any]:
    """What the class of a captured module needs where the program uses names of ours, by these names."""
    return {name: _UsersName(name) for name in names if name in _OUR_NAMES}


class _UsersName:
    """In the class of a captured module, leads a name back to what the program's instance holds under it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, module: nn.Module | None, owner: type) -> Any:
        return self if module is None else nn.Module.__getattr__(module, self._name)


def _holds(module: nn.Module, name: str) -> bool:
    tables = (module.__dict__, module._modules, module._parameters, module._buffers)
    return any(name in table for table in tables)
