"""What a captured module keeps for itself, in one attribute, out of the way of the user's names."""

from __future__ import annotations

import copy
from types import FunctionType
from typing import Any

from torch import nn

from graphwright.codegen import PythonCode
from graphwright.errors import GraphError
from graphwright.ir import Graph
from graphwright.runtime.entries import Entry
from graphwright.runtime.members.hooks import Hooks
from graphwright.runtime.shared_code import SharedCode


def own_state(module: nn.Module) -> dict[str, Any]:
    """The attributes that a copy or pickle has of a module: what the `__getstate__` of its class says, if it has one.

    The very dict of the module where it has none, or one that gives something else.
    """
    read = getattr(type(module), "__getstate__", None)
    if read is None or read is getattr(object, "__getstate__", None):  # which Python 3.11 has
        return module.__dict__
    state = read(module)
    return state if isinstance(state, dict) else module.__dict__


class State:
    """The entry points of a captured module with their code, and what goes with them."""

    __slots__ = ("entries", "hooks", "is_for_script", "is_lazy", "is_readable", "meta", "original")

    def __init__(
        self,
        graph: Graph,
        is_readable: bool = False,
        original: type | None = None,
        meta: dict[str, Any] | None = None,
        hooks: Hooks | None = None,
    ) -> None:
        self.entries = {"forward": Entry("forward", graph)}  # the methods that are generated from graphs
        self.is_readable = is_readable
        self.original = original  # the class of the captured module, where the instance is one of it
        self.meta: dict[str, Any] = {} if meta is None else meta
        self.hooks = Hooks() if hooks is None else hooks
        self.is_for_script = False  # whether torch.jit.script compiles the code, which knows no tables of modules
        self.is_lazy = False  # whether generating the code counts as a call of `GraphModule.recompile`

    @property
    def graph(self) -> Graph:
        """The graph of `forward`."""
        return self.entries["forward"].graph

    @graph.setter
    def graph(self, graph: Graph) -> None:
        before = self.graph
        for entry in self.entries.values():
            if entry.graph is before:
                entry.graph = graph
                entry.shared = None if entry.shared is None else SharedCode(graph)

    @property
    def only_graph(self) -> Graph:
        """The graph of `forward`, where there is no other. Raises GraphError where there is."""
        if any(entry.graph is not self.graph for entry in self.entries.values()):
            raise GraphError(
                f"this module has a graph for each of its entry points {', '.join(self.entries)}",
                fix="take one: gm.graphs['forward']; what changes modules changes them for all of the graphs",
            )
        return self.graph

    @property
    def code(self) -> PythonCode | None:
        """The code of `forward`; None: out of date."""
        return self.entries["forward"].code

    @property
    def function(self) -> FunctionType | None:
        """What was compiled from the code of `forward`."""
        return self.entries["forward"].function

    def __deepcopy__(self, memo: dict[int, Any]) -> State:
        copied = State(self.graph, self.is_readable, self.original, hooks=self.hooks.copy())
        copied.entries = copy.deepcopy(self.entries, memo)
        copied.meta = copy.deepcopy(self.meta, memo)
        return copied
