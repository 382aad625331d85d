"""Observers in a program: put where a value is, and taken out again."""

from __future__ import annotations

from torch import nn

from graphwright.ir import Node
from graphwright.passes import install
from graphwright.quantization.observers.observer import Observer
from graphwright.quantization.sites import after
from graphwright.runtime import GraphModule

_HOME = "observers"


def put_observer(gm: GraphModule, observer: Observer, name: str) -> str:
    """Have a module hold an observer; gives its path."""
    return install(gm, observer, f"{_HOME}.{name}")


def call_observer(value: Node, path: str) -> Node:
    """Have a value go through the observer at a path; gives what comes out."""
    with value.graph.inserting_before(after(value)):
        made = value.graph.call_module(path, (value,))
    made.origin = value.origin
    return made


def take_observers(gm: GraphModule) -> dict[Node, Observer]:
    """Take the observers out of a program; gives each by the value that it was at.

    Modules of the program's own stay, whatever their names.
    """
    observers: dict[Node, Observer] = {}
    paths: dict[str, None] = {}
    for graph in gm.graph.all_graphs():
        for node in list(graph.find_nodes(op="call_module")):
            observer = gm.get_submodule(str(node.target))
            if isinstance(observer, Observer):
                value = node.all_input_nodes[0]
                observers[value] = observer
                paths[str(node.target)] = None
                node.replace_all_uses_with(value)
                graph.erase_node(node)
    for path in paths:
        gm.delete_submodule(path)
    home = gm._modules.get(_HOME)
    if paths and type(home) is nn.Module and not home._modules:
        gm.delete_submodule(_HOME)
    gm.recompile()
    return observers
