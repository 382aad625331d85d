"""Cut a captured module into submodules, one for each group of nodes that a callback names."""

from __future__ import annotations

import copy
import heapq
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.amp.autocast_mode import _enter_autocast, _exit_autocast

from graphwright.errors import GraphError
from graphwright.ir import Graph, Node, bodies_of, map_arg, nodes_in
from graphwright.ops import is_impure
from graphwright.runtime import GraphModule, graph_of

__all__ = ["Partition", "split_module", "split_module_simple"]

_GRAD_MODE = torch._C._set_grad_enabled
_CALLS = frozenset({"call_function", "call_method", "call_module"})
_MODES = (_enter_autocast, _exit_autocast, _GRAD_MODE)


class Partition:
    """One part of a module that is being split: what it reads, what it gives, and its graph.

    `inputs` and `outputs` hold the nodes of the original graph by name, `dependencies` and `dependents` the names of
    the parts before and after this one, `targets` the submodules that it calls, by their new paths.

    >>> Partition("0").submod_name
    'submod_0'
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.submod_name = f"submod_{name}"
        self.node_names: list[str] = []
        self.inputs: dict[str, Node] = {}
        self.outputs: dict[str, Node] = {}
        self.dependencies: dict[str, None] = {}
        self.dependents: dict[str, None] = {}
        self.graph: Graph = Graph()
        self.environment: dict[Node, Node] = {}
        self.targets: dict[str, Any] = {}
        self.modes: list[Node] = []  # autocast regions and the grad mode that hold where the part begins

    def __repr__(self) -> str:
        return (
            f"name: {self.name},\n nodes: {self.node_names},\n inputs: {list(self.inputs)},\n"
            f" outputs: {list(self.outputs)},\n partitions depended on: {list(self.dependencies)},\n"
            f" partition dependents: {list(self.dependents)}"
        )


def split_module(
    m: GraphModule,
    root_m: nn.Module | None,
    split_callback: Callable[[Node], Any],
    qualname_map: dict[str, str] | None = None,
    keep_original_order: bool | None = False,
    keep_original_node_name: bool | None = False,
    keep_original_input_name: bool = True,
    *,
    partition_affix: str | None = None,
    tuple_return: bool = False,
) -> GraphModule:
    """Split `m` into submodules `submod_<part>`, where `split_callback` names the part of each node that is a call.

    Parameters and other attributes stay in the outer module and are passed in; submodules move into the part that
    calls them. `root_m` is not needed, only accepted. `qualname_map` gains each submodule's new path and its old one.
    Parts run in an order in which each has what it reads, or with `keep_original_order` in that of their first nodes.
    Nodes get new names unless `keep_original_node_name`; parameters of a part are called as the values passed in, or
    `arg_<i>` without `keep_original_input_name`. `partition_affix` stands before the part in the names. A part with one
    result returns it, with `tuple_return` in a tuple.

    Raises GraphError (a RuntimeError) where parts need each other, or with `keep_original_order` a later one.

    >>> from graphwright import symbolic_trace
    >>> gm = symbolic_trace(lambda x: (x + 1).relu() * 2)
    >>> split = split_module(gm, gm, lambda node: 0 if node.op == "call_function" and node.name == "add" else 1)
    >>> print(split.code.strip())
    def forward(self, x):
        submod_0 = self.submod_0(x);  x = None
        submod_1 = self.submod_1(submod_0);  submod_0 = None
        return submod_1
    """
    work = _Split(m, split_callback, partition_affix, bool(keep_original_node_name))
    work.connect()
    order = work.ordered()
    if keep_original_order:
        order = list(work.partitions.values())
    work.copy_inputs(keep_original_input_name, read_late=bool(keep_original_order))
    work.copy_nodes({} if qualname_map is None else qualname_map)
    return work.assemble(order, tuple_return)


def split_module_simple(
    m: GraphModule, node_to_partition: dict[Node, int], *, partition_affix: str | None = None
) -> GraphModule:
    """Split `m` by a dict from nodes to parts. Raises KeyError for a node that calls something and is not in there.

    >>> from graphwright import symbolic_trace
    >>> gm = symbolic_trace(lambda x: (x + 1).relu())
    >>> add, relu = list(gm.graph.nodes)[1:3]
    >>> [name for name, _ in split_module_simple(gm, {add: 0, relu: 1}).named_children()]
    ['submod_0', 'submod_1']
    """
    return split_module(m, None, node_to_partition.__getitem__, partition_affix=partition_affix)


class _Split:
    """One run of `split_module`: its parts, and which of them each node belongs to."""

    def __init__(self, m: GraphModule, callback: Callable[[Node], Any], affix: str | None, keep_names: bool) -> None:
        self.m = m
        self.graph = graph_of(m)
        self.keep_names = keep_names
        self.partitions: dict[str, Partition] = {}
        self.owner: dict[Node, Partition] = {}
        self.base = Graph(tracer_cls=self.graph._tracer_cls)
        self.outer: dict[Node, Node] = {}  # nodes of the original graph -> values in `base`
        self.attributes: dict[str, Any] = {}
        calls = [node for node in self.graph.nodes if node._op in _CALLS]
        indices = [callback(node) for node in calls]
        if any(node._target in _MODES for node in calls if node._op == "call_function"):
            _require_increasing(calls, indices)
        for node, index in zip(calls, indices, strict=True):
            name = str(index) if affix is None else f"{affix}_{index}"
            part = self.partitions.get(name)
            if part is None:
                part = self.partitions[name] = Partition(name)
            part.node_names.append(node.name)
            self.owner[node] = part

    # ---- what the parts read and give

    def connect(self) -> None:
        """Find the inputs and outputs of each part, and which modes hold where it begins."""
        owner = self.owner
        modes: list[Node] = []
        begun: set[str] = set()
        for node in self.graph.nodes:
            part = owner.get(node)
            if part is None:
                if node._op == "output":
                    for used in nodes_in(node._args):
                        if used in owner:
                            owner[used].outputs.setdefault(used.name, used)
                continue
            if part.name not in begun:
                begun.add(part.name)
                part.modes = list(modes)
            if node._op == "call_function" and node._target in _MODES:
                modes = _after(node, modes)
                if node._target is _exit_autocast:
                    continue  # each part has its own region to leave
            for used in (*nodes_in(node._args), *nodes_in(node._kwargs)):
                source = owner.get(used)
                if source is part or (source is None and self._is_module(used)):
                    continue
                part.inputs.setdefault(used.name, used)
                if source is not None:
                    source.outputs.setdefault(used.name, used)
                    part.dependencies.setdefault(source.name)
                    source.dependents.setdefault(part.name)

    def _is_module(self, node: Node) -> bool:
        """Tell whether a node reads a submodule, which is no value to pass around: each part reads it itself."""
        return node._op == "get_attr" and isinstance(_follow(self.m, node._target), nn.Module)

    def ordered(self) -> list[Partition]:
        """The parts, each after those that it needs.

        Of the many such orders torch.fx's, save where the order of effects would show: then that of first nodes.
        """
        last_in = _topological(self.partitions)
        parts = list(self.partitions.values())
        if last_in == parts or not any(self._has_effect(node) for node in self.owner):
            return last_in
        return _topological_stable(self.partitions)

    def _has_effect(self, node: Node) -> bool:
        return is_impure(node, _follow(self.m, node._target) if node._op == "call_module" else None)

    # ---- the graphs

    def copy_inputs(self, keep_input_names: bool, read_late: bool) -> None:
        """Put what comes from outside into the outer graph, and the parameters into the graphs of the parts.

        With `read_late`, attributes are read where they are first needed, and only those that are.
        """
        for node in self.graph.nodes:
            if node._op == "placeholder" or (node._op == "get_attr" and not read_late):
                self._copy_input(node)
        for part in self.partitions.values():
            for i, used in enumerate(part.inputs.values()):
                name = used.name if keep_input_names else f"arg_{i}"
                parameter = part.graph.create_node("placeholder", name, (), None, None, used.type)
                parameter.meta = dict(used.meta)
                part.environment[used] = parameter
            for node in part.modes:
                _copy(node, part, node._target, None)

    def _copy_input(self, node: Node) -> Node:
        name = node.name if self.keep_names else None
        copied = self.base.create_node(node._op, node._target, node._args, None, name, node.type)
        copied.meta = dict(node.meta)
        self.outer[node] = copied
        if node._op == "get_attr":
            self.attributes[str(node._target)] = _follow(self.m, node._target)
        return copied

    def _value(self, node: Node) -> Node:
        found: Node | None = self.outer.get(node)
        if found is None:
            if node._op != "get_attr":
                raise GraphError(f"{node.name} is needed before the part that computes it has run", at=node.origin)
            found = self._copy_input(node)
        return found

    def copy_nodes(self, qualname_map: dict[str, str]) -> None:
        """Copy every node that calls something into the graph of its part."""
        open_regions: dict[Partition, list[Node]] = {
            part: [node for node in part.modes if node._target is _enter_autocast] for part in self.partitions.values()
        }
        for node, part in self.owner.items():
            target: Any = node._target
            if node._op == "call_module":
                target = _rename(part, self.m, target)
                qualname_map[f"{part.submod_name}.{target}"] = str(node._target)
            elif node._op == "call_function" and target is _enter_autocast:
                open_regions[part].append(node)
            elif node._op == "call_function" and target is _exit_autocast:
                open_regions[part].remove(node._args[0])
            for used in (*nodes_in(node._args), *nodes_in(node._kwargs)):
                if used not in part.environment:  # a submodule that the node reads
                    part.targets[str(used._target)] = _follow(self.m, used._target)
                    _copy(used, part, used._target, None)
            _copy(node, part, target, node.name if self.keep_names else None)
            for body in bodies_of(part.environment[node]):
                self._adopt_body(body, part)
        for part, regions in open_regions.items():
            for entered in reversed(regions):
                part.graph.call_function(_exit_autocast, (part.environment[entered],))

    def _adopt_body(self, body: Graph, part: Partition) -> None:
        """Give a part what the body of a branch names: modules, tensors and training flags."""
        for node in body.all_nodes():
            if node._op in ("call_module", "get_attr"):
                owner, _, name = str(node._target).rpartition(".")
                if name != "training":
                    node.target = _rename(part, self.m, str(node._target))
                    continue
                if owner:
                    node.target = f"{_rename(part, self.m, owner)}.training"
                part.targets[node.target] = _follow(self.m, owner).training if owner else self.m.training

    def assemble(self, order: list[Partition], tuple_return: bool) -> GraphModule:
        """Make the modules of the parts, call them in order, and return the outer module."""
        base = self.base
        for part in order:
            results = [part.environment[node] for node in part.outputs.values()]
            is_single = len(results) == 1 and not tuple_return
            part.graph.output(results[0] if is_single else tuple(results))
            self.attributes[part.submod_name] = GraphModule(part.targets, part.graph)
            call = base.call_module(part.submod_name, tuple([self._value(used) for used in part.inputs.values()]))
            for i, node in enumerate(part.outputs.values()):
                self.outer[node] = call if is_single else base.call_function(operator.getitem, (call, i))
        for node in self.graph.nodes:
            if node._op == "output":
                base.output(map_arg(node._args[0], self._value), node.type).meta = dict(node.meta)
        split = GraphModule(self.attributes, base)
        split.__dict__["meta"] = {"partition_names": {part.submod_name for part in order}}
        return split


def _copy(node: Node, part: Partition, target: Any, name: str | None) -> None:
    environment = part.environment
    args = map_arg(node._args, environment.__getitem__)
    if bodies_of(node):
        args = tuple([copy.deepcopy(arg) if type(arg) is Graph else arg for arg in args])
    kwargs = map_arg(node._kwargs, environment.__getitem__) if node._kwargs else None
    copied = part.graph.create_node(node._op, target, args, kwargs, name, node.type)
    if node._meta is not None:
        copied._meta = node._meta.copy()
    copied._origin = node._origin
    environment[node] = copied


def _rename(part: Partition, m: nn.Module, path: str) -> str:
    """Give a submodule its place in a part, one attribute however deep it was before."""
    module = _follow(m, path)
    free = flat = path.replace(".", "_")
    number = 1
    while part.targets.get(free, module) is not module:  # a.b and a_b
        free, number = f"{flat}_{number}", number + 1
    part.targets[free] = module
    return free


def _follow(module: nn.Module, path: Any) -> Any:
    value: Any = module
    for atom in path.split("."):
        if not hasattr(value, atom):
            raise GraphError(f"the graph uses {path!r}, but {type(value).__name__} has no {atom!r}")
        value = getattr(value, atom)
    return value


# ---- the order of parts


def _topological(partitions: dict[str, Partition]) -> list[Partition]:
    """Order parts so that each comes after those it depends on, those that became ready last first."""
    waiting = {name: len(part.dependencies) for name, part in partitions.items()}
    ready = [name for name, count in waiting.items() if not count]
    order = []
    while ready:
        part = partitions[ready.pop()]
        order.append(part)
        for name in part.dependents:
            waiting[name] -= 1
            if not waiting[name]:
                ready.append(name)
    _require_all(order, partitions)
    return order


def _topological_stable(partitions: dict[str, Partition]) -> list[Partition]:
    """Order parts so that each comes after those it depends on, else by their first nodes."""
    place = {name: i for i, name in enumerate(partitions)}
    waiting = {name: len(part.dependencies) for name, part in partitions.items()}
    ready = [(place[name], name) for name, count in waiting.items() if not count]
    order = []
    while ready:
        part = partitions[heapq.heappop(ready)[1]]
        order.append(part)
        for name in part.dependents:
            waiting[name] -= 1
            if not waiting[name]:
                heapq.heappush(ready, (place[name], name))
    return order


def _require_all(order: list[Partition], partitions: dict[str, Partition]) -> None:
    if len(order) != len(partitions):
        done = {part.name for part in order}
        left = [part.submod_name for name, part in partitions.items() if name not in done]
        raise GraphError(
            f"cycle exists between partitions! These need each other: {', '.join(left)}",
            fix="let split_callback put nodes that depend on each other through other parts into one part",
        )


# ---- autocast and grad mode


def _require_increasing(calls: list[Node], indices: list[Any]) -> None:
    """A mode holds from a node to a later one, so parts may not go back behind one another."""
    highest = None
    for node, index in zip(calls, indices, strict=True):
        if highest is not None and index < highest:
            raise AssertionError(
                "autocast or set_grad_enabled require monotonically increasing partitions: "
                f"highest: {highest}, this node's: {index} ({node.name})"
            )
        highest = index


def _after(node: Node, modes: list[Node]) -> list[Node]:
    """The modes that hold after a node which changes them."""
    if node._target is _exit_autocast:
        return [mode for mode in modes if mode is not node._args[0]]
    if node._target is _GRAD_MODE:
        return [*(mode for mode in modes if mode._target is not _GRAD_MODE), node]
    return [*modes, node]
