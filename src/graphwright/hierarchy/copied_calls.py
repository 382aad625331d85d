"""Calls of modules that are one node, since what is inside of them is what is inside of another call."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from graphwright.hierarchy.chains import path_of
from graphwright.ir import Graph, Node


@dataclasses.dataclass(eq=False, slots=True)
class CopiedCall:
    """The target of a node that stands for the call `key` of a module, which does what the call `original` does.

    The arguments of the node are two tuples: what the original uses of the graph around it, and what the copy uses in
    place of that. `nodes` are those of the original, which are in the same graph: one list for all copies. `results`
    has the values of the copy by those of the original: the node itself, or its items. `write` writes it out, before
    its node: what stands for the node and its items is nodes like those of the original then, which it answers.
    """

    key: str
    original: str
    nodes: list[Node]
    write: Callable[[Node], dict[Node, Node]]
    results: dict[Node, Node] = dataclasses.field(default_factory=dict)

    def add_after(self, node: Node, made: Sequence[Node]) -> None:
        """Nodes are made after one of the original: all of its copies have them."""
        place = self.nodes.index(node) + 1
        self.nodes[place:place] = made

    def __call__(self, *args: object) -> object:
        raise AssertionError(f"the call {self.key} is not written out")


class NotAsCopied(Exception):
    """A copied call cannot be a call of what the original becomes, in the graphs that are written."""


def copied_call(node: Node) -> CopiedCall | None:
    """The copied call that a node stands for, if it does."""
    target = node._target
    return target if type(target) is CopiedCall else None


def instead_of(node: Node) -> dict[Node, Node]:
    """What the copied call of a node uses, by what the original uses."""
    return dict(zip(*node._args, strict=True))


def paths_in(graph: Graph) -> set[str]:
    """The paths of the modules and tensors that a graph names, those in copied calls included.

    >>> graph = Graph()
    >>> y = graph.call_module("layers.0", (graph.placeholder("x"),))
    >>> scale = graph.get_attr("scale")
    >>> sorted(paths_in(graph))
    ['layers.0', 'scale']
    """
    found = {str(node._target) for node in graph.all_nodes_now() if node._op in ("call_module", "get_attr")}
    below: dict[str, list[str]] = {}  # what is named in the module of an original, which is in the graph, too
    for copied in [copied for node in graph.nodes.now() if (copied := copied_call(node)) is not None]:
        own = f"{path_of(copied.original)}."
        if own not in below:
            below[own] = [path.removeprefix(own) for path in found if path.startswith(own)]
        found.update(f"{path_of(copied.key)}.{path}" for path in below[own])
    return found
