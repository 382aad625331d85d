"""Cut a captured module by tags on its nodes."""

from __future__ import annotations

import operator
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from graphwright.compat.partitioning.tools_common import CALLABLE_NODE_OPS, NodeList, is_node_output_tensor
from graphwright.ir import Graph, Node, map_arg, nodes_in
from graphwright.runtime import GraphModule, graph_of

__all__ = [
    "Component",
    "Subgraph",
    "getattr_recursive",
    "move_non_tensor_nodes_on_boundary",
    "setattr_recursive",
    "split_by_tags",
]


def getattr_recursive(obj: Any, name: str) -> Any:
    """Follow a dotted path; None where it leads nowhere.

    >>> import operator
    >>> getattr_recursive(operator.add, "__name__.upper")()
    'ADD'
    """
    for atom in name.split("."):
        if not hasattr(obj, atom):
            return None
        obj = getattr(obj, atom)
    return obj


def setattr_recursive(obj: Any, attr: str, value: Any) -> None:
    """Set what a dotted path names. Raises AttributeError where an object on the way is missing.

    >>> import types
    >>> outer = types.SimpleNamespace(inner=types.SimpleNamespace())
    >>> setattr_recursive(outer, "inner.size", 3)
    >>> outer.inner.size
    3
    """
    *way, last = attr.split(".")
    for atom in way:
        obj = getattr(obj, atom)
    setattr(obj, last, value)


@dataclass
class Component:
    """The nodes of one tag: their graph, and what it reads and gives in terms of the original's nodes.

    >>> Component(Graph(), 0, "part").orig_inputs
    []
    """

    graph: Graph
    order: int
    name: str
    input_placeholders: list[Node] = field(default_factory=list)
    orig_inputs: list[Node] = field(default_factory=list)
    orig_outputs: list[Node] = field(default_factory=list)
    getattr_maps: dict[Node, Node] = field(default_factory=dict)
    constructor_args: list[str] = field(default_factory=list)
    gm: GraphModule | None = None


@dataclass
class Subgraph:
    """Nodes that become one part, in the order in which they run.

    >>> Subgraph(is_acc=True, nodes=[])
    Subgraph(is_acc=True, nodes=[], device_ordinal=None)
    """

    is_acc: bool
    nodes: NodeList
    device_ordinal: int | None = None


def split_by_tags(
    gm: GraphModule,
    tags: list[str],
    return_fqn_mapping: bool = False,
    return_tuple: bool = False,
    GraphModuleCls: type[GraphModule] = GraphModule,
) -> Any:
    """Split a module into one submodule per tag, in the order of `tags`; `node.tag` is the tag of each call.

    A submodule with one result returns it, with `return_tuple` in a tuple. With `return_fqn_mapping`, returns also a
    dict from the paths of the original's attributes to those in the result.

    Raises AssertionError for a call without a tag, a tag that is not listed, or one that comes after it is needed.
    """
    graph = graph_of(gm)
    components = {tag: Component(Graph(), order, tag) for order, tag in enumerate(tags)}
    owner = {node: _component(node, components) for node in graph.nodes if node.op in CALLABLE_NODE_OPS}
    for node, component in owner.items():
        for used in (*nodes_in(node.args), *nodes_in(node.kwargs)):
            source = owner.get(used)
            if source is component or used.op == "get_attr" or used in component.orig_inputs:
                continue
            if source is not None and source.order > component.order:
                raise AssertionError(f"{node.name}, of tag {component.name}, reads {used.name}, of tag {source.name}")
            component.orig_inputs.append(used)
            if source is not None and used not in source.orig_outputs:
                source.orig_outputs.append(used)
    for used in nodes_in(graph.output_node().args):
        if used in owner and used not in owner[used].orig_outputs:
            owner[used].orig_outputs.append(used)
    paths = _copy_nodes(owner, components)
    split = _assemble(gm, components, return_tuple, GraphModuleCls)
    return (split, paths) if return_fqn_mapping else split


def _component(node: Node, components: dict[str, Component]) -> Component:
    tag = getattr(node, "tag", None)
    if tag is None:
        raise AssertionError(f"Node does not have tag: {node!r}")
    if tag not in components:
        raise AssertionError(f"Node {node.name} has the tag {tag!r}, which is not among {list(components)}")
    return components[tag]


def _copy_nodes(owner: dict[Node, Component], components: dict[str, Component]) -> dict[str, str]:
    """Fill the graphs of the components; return where the attributes that they use have gone."""
    copies: dict[str, dict[Node, Node]] = {}
    paths: dict[str, str] = {}
    for component in components.values():
        known = copies[component.name] = {}
        for used in component.orig_inputs:
            known[used] = component.graph.placeholder(used.name, used.type)
            known[used].meta = dict(used.meta)
            component.input_placeholders.append(known[used])
    for node, component in owner.items():
        known = copies[component.name]
        for used in (*nodes_in(node.args), *nodes_in(node.kwargs)):
            if used not in known:  # an attribute: each component reads it itself
                known[used] = component.getattr_maps[used] = component.graph.node_copy(used)
                paths[str(used.target)] = f"{component.name}.{used.target}"
        known[node] = component.graph.node_copy(node, known.__getitem__)
        known[node].tag = component.name  # type: ignore[attr-defined]
        if node.op == "call_module":
            paths[str(node.target)] = f"{component.name}.{node.target}"
    for component in components.values():
        component.constructor_args = [copies[component.name][node].name for node in component.orig_outputs]
        component.graph.output(tuple([copies[component.name][node] for node in component.orig_outputs]))
    return paths


def _assemble(
    gm: GraphModule, components: dict[str, Component], return_tuple: bool, kind: type[GraphModule]
) -> GraphModule:
    old = graph_of(gm)
    main = Graph(tracer_cls=old._tracer_cls)
    values = {node: main.node_copy(node) for node in old.nodes if node.op == "placeholder"}
    attributes: dict[str, Any] = {}

    output = old.output_node()
    for node in output.all_input_nodes:
        if node.op == "get_attr":
            values[node] = main.node_copy(node)
            attributes[str(node.target)] = getattr_recursive(gm, str(node.target))
    for component in components.values():
        is_single = len(component.orig_outputs) == 1 and not return_tuple
        if is_single:
            returned = component.graph.output_node()
            returned.args = returned.args[0]
        component.gm = attributes[component.name] = kind(gm, component.graph)
        call = main.call_module(component.name, tuple([values[node] for node in component.orig_inputs]))
        for i, node in enumerate(component.orig_outputs):
            values[node] = call if is_single else main.call_function(operator.getitem, (call, i))
    main.output(map_arg(output.args[0], values.__getitem__), output.type)
    return kind(attributes, main)


def move_non_tensor_nodes_on_boundary(subgraphs: list[Subgraph]) -> None:
    """Move what makes numbers and containers for another part into that part, with all that reads them.

    Where several other parts read such a value, or a node that reads it, it stays. Changes the lists of nodes.
    Types are those in `meta["type"]`, see `ShapeProp`.
    """
    home = {node: i for i, part in enumerate(subgraphs) for node in part.nodes if node.op in CALLABLE_NODE_OPS}
    waiting = deque(
        node
        for subgraph in subgraphs
        if subgraph.is_acc  # what the others run need not be supported elsewhere
        for node in subgraph.nodes
        if node in home and _crosses(node, home) and not is_node_output_tensor(node)
    )
    fixed: set[Node] = set()  # could not be moved
    while waiting:
        node = waiting.popleft()
        source = home[node]
        destinations = {home[user] for user in node.users if user in home} - {source}
        if node in fixed or not destinations:
            continue
        if len(destinations) > 1:
            print(f"Cannot move non-tensor node {node.name} on boundary because it has children in multiple subgraphs")
        destination = destinations.pop()
        moved = [] if destinations else _with_readers(node, source, destination, home)
        if not moved:
            fixed.add(node)
        for each in moved:
            home[each] = destination
            subgraphs[source].nodes.remove(each)
            subgraphs[destination].nodes.append(each)
            print(
                f"In order move the non-tensor node {node.name} on boundary, moved node {each.name} from"
                f" {_called(subgraphs, source)} to {_called(subgraphs, destination)}"
            )
        for each in moved:
            waiting.extend(
                used
                for used in each.all_input_nodes
                if used in home and subgraphs[home[used]].is_acc and not is_node_output_tensor(used)
            )


def _crosses(node: Node, home: dict[Node, int]) -> bool:
    return any(home.get(user, home[node]) != home[node] for user in node.users)


def _with_readers(node: Node, source: int, destination: int, home: dict[Node, int]) -> list[Node]:
    """The node and all nodes of its part that need it, readers first; none of them where a third
    part needs one."""
    found: dict[Node, None] = {}

    def visit(each: Node) -> bool:
        place = home.get(each, destination)
        if place == destination or each in found:
            return True
        if place != source or not all(visit(user) for user in each.users):
            return False
        found[each] = None
        return True

    return list(found) if visit(node) else []


def _called(subgraphs: list[Subgraph], place: int) -> str:
    return f"{'acc' if subgraphs[place].is_acc else 'gpu'}_{place}"
