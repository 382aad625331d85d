"""Which values share memory, and what the nodes of a captured module read and write: inputs, parameters, state."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from graphwright.analysis.effects.writes import is_record, written_values
from graphwright.errors import GraphError
from graphwright.ir import Graph, Node, bodies_of, nodes_in
from graphwright.ops import (
    expect_bound,
    gives_several,
    is_impure,
    is_known_module,
    is_random,
    is_region,
    operator_of,
    raise_error,
    results_of,
    shared_inputs,
    unpack,
    values_for,
    write_attribute,
)
from graphwright.runtime import graph_of, has_attribute, is_guard, read_attribute


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Something that nodes read and write.

    kind: "input" of the program, "parameter", "buffer" or "attribute" of a module, "value" that a node has made,
        "random" for the states of random generators, "unknown" for anything at all.
    name: of the input or of the node, or the dotted path; empty for the last two.

    >>> print(Place("buffer", "norm.running_mean"), Place("random"))
    buffer norm.running_mean random
    """

    kind: Literal["input", "parameter", "buffer", "attribute", "value", "random", "unknown"]
    name: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}".strip()


_UNKNOWN = Place("unknown")
_RANDOM = Place("random")
_OUTSIDE = ("input", "parameter", "buffer", "attribute")
_QUIET = (print, raise_error, unpack, expect_bound)  # they act, and write to nothing that a program reads


class Effects:
    """What the nodes of a captured module do besides computing values, and which of these share memory.

    Everything that may be is told, so that what is not told certainly is not. Modules are seen in the mode that they
    are in, training or evaluation. Nothing is kept: the answers follow edits. Nodes in the bodies of branches and loops
    are asked in the same way. Raises GraphError for nodes of other graphs.

    >>> from graphwright import trace
    >>> gm = trace(nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5), nn.ReLU(inplace=True)), (torch.ones(1, 2),))
    >>> x, linear, dropout, relu, _ = gm.graph.nodes
    >>> effects = Effects(gm)
    >>> print(*sorted(effects.reads(linear)))
    input input parameter 0.bias parameter 0.weight
    >>> print(*effects.writes(dropout), *effects.writes(relu), sep=", ")
    random, value linear
    >>> effects.may_share_memory(relu, dropout), effects.is_pure(linear), effects.is_pure(relu)
    (True, True, False)
    """

    def __init__(self, gm: nn.Module, graph: Graph | None = None) -> None:
        """Ask about `graph`, one of the module's, or about that of its `forward`."""
        self._gm = gm
        self._graph = graph_of(gm) if graph is None else graph
        self._owners: dict[Graph, Node] = {}  # the nodes that have these graphs as bodies, as they were last seen

    # ---- memory

    def memory(self, node: Node) -> frozenset[Place]:
        """Where the memory of a value may be: what was given, what the module has, or what a node has made."""
        self._own(node)
        return frozenset(self._memory(node))

    def may_share_memory(self, one: Node, other: Node) -> bool:
        """Tell whether what is written to one value may change the other. Inputs may be anything that is there."""
        self._own(other)
        return one is other or self._meet(self.memory(one), self.memory(other)) is not None

    def _memory(self, node: Node) -> set[Place]:
        found: set[Place] = set()
        seen: set[Node] = set()
        waiting = [node]
        while waiting:
            node = waiting.pop()
            if node in seen:
                continue
            seen.add(node)
            if node.op == "get_attr":
                found.add(self._place_of(str(node.target)))
            elif node.op == "placeholder":
                owner = self._owner(node.graph)
                if owner is None:
                    found.add(Place("input", str(node.target)))
                elif is_region(owner):  # its body gets what is outside, or what it has made before
                    waiting += nodes_in(values_for(owner, node))
                else:
                    waiting += owner.all_input_nodes
            elif (index := _item_of_several(node)) is not None:
                waiting += nodes_in(results_of(node.args[0], index))
            elif bodies_of(node):
                waiting += node.all_input_nodes
                waiting += _returned(node)
            elif (shared := shared_inputs(node, self.module)) is None:
                found.update((Place("value", node.name), _UNKNOWN))
                waiting += node.all_input_nodes
            elif shared:
                waiting += shared
            else:
                found.add(Place("value", node.name))
        return found

    # ---- what a node does

    def reads(self, node: Node) -> frozenset[Place]:
        """What a node reads: where its values have their memory, parameters and buffers, the random state."""
        self._own(node)
        found: set[Place] = set()
        if node.op == "get_attr":
            return frozenset({self._place_of(str(node.target))})
        for used in node.all_input_nodes:
            found |= self._memory(used)
        for inner in _inner_nodes(node):
            found |= self.reads(inner)
        if node.op == "call_module":
            found |= set(self._held(node))
        if self._draws(node):
            found.add(_RANDOM)
        if self._is_unknown(node):
            found.add(_UNKNOWN)
        return frozenset(found)

    def writes(self, node: Node) -> frozenset[Place]:
        """What a node writes to besides giving its value: memory, buffers, attributes, the random state."""
        self._own(node)
        found: set[Place] = set()
        for inner in _inner_nodes(node):
            found |= self.writes(inner)
        if not bodies_of(node):
            for written in written_values(node, self.module):
                found |= self._memory(written)
        module = self.module(node)
        if isinstance(module, nn.Module):
            inside = len(str(node.target)) + 1
            found.update(place for place in self._held(node) if _is_updated(module, place.name[inside:]))
        if node.target is write_attribute:
            found = {self._place_of(str(node.args[0]))}
        elif self._is_unknown(node):
            found.add(_UNKNOWN)
        if self._draws(node):
            found.add(_RANDOM)
        return frozenset(found)

    def is_pure(self, node: Node) -> bool:
        """Tell whether a node only computes its value: it may go where nobody reads that."""
        self._own(node)
        return not is_impure(node, self.module(node))

    # ---- two nodes

    def between(self, first: Node, last: Node) -> list[Node]:
        """The nodes that run after one node and before another one of the same graph."""
        self._own(first)
        if first.graph is not last.graph or last < first:
            raise GraphError(
                f"{last.name} does not come after {first.name} in one graph", at=last.origin, fix="name the first first"
            )
        found = []
        node = first.next
        while first is not last and node is not last:
            found.append(node)
            node = node.next
        return found

    def on_the_way(self, first: Node, last: Node) -> list[Node]:
        """The nodes that compute one value from another one: they read the first, and the last reads them, in order."""
        reached = {first}
        for node in self.between(first, last):
            if not reached.isdisjoint(node.all_input_nodes):
                reached.add(node)
        found: set[Node] = set()
        waiting = list(last.all_input_nodes)
        while waiting:
            node = waiting.pop()
            if node in reached and node not in found and node is not first:
                found.add(node)
                waiting += node.all_input_nodes
        return sorted(found)

    def conflict(self, one: Node, other: Node) -> Place | None:
        """Say why two nodes may not change places, as far as memory and state go: what one writes, the other uses.

        None where they may; that one reads the value of the other is another matter.
        """
        writes, others = self.writes(one), self.writes(other)
        return self._meet(writes, others | self.reads(other)) or self._meet(others, self.reads(one))

    def _meet(self, ones: Iterable[Place], others: Iterable[Place]) -> Place | None:
        others = set(others)
        return next((one for one in sorted(ones) if any(self.may_be_same(one, other) for other in others)), None)

    def may_be_same(self, one: Place, other: Place) -> bool:
        """Tell whether two places may be one: what is given may be anything, two parameters may share memory."""
        if one == other:
            return True
        kinds = {one.kind, other.kind}
        if "unknown" in kinds:
            return True
        if not kinds.issubset(_OUTSIDE):
            return False
        return "input" in kinds or self._storage(one) == self._storage(other)

    def _storage(self, place: Place) -> Any:
        value = read_attribute(self._gm, place.name) if has_attribute(self._gm, place.name) else None
        if isinstance(value, torch.Tensor) and value.layout is torch.strided:
            return value.untyped_storage()._cdata
        return place.name if value is None else id(value)

    # ---- looking up

    def _own(self, node: Node) -> None:
        inside: Node | None = node
        while inside is not None and not inside._erased and inside.graph is not self._graph:
            inside = self._owner(inside.graph)
        if inside is None or inside._erased:
            raise GraphError(
                f"{node.name} is no node of the module", fix="ask for one of its graph, or of a body in it"
            )

    def _owner(self, graph: Graph) -> Node | None:
        """The node that has a graph as a body; None for the outermost, and for graphs of other modules."""
        if graph is self._graph:
            return None
        owner = self._owners.get(graph)
        if owner is None or owner._erased or all(body is not graph for body in bodies_of(owner)):
            self._owners = {body: node for node in self._graph.all_nodes() for body in bodies_of(node)}
            owner = self._owners.get(graph)
        return owner

    def module(self, node: Node) -> nn.Module | None:
        """The module that a node calls, None for other nodes."""
        return read_attribute(self._gm, str(node.target)) if node.op == "call_module" else None

    def _held(self, node: Node) -> Iterator[Place]:
        module = self.module(node)
        if module is not None:
            for kind, tensors in (("parameter", module.named_parameters()), ("buffer", module.named_buffers())):
                for name, _ in tensors:
                    yield Place(kind, f"{node.target}.{name}")  # type: ignore[arg-type]

    def _place_of(self, path: str) -> Place:
        owner, _, name = path.rpartition(".")
        module = read_attribute(self._gm, owner) if owner and has_attribute(self._gm, owner) else self._gm
        if isinstance(module, nn.Module):
            if name in module._parameters:
                return Place("parameter", path)
            if name in module._buffers:
                return Place("buffer", path)
        return Place("attribute", path)

    def _draws(self, node: Node) -> bool:
        module = self.module(node)
        return is_random(node, module) and (module is None or module.training)

    def _is_unknown(self, node: Node) -> bool:
        """Tell whether a node may do anything."""
        if not node.op.startswith("call") or bodies_of(node) or is_guard(node) or node.target is write_attribute:
            return False
        module = self.module(node)
        if node.op == "call_module":
            return module is None or not all(is_known_module(one) for one in module.modules())
        known = operator_of(node)
        if any(node.target is one for one in _QUIET) or is_record(node.target):
            return False
        return is_impure(node) and (known is None or (known.acts and not known.checks))


def _item_of_several(node: Node) -> int | None:
    """Which of the values of a branch or loop that gives several a node takes; None for other nodes."""
    if node.target is not operator.getitem or not isinstance(node.args[0], Node):
        return None
    index, source = node.args[1], node.args[0]
    return index if type(index) is int and is_region(source) and gives_several(source) else None


def _returned(node: Node) -> list[Node]:
    """The values that the bodies of a node give."""
    return [used for body in bodies_of(node) for used in nodes_in(body.output_node().args)]


def _inner_nodes(node: Node) -> list[Node]:
    return [inner for body in bodies_of(node) for inner in body.nodes if inner.op.startswith("call")]


def _is_updated(module: nn.Module, path: str) -> bool:
    """Tell whether calling a module writes to one of its tensors: batch norms do in training, and `max_norm` does."""
    owner_path, _, name = path.rpartition(".")
    owner = module.get_submodule(owner_path)
    if isinstance(owner, nn.modules.batchnorm._NormBase):
        return name in owner._buffers and owner.training and owner.track_running_stats
    return vars(owner).get("max_norm") is not None
