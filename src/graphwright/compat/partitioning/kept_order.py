"""Which operations must stay in order though neither reads the other: writes and reads of one memory, effects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import nn

from graphwright.compat.partitioning.tools_common import CALLABLE_NODE_OPS
from graphwright.ir import Node
from graphwright.ops import (
    DECLARED_IMPURE,
    call_of,
    enter_context,
    exit_context,
    gives_fresh_value,
    is_impure,
    is_region,
    write_attribute,
)
from graphwright.passes import module_of
from graphwright.runtime import graph_of

__all__ = ["BARRIERS", "kept_order"]

BARRIERS = (enter_context, exit_context, write_attribute)  # nothing is moved past a call of these
_WORLD, _INPUTS, _EVERYTHING = "world", "inputs", "everything"
_Place = Any  # a node for the memory of its value, a key of a storage, or one of the three words


def kept_order(gm: nn.Module) -> dict[Node, list[Node]]:
    """Find for each operation the later ones that must stay behind it, though they need not read its value.

    These are reads behind a write to the same memory, writes behind reads of it, and effects behind effects: random
    draws, checks, calls of what is not known, which may write to any of its arguments. All inputs count as one
    memory. What stands before, in or behind a `with` block stays there. Empty where a program has no effects, in
    training or evaluation.

    >>> from graphwright import symbolic_trace
    >>> kept_order(symbolic_trace(lambda x: (x.neg(), x.add_(1))))
    {neg: [add_]}
    """
    nodes = [node for node in graph_of(gm).nodes if node.op != "output"]
    find = module_of(gm)
    effects = {node for node in nodes if node.op in CALLABLE_NODE_OPS and is_impure(node, find(node), in_any_mode=True)}
    if not effects:
        return {}
    memory = _Memory(nodes, effects, gm)
    writes = {node: memory.written_by(node) for node in effects}
    memory.settle(place for places in writes.values() for place in places)
    written = {node: {memory.root(place) for place in places} for node, places in writes.items()}
    places = {place for each in written.values() for place in each}
    touched = [(node, memory.read_by(node) & places, written.get(node, set())) for node in nodes]
    return _behind(touched)


def _behind(touched: Iterable[tuple[Node, set[_Place], set[_Place]]]) -> dict[Node, list[Node]]:
    """What follows from the places that each operation reads and writes, in the order of the program."""
    found: dict[Node, dict[Node, None]] = {}
    writer: dict[_Place, Node] = {}
    readers: dict[_Place, list[Node]] = {}
    for node, reads, writes in touched:
        for place in reads | writes:
            if place in writer:
                found.setdefault(writer[place], {})[node] = None
        for place in reads - writes:
            readers.setdefault(place, []).append(node)
        for place in writes:
            for reader in readers.pop(place, ()):
                found.setdefault(reader, {})[node] = None
            writer[place] = node
    return {node: list(later) for node, later in found.items()}


class _Memory:
    """Which values may share memory: each has a place, and places that may overlap have one root."""

    def __init__(self, nodes: Iterable[Node], effects: set[Node], gm: nn.Module) -> None:
        self._parent: dict[_Place, _Place] = {}
        self._effects, self._gm, self._module = effects, gm, module_of(gm)
        self._states: dict[nn.Module, list[_Place]] = {}
        self._outside: set[_Place] = {_INPUTS}
        for node in nodes:
            for place in self._origins(node):
                self._parent[self.root(place)] = self.root(node)

    def root(self, place: _Place) -> _Place:
        """What stands for all places that may overlap this one."""
        above = self._parent.get(place, place)
        while above is not place:
            self._parent[place] = self._parent.get(above, above)
            place, above = above, self._parent.get(above, above)
        return place

    def settle(self, written: Iterable[_Place]) -> None:
        """Take what comes from outside for one memory if that is written to: a caller may pass one tensor twice."""
        outside = {self.root(place) for place in self._outside}
        if any(self.root(place) in outside for place in written if isinstance(place, Node)):
            for place in outside:
                self._parent[self.root(place)] = self.root(_INPUTS)

    def read_by(self, node: Node) -> set[_Place]:
        """The roots of what an operation reads."""
        found = {self.root(used) for used in node.all_input_nodes}
        module = self._module(node)
        if module is not None:
            found |= {self.root(place) for place in self._state(module)}
        return found | {_EVERYTHING}

    def written_by(self, node: Node) -> list[_Place]:
        """The places that an operation with effects may write to."""
        inputs = list(node.all_input_nodes)
        if node.op == "call_module":
            return self._written_by_module(self._module(node), inputs)
        if node.target in BARRIERS or is_region(node):
            return [_EVERYTHING, _WORLD, *inputs]
        call = call_of(node)
        if call is None or call.operator.acts:
            return [_WORLD, *inputs]
        found: list[_Place] = [place for name in call.writes for place in _nodes_of(call.arguments.get(name), inputs)]
        if call.random or not found or node.target in DECLARED_IMPURE:
            found.append(_WORLD)
        return found

    def _written_by_module(self, module: nn.Module | None, inputs: list[Node]) -> list[_Place]:
        if module is None:
            return [_WORLD, *inputs]
        own = self._state(module)
        hooked = module._forward_hooks or module._forward_pre_hooks or module._backward_hooks
        if hooked or not type(module).__module__.startswith("torch.nn.modules."):
            return [_WORLD, *own, *inputs]
        if isinstance(module, nn.modules.batchnorm._NormBase):
            return own
        inplace = bool(module.__dict__.get("inplace"))
        if isinstance(module, nn.modules.dropout._DropoutNd):
            return [_WORLD, *inputs] if inplace else [_WORLD]
        return inputs if inplace and not isinstance(module, nn.RReLU) else [_WORLD, *own, *inputs]

    def _origins(self, node: Node) -> Iterable[_Place]:
        """The places that the value of a node may share memory with."""
        if node.op == "placeholder":
            return [_INPUTS]
        if node.op == "get_attr":
            value: Any = self._gm
            for atom in str(node.target).split("."):
                value = getattr(value, atom, None)
            places = self._state(value) if isinstance(value, nn.Module) else [_storage(value)]
            self._outside.update(places)
            return places
        inputs = node.all_input_nodes
        if not inputs or gives_fresh_value(node, self._module):
            return []
        call = call_of(node) if node.op != "call_module" and not is_region(node) else None
        if call is None:
            return inputs
        names = {name for _, name in call.operator.aliases} | set(call.writes)
        return [place for name in names for place in _nodes_of(call.arguments.get(name), inputs)]

    def _state(self, module: nn.Module) -> list[_Place]:
        """The storages of a module's parameters and buffers."""
        if module not in self._states:
            self._states[module] = [_storage(tensor) for tensor in (*module.parameters(), *module.buffers())]
        return self._states[module]


def _nodes_of(value: Any, otherwise: list[Node]) -> Iterable[Node]:
    """The nodes in an argument; all inputs of the call where there is none to be seen."""
    items: Mapping[Any, Any] | Iterable[Any] = value if isinstance(value, tuple | list) else [value]
    return [item for item in items if isinstance(item, Node)] or otherwise


def _storage(value: Any) -> _Place:
    try:
        return "storage", value.untyped_storage()._cdata
    except (AttributeError, NotImplementedError, RuntimeError):  # no tensor, or one without a storage: sparse
        return "object", id(value)
