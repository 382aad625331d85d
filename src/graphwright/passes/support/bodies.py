"""Editing branches and loops: their inputs, what stands in their place, and what may be done about them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import Any

from torch import nn

from graphwright.ir import Graph, Node, bodies_of, map_arg
from graphwright.ops import is_impure, is_inplace, is_plain_module, is_random, is_region, raise_error, transformed
from graphwright.runtime import graph_of, is_guard


def regions_in(gm: nn.Module) -> list[Node]:
    """The branches and loops of a module whose bodies are graphs, inner ones first."""
    graphs = list(graph_of(gm).all_graphs())
    return [node for graph in reversed(graphs) for node in graph.nodes if is_region(node) and own_bodies(node)]


def own_bodies(node: Node) -> list[Graph]:
    """The bodies of a region that are graphs, if all of them are; else none."""
    bodies = bodies_of(node)
    return bodies if not any(callable(arg) for arg in node.args) else []


def plain_graphs(graph: Graph) -> Iterator[Graph]:
    """A graph, and the bodies of its branches and loops; not those of transforms such as `vmap`."""
    yield graph
    for node in graph.nodes if graph.has_bodies else ():
        if is_region(node) and node.target is not transformed:
            for body in bodies_of(node):
                yield from plain_graphs(body)


def ends_by_raising(body: Graph) -> bool:
    """Tell whether the last thing that a body does is to raise."""
    last = body.output_node() if body.find_nodes(op="output") else None
    return last is None or (last.prev.op == "call_function" and last.prev.target is raise_error)


def items_of(node: Node) -> dict[int, list[Node]] | None:
    """The nodes that take items of a value, by their number; None where something else is done with it, too."""
    items: dict[int, list[Node]] = {}
    for user in node.users:
        if user.target is not operator.getitem or type(user.args[1]) is not int or user.args[0] is not node:
            return None
        items.setdefault(user.args[1], []).append(user)
    return items


def substitute(node: Node, value: Any) -> None:
    """Have all users of a node read a value instead: another node, a literal or a container."""

    def swap(arg: Any) -> Any:
        return map_arg(arg, lambda used: value if used is node else used)

    for user in list(node.users):
        user.args, user.kwargs = swap(user.args), swap(user.kwargs)


def put_in_place(node: Node, value: Any) -> None:
    """Have a value stand in the place of a node, its items for the nodes that take them; erase what is left over."""
    items = items_of(node)
    if items is not None and isinstance(value, tuple | list):
        for i, takers in items.items():
            for taker in takers:
                substitute(taker, value[i])
                taker.graph.erase_node(taker)
    substitute(node, value)
    node.graph.erase_node(node)


def inline(body: Graph, values: Sequence[Any], before: Node) -> Any:
    """Copy what a body does to before a node, for these inputs; return its value."""
    graph = before.graph
    around: dict[Node, Any] = dict(zip(body.placeholders(), values, strict=True))
    with graph.inserting_before(before):
        return graph.graph_copy(body, around)


def module_of(gm: nn.Module) -> Callable[[Node], nn.Module | None]:
    """What tells the module that a call_module node calls."""

    def find(node: Node) -> nn.Module | None:
        return gm.get_submodule(str(node.target)) if node.op == "call_module" else None

    return find


def may_write(nodes: Iterable[Node], gm: nn.Module) -> bool:
    """Tell whether one of these nodes may change a value that exists already and that the graph reads."""
    find = module_of(gm)
    for node in nodes:
        if node.op in ("placeholder", "output", "get_attr") or is_guard(node):
            continue
        if is_region(node) and own_bodies(node):
            if may_write((inner for body in own_bodies(node) for inner in body.nodes), gm):
                return True
            continue
        module = find(node)
        impure = is_impure(node, module, in_any_mode=True)
        writes = is_inplace(node) or (impure and not is_random(node, module))
        if writes and not _keeps_to_itself(module, gm):
            return True
    return False


def nodes_between(first: Node, last: Node, but: Container[Node] = ()) -> list[Node]:
    """The nodes that come after one and before another."""
    found = []
    node = first.next
    while node is not last:
        if node not in but:
            found.append(node)
        node = node.next
    return found


def _keeps_to_itself(module: nn.Module | None, gm: nn.Module) -> bool:
    """Tell whether a module writes to nothing but statistics of its own, which the graph does not read."""
    if not isinstance(module, nn.modules.batchnorm._NormBase) or not is_plain_module(module):
        return False
    statistics = {id(buffer) for buffer in module.buffers()}
    return not any(id(_attribute(gm, node)) in statistics for node in graph_of(gm).all_nodes() if node.op == "get_attr")


def _attribute(gm: nn.Module, node: Node) -> Any:
    path, _, name = str(node.target).rpartition(".")
    return getattr(gm.get_submodule(path), name, None)
