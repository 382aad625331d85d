"""Parts of a graph as submodules: nodes that are given together become one call."""

from __future__ import annotations

import heapq
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from graphwright.compat.partitioning.kept_order import BARRIERS, kept_order
from graphwright.compat.partitioning.subgraph_modules import lift_subgraph_as_module
from graphwright.compat.partitioning.tools_common import NodeList
from graphwright.ir import Graph, Node, map_arg
from graphwright.runtime import GraphModule, graph_of

__all__ = [
    "erase_nodes",
    "fuse_as_graphmodule",
    "fuse_by_partitions",
    "insert_subgm",
    "topo_sort",
    "validate_partition",
]

_CYCLE = "Invalid partition, found dependency cycles"


def topo_sort(nodes: NodeList) -> NodeList:
    """Put nodes behind those of them that they read; among several that could come next, the one listed first does.

    >>> graph = Graph()
    >>> x = graph.placeholder("x")
    >>> y = graph.call_method("neg", (x,))
    >>> topo_sort([y, x])
    [x, neg]
    """
    place = {node: i for i, node in enumerate(nodes)}
    waiting = {node: sum(used in place for used in node.all_input_nodes) for node in place}
    ready = [i for node, i in place.items() if not waiting[node]]
    heapq.heapify(ready)
    found: NodeList = []
    while ready:
        found.append(nodes[heapq.heappop(ready)])
        for user in found[-1].users:
            if user in place:
                waiting[user] -= 1
                if not waiting[user]:
                    heapq.heappush(ready, place[user])
    if len(found) != len(place):
        raise AssertionError(f"{len(place) - len(found)} of the nodes read each other")
    return found


def validate_partition(partition: NodeList) -> bool:
    """Tell whether nodes may become one: none of them needs something outside that needs another of them.

    >>> graph = Graph()
    >>> x = graph.placeholder("x")
    >>> y = graph.call_method("neg", (x,))
    >>> z = graph.call_method("abs", (y,))
    >>> validate_partition([y, z]), validate_partition([x, z])
    (True, False)
    """
    inside = set(partition)
    seen: set[Node] = set()
    waiting = [user for node in partition for user in node.users if user not in inside]
    while waiting:
        node = waiting.pop()
        if node in inside:
            return False
        if node not in seen:
            seen.add(node)
            waiting.extend(node.users)
    return True


def fuse_as_graphmodule(
    gm: GraphModule,
    nodes: NodeList,
    module_name: str,
    partition_lookup_table: Mapping[Node, int | None] | None = None,
    *,
    always_return_tuple: bool = False,
) -> tuple[GraphModule, tuple[Node, ...], tuple[Node, ...]]:
    """Copy nodes into a module of their own, of a class called `module_name`; `gm` stays as it is.

    Returns the module, the nodes of `gm` that are its inputs, in the order in which they are read, and those that are
    its outputs: the ones that are read outside. A single output is returned itself, unless `always_return_tuple`.
    The nodes come in an order in which they can run. `partition_lookup_table` is there for torch.fx's sake.

    Raises AssertionError for nodes of other graphs, for inputs and outputs of the program, and where a node outside
    stands between the others.

    >>> from graphwright import symbolic_trace
    >>> gm = symbolic_trace(lambda x: x.neg().abs().sin())
    >>> part, inputs, outputs = fuse_as_graphmodule(gm, gm.graph.find_nodes(op="call_method")[:2], "Part")
    >>> print(part.code.strip(), inputs, outputs)
    def forward(self, x):
        neg = x.neg();  x = None
        abs_1 = neg.abs();  neg = None
        return abs_1 (x,) (abs_1,)
    """
    _check_members(gm, nodes)
    if not validate_partition(nodes):
        raise AssertionError(_CYCLE)
    return _copied(gm, topo_sort(nodes), module_name, always_return_tuple, {})


def _check_members(gm: GraphModule, nodes: Iterable[Node]) -> None:
    graph = graph_of(gm)
    for node in nodes:
        if node._erased:
            raise AssertionError(f"{node} has been removed from owning graph")
        if node.graph is not graph:
            raise AssertionError(f"{node} doesn't belong to passed in graph module {type(gm).__name__}")
        if node.op in ("placeholder", "output") or node.target in BARRIERS:
            raise AssertionError(f"{node} is {node.op} {node.target}, which cannot be part of a submodule")


def _copied(
    gm: GraphModule, nodes: NodeList, name: str, as_tuple: bool, results: Mapping[Node, Node]
) -> tuple[GraphModule, tuple[Node, ...], tuple[Node, ...]]:
    """Copy nodes into a module; `results` are read in place of nodes that are parts of other modules."""
    inside = set(nodes)
    inputs = list(dict.fromkeys(used for node in nodes for used in node.all_input_nodes if used not in inside))
    outputs = [node for node in nodes if any(user not in inside for user in node.users)]
    graph = Graph()
    copies: dict[Node, Node] = {}
    for node in inputs:
        given = results.get(node, node)
        copies[node] = graph.placeholder(given.name, given.type)
        copies[node].meta = dict(given.meta)
        copies[node].origin = given.origin
    for node in nodes:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    returned = tuple([copies[node] for node in outputs])
    graph.output(returned[0] if len(returned) == 1 and not as_tuple else returned)
    module, _ = lift_subgraph_as_module(gm, graph, class_name=name)
    return module, tuple([results.get(node, node) for node in inputs]), tuple(outputs)


def insert_subgm(
    gm: GraphModule,
    sub_gm: GraphModule,
    orig_inputs: Sequence[Node],
    orig_outputs: Sequence[Node],
    insertion_point: Node | None = None,
) -> GraphModule:
    """Call a module where the last of `orig_outputs` stands, or behind `insertion_point`, and read its results instead.

    The module becomes the submodule that its class is called, or one of a name like it where that is taken. Calls that
    read a result may stand before it then: `stable_topological_sort` puts them behind it. Returns `gm`.
    """
    _, results = _insert(gm, sub_gm, orig_inputs, orig_outputs, insertion_point)
    _swap(dict(zip(orig_outputs, results, strict=True)))
    return gm


def _swap(results: Mapping[Node, Node]) -> None:
    """Have every user of the old nodes read the new ones, each user looked at once."""

    def swapped(node: Node) -> Node:
        return results.get(node, node)

    for old, new in results.items():
        if old.graph._hooks is not None:
            old.graph._tell_of_replacement(old, new.name, list(old.users))
    for user in dict.fromkeys([user for old in results for user in old.users]):
        user.args, user.kwargs = map_arg(user.args, swapped), map_arg(user.kwargs, swapped)


def _insert(
    gm: GraphModule,
    sub_gm: GraphModule,
    inputs: Sequence[Node],
    outputs: Sequence[Node],
    behind: Node | None,
) -> tuple[list[Node], list[Node]]:
    """Insert the call and what takes its results apart; return these nodes, and those of them that are the results."""
    graph = graph_of(gm)
    name = free = type(sub_gm).__name__
    number = 0
    while hasattr(gm, free):
        number += 1
        free = f"{name}_{number}"
    gm.add_module(free, sub_gm)
    point = behind or max(outputs, default=graph.output_node().prev)
    with graph.inserting_after(point):
        call = graph.call_module(free, tuple(inputs))
    call.origin = outputs[0].origin if outputs else None
    made = [call]
    if isinstance(graph_of(sub_gm).output_node().args[0], tuple):
        call.meta["val"] = tuple([output.meta.get("val") for output in outputs])
        for i in range(len(outputs)):
            with graph.inserting_after(made[-1]):
                made.append(graph.call_function(operator.getitem, (call, i)))
    results = made[-len(outputs) :] if outputs else []
    for output, result in zip(outputs, results, strict=True):
        result.meta = dict(output.meta)
        result.origin = output.origin
    return made, results


def erase_nodes(gm: GraphModule, nodes: NodeList) -> None:
    """Erase nodes, the last first. Raises GraphError (a RuntimeError) for one that is still read.

    >>> from graphwright import symbolic_trace
    >>> gm = symbolic_trace(lambda x: x)
    >>> erase_nodes(gm, [gm.graph.call_function(abs, (3,)) for _ in range(2)])
    >>> len(gm.graph.nodes)
    2
    """
    for node in reversed(nodes):
        graph_of(gm).erase_node(node)


def fuse_by_partitions(
    gm: GraphModule,
    partitions: Sequence[Iterable[Node]],
    prefix: str = "fused_",
    always_return_tuple: bool = False,
) -> GraphModule:
    """Make each group of nodes a submodule `prefix` and its number, and call it instead; returns `gm`.

    Operations stay in order as far as possible: none moves past a write to what it reads, or past another effect
    if it has one itself.

    Raises AssertionError, and leaves `gm` as it was, where groups need each other or a node is in two of them.

    >>> from graphwright import symbolic_trace
    >>> gm = symbolic_trace(lambda x: x.neg().abs().sin())
    >>> print(fuse_by_partitions(gm, [gm.graph.find_nodes(op="call_method")[:2]]).code.strip())
    def forward(self, x):
        fused_0 = self.fused_0(x);  x = None
        sin = fused_0.sin();  fused_0 = None
        return sin
    """
    graph = graph_of(gm)
    groups = [list(partition) for partition in partitions]
    for group in groups:
        _check_members(gm, group)
    home = {node: i for i, group in enumerate(groups) for node in group}
    if len(home) < sum(map(len, groups)):
        raise AssertionError("a node is in two of the partitions")
    later = kept_order(gm)
    order = _order_of_units(graph, home, later)
    fused: dict[int, list[Node]] = {}
    swap: dict[Node, Node] = {}
    for i, group in enumerate(groups):
        nodes = sorted(group) if later else topo_sort(group)
        if nodes:
            part, inputs, outputs = _copied(gm, nodes, f"{prefix}{i}", always_return_tuple, swap)
            fused[i], results = _insert(gm, part, inputs, outputs, nodes[-1])
            swap.update(zip(outputs, results, strict=True))
    _swap(swap)
    erase_nodes(gm, sorted(home))
    end = graph.output_node()
    for unit in order:
        for node in fused[unit] if isinstance(unit, int) else [unit]:
            if node is not end:
                end.prepend(node)
    return gm


_Unit = Any  # a node, or the number of a group of them


def _order_of_units(graph: Graph, home: Mapping[Node, int], later: Mapping[Node, list[Node]]) -> list[_Unit]:
    """Nodes outside and groups in an order in which they can run, as near to the graph's as possible.

    A group comes where its last node stands, if it can.
    """
    place: dict[_Unit, int] = {home.get(node, node): i for i, node in enumerate(graph.nodes)}
    behind: dict[_Unit, set[_Unit]] = {unit: set() for unit in place}
    for node in graph.nodes:
        unit = home.get(node, node)
        behind[unit].update(home.get(user, user) for user in (*node.users, *later.get(node, ())))
    waiting = dict.fromkeys(place, 0)
    for unit, followers in behind.items():
        followers.discard(unit)
        for other in followers:
            waiting[other] += 1
    units = {i: unit for unit, i in place.items()}
    ready = [place[unit] for unit, count in waiting.items() if not count]
    heapq.heapify(ready)
    order = []
    while ready:
        order.append(units[heapq.heappop(ready)])
        for unit in behind[order[-1]]:
            waiting[unit] -= 1
            if not waiting[unit]:
                heapq.heappush(ready, place[unit])
    if len(order) < len(place):
        stuck = sorted(node.name for node, i in home.items() if waiting[i])
        raise AssertionError(f"{_CYCLE}: {', '.join(stuck[:8])} wait for each other")
    return order
