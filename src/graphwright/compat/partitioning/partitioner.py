"""The parts of a graph that a backend can take over: as few and as large as they can be without needing each other."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence

from graphwright.compat.partitioning.fuser_utils import fuse_by_partitions
from graphwright.compat.partitioning.grouping import groups_by_level, groups_of_readers
from graphwright.compat.partitioning.kept_order import BARRIERS, kept_order
from graphwright.compat.partitioning.operator_support import OperatorSupportBase
from graphwright.compat.partitioning.tools_common import get_node_target
from graphwright.ir import Node
from graphwright.ops import written_attributes
from graphwright.runtime import GraphModule, graph_of

__all__ = ["CapabilityBasedPartitioner", "Partition"]

_NEVER_COMPUTE = ("torch.ops.aten.view", "_operator.getitem")


class Partition:
    """Nodes that belong together, in order, each with the order that it was given, if any.

    >>> Partition(3, ["a", "b"]).size()
    2
    """

    def __init__(
        self,
        id: int | None = None,
        nodes: Iterable[Node] | None = None,
        node_orders: Iterable[int] | None = None,
    ) -> None:
        self.id = id
        members = [] if nodes is None else list(nodes)
        orders: list[int | None] = [None] * len(members) if node_orders is None else list(node_orders)
        if len(orders) != len(members):
            raise AssertionError("nodes and node_orders must have the same length")
        self.nodes: dict[Node, int | None] = dict(zip(members, orders, strict=True))

    def __repr__(self) -> str:
        return str(self.nodes)

    def add_node(self, node: Node, node_order: int | None = None) -> None:
        """Take a node in."""
        self.nodes[node] = node_order

    def remove_node(self, node: Node) -> None:
        """Give a node up. Raises KeyError where it is none of these."""
        del self.nodes[node]

    def size(self) -> int:
        """The number of nodes."""
        return len(self.nodes)


class CapabilityBasedPartitioner:
    """Finds the parts of a module that `operator_support` says are supported, and makes them submodules.

    A part of a single operation is left out, unless `allows_single_node_partition`. What counts are functions: those
    called as in `non_compute_ops` do not, those in `allowed_single_node_partition_ops` count once more ("torch.relu",
    "_operator.add"). Operations that do not depend on each other come into one part too, unless
    `skip_horizontal_fusion`.

    No part needs another one that needs it, and none moves a write past a read of what it writes to, a random draw
    past another, or anything past the edge of a `with` block. Inputs and outputs of the program are in no part.

    >>> from graphwright import symbolic_trace
    >>> from graphwright.passes.operator_support import create_op_support
    >>> gm = symbolic_trace(lambda x: (x.neg().abs() @ x).sin())
    >>> supported = create_op_support(lambda modules, node: node.op == "call_method")
    >>> partitioner = CapabilityBasedPartitioner(gm, supported, allows_single_node_partition=True)
    >>> [list(partition.nodes) for partition in partitioner.propose_partitions()]
    [[sin], [neg, abs_1]]
    >>> partitioner.partition_and_fuse().graph.find_nodes(op="call_module")
    [fused_1, fused_0]
    """

    def __init__(
        self,
        graph_module: GraphModule,
        operator_support: OperatorSupportBase,
        allows_single_node_partition: bool = False,
        non_compute_ops: Sequence[str] | None = None,
        allowed_single_node_partition_ops: Sequence[str] | None = None,
        skip_horizontal_fusion: bool = False,
    ) -> None:
        self.graph_module = graph_module
        self.operator_support = operator_support
        self.allows_single_node_partition = allows_single_node_partition
        self.non_compute_ops = [] if non_compute_ops is None else non_compute_ops
        self.allowed_single_node_partition_ops = allowed_single_node_partition_ops or []
        self.skip_horizontal_fusion = skip_horizontal_fusion

    def propose_partitions(self) -> list[Partition]:
        """Find the parts, by their ids; nothing is changed. Takes time linear in the graph, for most graphs."""
        nodes = list(graph_of(self.graph_module).nodes)
        later = kept_order(self.graph_module)
        supported = self._supported(nodes)
        find = groups_of_readers if self.skip_horizontal_fusion else groups_by_level
        groups = find(nodes, supported, later)
        orders = {node: i for i, node in enumerate(reversed(nodes))}
        partitions = {i: Partition(i, members, map(orders.__getitem__, members)) for i, members in groups}
        _keep_items_with_tuples(nodes, partitions, {node for later_ones in later.values() for node in later_ones})
        return [
            partition
            for partition in partitions.values()
            if partition.size() and (self.allows_single_node_partition or self._is_worth_it(partition))
        ]

    def fuse_partitions(self, partitions: list[Partition], prefix: str = "fused_") -> GraphModule:
        """Make parts submodules, see `fuse_by_partitions`; returns the module, which is changed."""
        return fuse_by_partitions(self.graph_module, [list(partition.nodes) for partition in partitions], prefix)

    def partition_and_fuse(self, prefix: str = "fused_") -> GraphModule:
        """Find the parts and make them submodules; returns the module, which is changed."""
        return self.fuse_partitions(self.propose_partitions(), prefix)

    def remove_bookend_non_compute_ops(self, partitions: list[Partition]) -> None:
        """Take away from the ends of the parts what `non_compute_ops` lists, up to the first other operation."""
        for partition in partitions:
            members = sorted(partition.nodes)
            idle = {node for node in members if _name(node) in self.non_compute_ops}
            first: set[Node] = set()  # such that nothing before them, inside the part, computes
            for node in members:
                if node in idle and all(used in first for used in node.all_input_nodes if used in partition.nodes):
                    first.add(node)
            last: set[Node] = set()
            for node in reversed(members):
                if node in idle and all(user in last for user in node.users if user in partition.nodes):
                    last.add(node)
            for node in first | last:
                partition.remove_node(node)

    def _supported(self, nodes: list[Node]) -> set[Node]:
        modules = dict(self.graph_module.named_modules())
        rewritten = written_attributes(graph_of(self.graph_module))
        return {
            node
            for node in reversed(nodes)
            if node.op not in ("placeholder", "output")
            and node.target not in BARRIERS
            and not (node.op == "get_attr" and node.target in rewritten)
            and self.operator_support.is_node_supported(modules, node)
        }

    def _is_worth_it(self, partition: Partition) -> bool:
        names = [name for name in map(_name, partition.nodes) if name]
        count = sum(name not in self.non_compute_ops and name not in _NEVER_COMPUTE for name in names)
        return count + sum(name in self.allowed_single_node_partition_ops for name in names) > 1


def _name(node: Node) -> str:
    """The name of the function that a node calls, "" where it calls none."""
    return get_node_target({}, node) if node.op == "call_function" else ""


def _keep_items_with_tuples(nodes: list[Node], partitions: dict[int, Partition], held: set[Node]) -> None:
    """Have what takes the items of a tuple apart stand where the tuple is made: a part gives back no tuple.

    Not what has to stay behind something else besides.
    """
    home = {node: partition for partition in partitions.values() for node in partition.nodes}
    for node in nodes:
        if not all(user.target is operator.getitem for user in node.users):
            continue
        for item in node.users:
            old, new = home.get(item), home.get(node)
            if old is new or item in held or len(item.all_input_nodes) > 1:
                continue
            if old is not None:
                old.remove_node(item)
                del home[item]
            if new is not None:
                new.add_node(item)
                home[item] = new
