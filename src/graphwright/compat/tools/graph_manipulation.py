"""Small edits and measures of graphs: other targets, sizes in bytes."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from graphwright.errors import PassError
from graphwright.ir import Node, Target
from graphwright.passes import ShapeProp, TensorMetadata
from graphwright.runtime import GraphModule, graph_of

__all__ = [
    "get_size_of_all_nodes",
    "get_size_of_node",
    "get_tensor_meta",
    "replace_target_nodes_with",
    "size_bytes",
]


class size_bytes(NamedTuple):
    """Bytes of a node's value, and of that together with the parameters that the node owns."""

    output_size: int
    total_size: int


def replace_target_nodes_with(
    fx_module: GraphModule, old_op: str, old_target: Target, new_op: str, new_target: Target
) -> None:
    """Give all nodes of one opcode and target another opcode and target; names and arguments stay.

    >>> from graphwright import symbolic_trace
    >>> gm = symbolic_trace(lambda x: torch.relu(x))
    >>> replace_target_nodes_with(gm, "call_function", torch.relu, "call_method", "neg")
    >>> gm(torch.ones(1))
    tensor([-1.])
    """
    for node in graph_of(fx_module).find_nodes(op=old_op, target=old_target):
        node.op, node.target = new_op, new_target


def get_size_of_all_nodes(fx_module: GraphModule, args: list[torch.Tensor] | None = None) -> None:
    """Note on each node its `size_bytes`; with example inputs, find the shapes first. The output node gets none."""
    if args is not None:
        ShapeProp(fx_module).propagate(*args)
    for node in graph_of(fx_module).nodes:
        if node.op == "output":
            break
        node.size_bytes = get_size_of_node(fx_module, node)  # type: ignore[attr-defined]


def get_tensor_meta(node: Node) -> TensorMetadata:
    """What shape propagation found for a node. Raises PassError (a RuntimeError) where it has not run."""
    meta: Any = node.meta.get("tensor_meta")
    if not meta:
        raise PassError(
            f"Node {node} has no tensor metadata associated with it! Check that shape propagation has run.",
            at=node.origin,
        )
    return meta  # type: ignore[no-any-return]


def get_size_of_node(fx_module: GraphModule, node: Node) -> size_bytes:
    """The bytes of a node's value and of the tensors it owns; its shape must be known, see `get_tensor_meta`."""
    owned: list[torch.Tensor] = []
    if node.op == "call_module":
        module = fx_module.get_submodule(str(node.target))
        owned = list(module.parameters())
    meta = get_tensor_meta(node)
    output = meta.shape.numel() * torch.empty((), dtype=meta.dtype).element_size()
    return size_bytes(output, output + sum(tensor.numel() * tensor.element_size() for tensor in owned))
