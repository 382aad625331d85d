"""Modules inside a captured one that are captured modules themselves; equal ones share a graph and its code."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping
from typing import Any, cast

from torch import nn

from graphwright.ir import Node
from graphwright.runtime.entries import STATE, Entry, entry_points_of
from graphwright.runtime.graph_facts import Facts
from graphwright.runtime.graph_module import GraphModule, _adopt, _instance_class
from graphwright.runtime.inside import HOOKS
from graphwright.runtime.modules.captured import our_names_in
from graphwright.runtime.premises.names import own_class
from graphwright.runtime.shared_code import SharedCode
from graphwright.runtime.state import State

_OF_HOOKS = ("_forward_hooks_with_kwargs", "_forward_pre_hooks_with_kwargs", "_forward_hooks_always_called")


def make_captured(module: nn.Module, programs: Mapping[str, SharedCode], facts: Mapping[str, Facts]) -> GraphModule:
    """Make a module a captured one of its own class, in place: its methods are generated from graphs from now on.

    `programs` are these by name: `forward`, and others where its program calls the module in ways that need a graph
    each. Modules of one class may have the same. `facts` are what is taken for granted of it, by path from it. Hooks
    that it has are part of the graphs, and go.
    """
    kind: Any = own_class(module)
    module.__class__ = _instance_class(kind.__name__, _bases(kind), our_names_in(module))
    for table in (*HOOKS, *_OF_HOOKS):
        module.__dict__[table].clear()
    module.__dict__.pop("forward", None)
    state = State(programs["forward"].graph, is_readable=True)
    for name, shared in programs.items():
        entry = state.entries[name] = Entry(name, shared.graph)
        entry.facts, entry.shared = facts, shared
    captured = cast(GraphModule, module)
    _adopt(captured, state)
    return captured


def _bases(kind: type) -> tuple[type, ...]:
    return (GraphModule,) if kind is nn.Module else (kind, GraphModule)


def nested_in(root: nn.Module) -> list[GraphModule]:
    """The modules inside a captured one that `make_captured` made."""
    return [cast(GraphModule, module) for module in root.modules() if module is not root and is_nested(module)]


def is_nested(module: nn.Module) -> bool:
    """Tell whether `make_captured` made a module what it is."""
    state = module.__dict__.get(STATE)
    return state is not None and state.entries["forward"].shared is not None


def called_entry(node: Node, root: nn.Module) -> tuple[str, Entry] | None:
    """Which entry point of which module inside `root` a node calls, by the path of the module; None for other nodes.

    `call_module` calls `forward`, and `call_method` on the module that a `get_attr` node reads any of them.
    """
    owner, name = node, "forward"
    if node.op == "call_method" and node.args and isinstance(node.args[0], Node) and node.args[0].op == "get_attr":
        owner, name = node.args[0], str(node.target)
    elif node.op != "call_module":
        return None
    module: Any = root
    for atom in str(owner.target).split("."):
        module = module._modules.get(atom) if isinstance(module, nn.Module) else None
    entry = entry_points_of(module).get(name)
    return None if entry is None else (str(owner.target), entry)


@contextlib.contextmanager
def only_entry(module: GraphModule, name: str) -> Iterator[None]:
    """While it lasts, such a module has one graph: that of an entry point."""
    state = module.__dict__[STATE]
    entries, entry = state.entries, state.entries[name]
    alone = Entry("forward", entry.graph)
    alone.facts = entry.facts
    state.entries = {"forward": alone}
    _adopt(module, state)
    try:
        yield
    finally:
        if alone.graph is not entry.graph:
            entry.graph, entry.shared = alone.graph, SharedCode(alone.graph)
        state.entries = entries
        _adopt(module, state)


def share_graph(module: GraphModule, name: str, shared: SharedCode) -> None:
    """Give an entry point of such a module a graph with its code, which others may have, too."""
    state = module.__dict__[STATE]
    entry = state.entries[name]
    entry.graph, entry.shared = shared.graph, shared
    _adopt(module, state)


def why_not_captured(module: nn.Module) -> str | None:
    """Say why a module cannot be made a captured one, None where it can."""
    if isinstance(module, GraphModule) and not is_nested(module):
        return "it is a captured module already"
    kind: Any = own_class(module)
    if kind.__call__ is not nn.Module.__call__:
        return f"{kind.__qualname__} has a __call__ of its own"
    return _why_not(kind)


@functools.lru_cache(1024)
def _why_not(kind: Any) -> str | None:
    try:
        object.__new__(kind).__class__ = _instance_class(kind.__name__, _bases(kind))
    except TypeError as error:
        return f"{kind.__qualname__}: {error}"
    return None
