"""Modules inside a captured one that are captured modules themselves; equal ones share a graph and its code."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, cast

from torch import nn

from graphwright.ir import Graph
from graphwright.runtime.entries import STATE, SharedCode
from graphwright.runtime.graph_facts import Facts
from graphwright.runtime.graph_module import GraphModule, _adopt, _instance_class
from graphwright.runtime.modules.captured import our_names_in
from graphwright.runtime.premises import HOOKS
from graphwright.runtime.state import State

__all__ = ["is_nested", "make_captured", "nested_in", "share_graph", "why_not_captured"]

_OF_HOOKS = ("_forward_hooks_with_kwargs", "_forward_pre_hooks_with_kwargs", "_forward_hooks_always_called")


def make_captured(
    module: nn.Module, graph: Graph, facts: Mapping[str, Facts], like: GraphModule | None = None
) -> GraphModule:
    """Make a module a captured one of its own class, in place: its `forward` is generated from the graph from now on.

    `facts` are what is taken for granted of it, by path from it. Hooks that it has are part of the graph, and go.
    `like` is a module of the same class with the same graph, whose code it shares.
    """
    kind = type(module)
    module.__class__ = _class_for(kind, module)
    for table in (*HOOKS, *_OF_HOOKS):
        module.__dict__[table].clear()
    module.__dict__.pop("forward", None)
    state = State(graph, is_readable=True)
    entry = state.entries["forward"]
    entry.facts = facts
    entry.shared = SharedCode() if like is None else like.__dict__[STATE].entries["forward"].shared
    captured = cast(GraphModule, module)
    _adopt(captured, state)
    return captured


def nested_in(root: nn.Module) -> list[GraphModule]:
    """The modules inside a captured one that `make_captured` made."""
    return [cast(GraphModule, module) for module in root.modules() if module is not root and is_nested(module)]


def is_nested(module: nn.Module) -> bool:
    """Tell whether `make_captured` made a module what it is."""
    state = module.__dict__.get(STATE)
    return state is not None and state.entries["forward"].shared is not None


def share_graph(module: GraphModule, graph: Graph, like: GraphModule | None = None) -> None:
    """Give such a module another graph; with `like`, the one of another module of its class, and that one's code."""
    state = module.__dict__[STATE]
    entry = state.entries["forward"]
    entry.graph = graph
    entry.shared = SharedCode() if like is None else like.__dict__[STATE].entries["forward"].shared
    _adopt(module, state)


def why_not_captured(module: nn.Module) -> str | None:
    """Say why a module cannot be made a captured one, None where it can."""
    kind = type(module)
    if issubclass(kind, GraphModule):
        return "it is a captured module already"
    if kind.__call__ is not nn.Module.__call__:
        return f"{kind.__qualname__} has a __call__ of its own"
    return _why_not(kind)  # type: ignore[arg-type]


@functools.lru_cache(1024)
def _why_not(kind: Any) -> str | None:
    try:
        object.__new__(kind).__class__ = _instance_class(kind.__name__, (kind, GraphModule))
    except TypeError as error:
        return f"{kind.__qualname__}: {error}"
    return None


def _class_for(kind: type[nn.Module], module: nn.Module) -> Any:
    return _instance_class(kind.__name__, (kind, GraphModule), our_names_in(module))
