"""The module that a capture returns: the program's own class, tree and state, with a generated forward."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from torch import nn

from graphwright.errors import GraphError
from graphwright.runtime.entries import STATE, Entry
from graphwright.runtime.foreign import how_to_read
from graphwright.runtime.graph_facts import buffers_of, unset_in
from graphwright.runtime.graph_module import GraphModule, _adopt, _instance_class, _state
from graphwright.runtime.members.shells import Shells
from graphwright.runtime.premises.names import own_class
from graphwright.runtime.state import State

_OUR_NAMES = ("graph", "code", "guards", "meta")


def captured_module(
    root: nn.Module | None, entries: Iterable[Entry], name: str, is_instance: bool = True
) -> GraphModule:
    """Make the captured module of some graphs: an instance of the class of `root`, or of GraphModule without one.

    It has a second tree of the same modules, attributes and hooks; parameters and buffers are shared with `root`. Where
    the program uses a name of ours, such as `graph`, its own meaning wins. The first of the entry points is `forward`.
    What is no `is_instance` of the class has only the tree: its forward is one of the methods of `root`.
    """
    first, *others = entries
    if root is None:
        module = GraphModule(nn.Module(), first.graph, name)
        module._non_persistent_buffers_set.update(first.graph.constants)  # constants are no state
        state = State(first.graph, is_readable=True)
        state.entries = {first.name: first}
        _adopt(module, state)
        return module
    original = type(root)
    if issubclass(original, GraphModule):  # captured again
        original = own_class(root)
    elif original is nn.Module or how_to_read(root):  # its class has a graph and code of another kind, or none
        original = GraphModule
    bases: tuple[type, ...] = (original,) if issubclass(original, GraphModule) else (original, GraphModule)
    if not is_instance:
        bases = (GraphModule,)
    users = our_names_in(root)
    kind = _instance_class("GraphModule" if type(root) is nn.Module else type(root).__name__, bases, users)
    module = cast(GraphModule, Shells(root, root_class=kind).root)
    state = State(first.graph, is_readable=True)
    state.entries = {entry.name: entry for entry in (first, *others)}
    for entry in state.entries.values():
        module.__dict__.pop(entry.name, None)
        for constant, value in entry.graph.constants.items():
            module.register_buffer(constant, value, persistent=False)
        for path, is_persistent in buffers_of(entry.graph).items():
            owner, _, buffer = path.rpartition(".")
            module.get_submodule(owner).register_buffer(buffer, None, is_persistent)
        for path in unset_in(entry.graph):
            owner, _, name = path.rpartition(".")
            if path not in buffers_of(entry.graph):
                vars(module.get_submodule(owner)).setdefault(name, None)
    if not is_instance:
        for table, value in nn.Module().__dict__.items():
            if table.endswith("hooks"):
                module.__dict__[table] = value  # those of the class's own forward
    elif not issubclass(original, GraphModule) and not any(name in root.__dict__ for name in state.entries):
        state.original = original
        for entry in state.entries.values():
            entry.signature = None  # the class has it
    _adopt(module, state)
    return module


def change_entries(module: GraphModule, entries: Iterable[Entry]) -> None:
    """Have a captured module run other graphs, which have the names and constants of those that it had."""
    before, (first, *others) = _state(module), entries
    state = State(first.graph, is_readable=True, original=before.original)
    state.entries = {entry.name: entry for entry in (first, *others)}
    _adopt(module, state)


def change_base(module: GraphModule, base: type[GraphModule], other: type[GraphModule]) -> None:
    """Have the class of a captured module, which is its alone, inherit from another base, whose methods it then has.

    Raises GraphError where it has no such base.
    """
    kind = type(module)
    if base not in kind.__bases__:
        raise GraphError(f"{kind.__name__} does not inherit from {base.__name__}", fix="name one of its own bases")
    bases = tuple([other if each is base else each for each in kind.__bases__])
    module.__class__ = _instance_class(kind.__name__, bases, kind._extra)
    _adopt(module, module.__dict__[STATE])


def users_names(names: Iterable[str]) -> dict[str, Any]:
    """What the class of a captured module needs where the program uses names of ours, by these names."""
    return {name: _UsersName(name) for name in names if name in _OUR_NAMES}


def our_names_in(module: nn.Module) -> dict[str, Any]:
    """The same, of the names that a module has in its tables."""
    return users_names(name for name in _OUR_NAMES if _holds(module, name))


class _UsersName:
    """In the class of a captured module, leads a name back to what the program's instance holds under it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, module: nn.Module | None, owner: type) -> Any:
        return self if module is None else nn.Module.__getattr__(module, self._name)


def _holds(module: nn.Module, name: str) -> bool:
    tables = (module.__dict__, module._modules, module._parameters, module._buffers)
    return any(name in table for table in tables)
