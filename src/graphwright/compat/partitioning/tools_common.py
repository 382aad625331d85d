"""What splitting for accelerators needs to know of nodes: names of targets, tensors or not, nodes fused together."""

from __future__ import annotations

import dataclasses
import heapq
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from graphwright.errors import GraphError
from graphwright.ir import Graph, Node, qualified_name
from graphwright.runtime import GraphModule, graph_of

__all__ = [
    "CALLABLE_NODE_OPS",
    "FxNetAccFusionsFinder",
    "Names",
    "NodeList",
    "NodeSet",
    "TensorOrTensors",
    "Tensors",
    "get_acc_ops_name",
    "get_node_target",
    "is_node_output_tensor",
    "legalize_graph",
    "stable_topological_sort",
]

Tensors = tuple[Tensor] | list[Tensor]
TensorOrTensors = Tensor | Tensors
NodeList = list[Node]
NodeSet = set[Node]
Names = list[str]
CALLABLE_NODE_OPS = {"call_module", "call_function", "call_method"}


def get_acc_ops_name(k: Any) -> str:
    """Name an operator; one of a module `...acc_ops` by `acc_ops.` and its name.

    >>> get_acc_ops_name("x"), get_acc_ops_name(torch.nn.ReLU)
    ('x', 'torch.nn.modules.activation.ReLU')
    """
    if isinstance(k, str):
        return k
    module: Any = k.__module__
    if module and "acc_ops" in module:
        return f"acc_ops.{k.__name__}"
    if module is None:
        found = _name_in_torch(k)
        if found is not None:
            return found
    module = module.replace("torch._ops", "torch.ops")  # the operators under torch.ops have the module torch._ops
    return f"{module or ''}.{k.__name__}"


def _name_in_torch(k: Any) -> str | None:
    name: str = k.__name__
    return f"torch.{name}" if getattr(torch, name, None) is k else None


def get_node_target(submodules: Mapping[str, nn.Module], node: Node) -> str:
    """Name what a node calls: the class of a submodule, a function with its module, the name of a method.

    >>> import operator
    >>> node = Graph().call_function(operator.add, (1, 2))
    >>> get_node_target({}, node)
    '_operator.add'
    """
    if node.op not in CALLABLE_NODE_OPS:
        raise AssertionError(f"Expect op types of call_module, call_method, call_function, but found {node.op}")
    if node.op == "call_module":
        called = submodules[node.target]
        return get_acc_ops_name(getattr(called, "_base_class_origin", type(called)))
    if node.op == "call_function":
        target: Any = node.target
        if "acc_ops" in (getattr(target, "__module__", None) or ""):
            return f"acc_ops.{target.__name__}"
        name = qualified_name(target)
        # `operator` is the module's name to people; `_operator` is where its functions say they are from.
        return f"_{name}" if name.startswith("operator.") else name.removeprefix("builtins.")
    assert isinstance(node.target, str)
    return node.target


def is_node_output_tensor(node: Node) -> bool:
    """Tell whether a node gives a tensor, by the `meta["type"]` that `ShapeProp` writes.

    >>> node = Graph().placeholder("x")
    >>> node.meta["type"] = torch.Tensor
    >>> is_node_output_tensor(node)
    True
    """
    kind: Any = node.meta.get("type")
    return issubclass(type(kind), type) and issubclass(kind, Tensor)  # not `list[int]`, which is none


class FxNetAccFusionsFinder:
    """Finds nodes of `acc_nodes` that must stay together, since something that is no tensor passes between them.

    Called, it gives a dict from each such node to all nodes of its group.
    """

    @dataclasses.dataclass
    class FusionGroup:
        """Nodes that belong together, what they read from outside, and those whose neighbours are not seen yet."""

        top_node_idx: int  # the least position of a node in the group
        nodes: NodeSet
        inputs: NodeSet
        nodes_need_process: NodeSet

        def add_node(self, node: Node) -> None:
            """Take a node in, which may have been an input."""
            if node in self.nodes:
                return
            self.nodes_need_process.add(node)
            self.nodes.add(node)
            self.inputs.discard(node)
            self.inputs.update(
                used for used in node.all_input_nodes if used.op in CALLABLE_NODE_OPS and used not in self.nodes
            )

    def __init__(self, module: GraphModule, acc_nodes: NodeSet) -> None:
        self.module = module
        self.nodes = list(graph_of(module).nodes)
        self.acc_nodes = acc_nodes
        self.node_index = {node: i for i, node in enumerate(self.nodes)}

    def recursive_add_node(
        self, fusion_group: FusionGroup, inputs: NodeSet | NodeList, visited: NodeSet | None = None
    ) -> bool:
        """Take in every node on a way from the group to these inputs; tell whether there was such a way."""
        visited = set() if visited is None else visited
        found = False
        for node in inputs:
            if node in fusion_group.nodes:
                found = True
                continue
            if node in visited:
                continue
            visited.add(node)
            if node.op not in CALLABLE_NODE_OPS or self.node_index[node] < fusion_group.top_node_idx:
                continue
            if self.recursive_add_node(fusion_group, node.all_input_nodes, visited):
                fusion_group.add_node(node)
                found = True
        return found

    def __call__(self) -> dict[Node, NodeSet]:
        result: dict[Node, NodeSet] = {}
        acc_nodes = list(self.acc_nodes)
        for node in acc_nodes:
            if node in result or node.op not in CALLABLE_NODE_OPS:
                continue
            if _gives_tensors(node) or node not in self.acc_nodes:
                continue
            group = self.FusionGroup(self.node_index[node], {node}, set(node.all_input_nodes), {node})
            while group.nodes_need_process:
                self._grow(group)
            if not group.nodes <= self.acc_nodes:
                self.acc_nodes -= group.nodes
            else:
                for member in group.nodes:
                    result[member] = group.nodes
        return result

    def _grow(self, group: FusionGroup) -> None:
        """Take in what one node of the group exchanges other things than tensors with."""
        node = group.nodes_need_process.pop()
        self.recursive_add_node(group, group.inputs)
        if not _gives_tensors(node):
            for user in node.users:
                if user.op in CALLABLE_NODE_OPS and user not in group.nodes:
                    group.add_node(user)
                    self.recursive_add_node(group, group.inputs)
        for used in node.all_input_nodes:
            if used.op in CALLABLE_NODE_OPS and not _gives_tensors(used) and used not in group.nodes:
                group.add_node(used)
                group.top_node_idx = min(group.top_node_idx, self.node_index[used])
                self.recursive_add_node(group, group.inputs)


def _gives_tensors(node: Node) -> bool:
    return "tensor_meta" in node.meta


def legalize_graph(gm: GraphModule) -> GraphModule:
    """Put nodes after those that they read, each as soon as its last input is there; the module gets a new graph.

    Raises RuntimeError where nodes read each other.
    """
    graph = graph_of(gm)
    waiting = {node: len(node.all_input_nodes) for node in graph.nodes}
    ready = deque(node for node, count in waiting.items() if not count)
    order: list[Node] = []
    while ready:
        node = ready.popleft()
        if node.op == "output" and ready:
            ready.append(node)  # last of all
            continue
        order.append(node)
        for user in node.users:
            waiting[user] -= 1
            if not waiting[user]:
                ready.appendleft(user)
    _adopt(gm, order, lambda text: GraphError(text))
    return gm


def stable_topological_sort(gm: GraphModule) -> GraphModule:
    """Put nodes after those that they read, else as they are; the module gets a new graph.

    Raises AssertionError where nodes read each other.
    """
    graph = graph_of(gm)
    place = {node: i for i, node in enumerate(graph.nodes)}
    waiting = {node: len(node.all_input_nodes) for node in place}
    ready = [(place[node], node) for node, count in waiting.items() if not count]
    order: list[Node] = []
    while ready:
        _, node = heapq.heappop(ready)
        order.append(node)
        for user in node.users:
            waiting[user] -= 1
            if not waiting[user]:
                heapq.heappush(ready, (place[user], user))
    _adopt(gm, order, AssertionError)
    return gm


def _adopt(gm: GraphModule, order: list[Node], error: Callable[[str], Exception]) -> None:
    old = graph_of(gm)
    placed = set(order)
    left = [node for node in old.nodes if node not in placed]
    if left:
        raise error(f"Input graph has cycles, unable to add {left}")
    new = Graph(tracer_cls=old._tracer_cls)
    copies: dict[Node, Node] = {}
    for node in order:
        copies[node] = new.node_copy(node, copies.__getitem__)
    gm.graph = new
