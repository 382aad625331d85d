"""The nodes that came from one call of a module or function, found by what was called."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from graphwright.compat.partitioning.tools_common import CALLABLE_NODE_OPS
from graphwright.ir import Graph, Node
from graphwright.ops import operator_of, operator_of_target

__all__ = ["SourcePartition", "check_subgraphs_connected", "get_source_partitions"]


@dataclass
class SourcePartition:
    """The nodes of one call of a source; those outside that it reads, its own that are read outside, its attributes.

    >>> SourcePartition([], abs).output_nodes
    []
    """

    nodes: list[Node]
    source: Any
    input_nodes: list[Node] = field(default_factory=list)
    output_nodes: list[Node] = field(default_factory=list)
    params: list[Node] = field(default_factory=list)


def get_source_partitions(
    graph: Graph, wanted_sources: list[Any], filter_fn: Callable[[Node], bool] | None = None
) -> dict[Any, list[SourcePartition]]:
    """Find the nodes that come from wanted modules and functions, a partition for each call, by source.

    A source is a class of modules, a function, or a name. `meta["source_fn_stack"]` and `meta["torch_fn"]` say where a
    node of a decomposed program comes from. Any other node comes from the innermost wanted one of: what it calls
    itself, the modules around it (`meta["nn_module_stack"]`). A function stands for all spellings of its operator:
    `torch.relu` for `x.relu()`. Partitions in which `filter_fn` refuses a node are left out.

    >>> from torch import nn
    >>> from graphwright import symbolic_trace
    >>> gm = symbolic_trace(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2)))
    >>> [(part.nodes, part.input_nodes) for part in get_source_partitions(gm.graph, [nn.Linear])[nn.Linear]]
    [([_0], [input_1]), ([_2], [_1])]
    """
    found: dict[Any, dict[Any, list[Node]]] = {}
    keys = {known.key: source for source in wanted_sources if (known := operator_of_target("call_function", source))}
    for node in graph.nodes:
        for source, call in _sources(node):
            wanted = _wanted(source, wanted_sources)
            if wanted is None and call is node and (known := operator_of(node)) is not None:
                wanted = keys.get(known.key)
            if wanted is not None:
                found.setdefault(wanted, {}).setdefault(call, []).append(node)
                break
    return {
        source: [
            _partition(nodes, source) for nodes in calls.values() if filter_fn is None or all(map(filter_fn, nodes))
        ]
        for source, calls in found.items()
    }


def _sources(node: Node) -> Iterator[tuple[Any, Any]]:
    """What a node may come from, the likeliest first, each with what tells its calls apart."""
    meta = node.meta
    if meta.get("source_fn_stack"):
        call, source = meta["source_fn_stack"][-1]
        yield source, call
        return
    if "torch_fn" in meta:
        call, name = meta["torch_fn"]
        yield str(name).rpartition(".")[2], call
    if node.op not in CALLABLE_NODE_OPS:
        return
    if node.op == "call_module":
        yield _class_of_called(node), node
    elif "torch_fn" not in meta:
        yield node.target, node
    stack = reversed(meta.get("nn_module_stack", {}).items())
    for key, (path, kind) in [*stack][:1] if "torch_fn" in meta else stack:
        yield kind, path if "torch_fn" in meta else key  # keys tell calls of one module apart


def _class_of_called(node: Node) -> type | None:
    owner = node.graph.owning_module
    return None if owner is None else type(owner.get_submodule(str(node.target)))


def _wanted(source: Any, wanted: Collection[Any]) -> Any:
    """The wanted source that this one is; a class may be given by its full name in the meta."""
    for other in wanted:
        if other is source or (isinstance(source, str) and source in (other, _full_name(other))):
            return other
    return None


def _full_name(source: Any) -> str | None:
    return f"{source.__module__}.{source.__qualname__}" if isinstance(source, type) else None


def _partition(nodes: list[Node], source: Any) -> SourcePartition:
    inside = set(nodes)
    inputs = dict.fromkeys(
        used for node in nodes for used in node.all_input_nodes if used not in inside and used.op != "get_attr"
    )
    params = [node for node in nodes if node.op == "get_attr"]
    outputs = [node for node in nodes if node.op != "get_attr" and any(user not in inside for user in node.users)]
    return SourcePartition(nodes, source, list(inputs), outputs, params)


def check_subgraphs_connected(subgraph1: SourcePartition, subgraph2: SourcePartition) -> bool:
    """Tell whether a node of the second reads a node of the first.

    >>> graph = Graph()
    >>> x = graph.placeholder("x")
    >>> first, second = SourcePartition([x], None), SourcePartition([graph.call_method("neg", (x,))], None)
    >>> check_subgraphs_connected(first, second), check_subgraphs_connected(second, first)
    (True, False)
    """
    first = set(subgraph1.nodes)
    return any(used in first for node in subgraph2.nodes for used in node.all_input_nodes)
