"""The submodules that a graph calls, for passes that put others in their place.

The original model may share its modules with the captured one, so a pass never changes a module: it makes a new one
and binds it in the captured module, beside or instead of the old.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import nn

from graphwright.ir import Graph, Node, is_computed
from graphwright.ops import positional_inputs
from graphwright.runtime import (
    GraphModule,
    assign_attribute,
    forget_module,
    forget_tensor,
    free_path,
    graphs_of,
    has_attribute,
)

TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, *TRANSPOSED)
LINEAR_LIKE = (*CONVOLUTIONS, nn.Linear)
LinearLike = (
    nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d | nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d
)


def graphs_in(gm: nn.Module) -> list[Graph]:
    """All graphs of a captured module: those of its entries, and the bodies of their branches and loops."""
    return [inner for graph in graphs_of(gm) for inner in graph.all_graphs()]


def install(gm: nn.Module, module: nn.Module, path: str, numbers: dict[str, int] | None = None) -> str:
    """Put a new module into a captured one, at this path or at one with a number; return the path.

    A name that every module has a method of, such as `to`, is taken.

    Those who install many keep in `numbers` which ones are taken, so that not all are tried each time.
    """
    known = {} if numbers is None else numbers
    number = known.get(path, 0)
    free = f"{path}_{number}" if number else path
    while has_attribute(gm, free) or hasattr(nn.Module, free.rpartition(".")[2]):
        number += 1
        free = f"{path}_{number}"
    known[path] = number
    assign_attribute(module, gm, free)
    return free


def is_inside_used(gm: nn.Module, path: str) -> bool:
    """Tell whether a module around this path is called or read whole: it may be the original's own."""
    atoms = path.split(".")
    around = [".".join(atoms[:length]) for length in range(1, len(atoms))]
    return any(
        graph.find_nodes(op=op, target=outer, sort=False)
        for graph in graphs_in(gm)
        for outer in around
        for op in ("call_module", "get_attr")
    )


def input_of(node: Node, module: nn.Module) -> Any:
    """The one value that a node calls a module with, by position or by name; None where there is no such value."""
    args, kwargs = positional_inputs(module, node.args, node.kwargs)
    return args[0] if len(args) == 1 and not kwargs else None


def take_parameter_out(gm: nn.Module, path: str) -> None:
    """Have None in the place of a parameter that no graph reads any more: a class may want to print its name."""
    owner, _, name = path.rpartition(".")
    gm.get_submodule(owner)._parameters[name] = None
    for graph in graphs_of(gm):
        forget_tensor(graph, path)


class ModuleCalls:
    """Which nodes call which module. Made once per pass; `replace` keeps it up to date."""

    def __init__(self, gm: GraphModule) -> None:
        self._gm = gm
        nodes = [node for graph in graphs_in(gm) for node in graph.nodes]
        self._module: dict[Node, nn.Module] = {}
        self._nodes: dict[int, list[Node]] = {}  # by id of the module
        for node in nodes:
            if node.op == "call_module":
                self._note(node, gm.get_submodule(node.target))
        self._paths: dict[int, list[str]] = {}  # by id of the module, of all that were there at the start
        for path, module in gm.named_modules(remove_duplicate=False):
            self._paths.setdefault(id(module), []).append(path)
        self._read: set[int] = set()
        for node in nodes:
            if node.op == "get_attr":
                self._read.update(_owners(gm, node.target))

    def module(self, node: object) -> nn.Module | None:
        """The module that a node calls with one value, or None where it is no such node."""
        if not isinstance(node, Node) or node not in self._module:
            return None
        module = self._module[node]
        return None if input_of(node, module) is None else module

    def input(self, node: Node) -> Any:
        """The one value that a node calls its module with, None where there is no such value."""
        return input_of(node, self._module[node])

    def find(self, node: Node) -> nn.Module | None:
        """The module that a node calls, with whatever arguments."""
        return self._module.get(node)

    def nodes(self, module: nn.Module) -> list[Node]:
        """The nodes that call a module, under whatever path."""
        return self._nodes.get(id(module), [])

    def is_read(self, module: nn.Module) -> bool:
        """Tell whether the graph also reads the module or its tensors directly."""
        return id(module) in self._read

    def replace(self, nodes: list[Node], new: nn.Module, suffix: str) -> None:
        """Make nodes that call one module call a new one.

        It takes the old one's path where nothing else uses the old one, else a path of its own, the old
        one's with a suffix.
        """
        old, path = self._module[nodes[0]], nodes[0].target
        if len(self.nodes(old)) > len(nodes) or self.is_read(old) or self._is_inside_used(path):
            path = self._free_path(f"{path}_{suffix}")
        parent, _, name = path.rpartition(".")
        setattr(self._gm.get_submodule(parent), name, new)
        _forget(self._gm, path)
        for node in nodes:
            node.args, node.kwargs = positional_inputs(old, node.args, node.kwargs)  # its names may be other ones
            self._nodes[id(old)].remove(node)
            self._note(node, new)
            node.target = path

    def erase(self, node: Node) -> None:
        """Erase a node, and the module that it called where nothing uses that any more."""
        node.graph.erase_node(node)
        module = self._module.pop(node, None)
        if module is None:
            return
        self._nodes[id(module)].remove(node)
        if self._nodes[id(module)] or self.is_read(module):
            return
        for path in self._paths.pop(id(module), ()):
            if not self._is_inside_used(path):
                self._remove(path)

    def _remove(self, path: str) -> None:
        """Remove a submodule; in a list, where others are known by their places, leave an Identity."""
        owner, _, name = path.rpartition(".")
        parent = self._gm.get_submodule(owner)
        if isinstance(parent, nn.Sequential | nn.ModuleList):
            parent._modules[name] = nn.Identity()
        else:
            parent._modules.pop(name, None)  # gone already where two paths share a parent
        _forget(self._gm, path)

    def _note(self, node: Node, module: nn.Module) -> None:
        self._module[node] = module
        self._nodes.setdefault(id(module), []).append(node)

    def _is_inside_used(self, path: str) -> bool:
        """Tell whether a module around this path is called or read whole: it may be the original's own."""
        return is_inside_used(self._gm, path)

    def _free_path(self, path: str) -> str:
        return free_path(self._gm, path.replace(".", "_") if self._is_inside_used(path) else path)


def _forget(gm: nn.Module, path: str) -> None:
    """Have the graphs of a module take nothing for granted of a submodule in whose place another one computes."""
    for graph in graphs_of(gm):
        forget_module(graph, path)


def _owners(gm: nn.Module, path: str) -> Iterable[int]:
    """The ids of all modules on the way to what a path names, itself included."""
    value: object = gm
    for atom in path.split("."):
        value = None if is_computed(value, atom) else getattr(value, atom, None)
        if isinstance(value, nn.Module):
            yield id(value)
