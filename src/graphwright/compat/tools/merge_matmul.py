"""Matrix products by the same right side as one product of the rows of all left sides."""

from __future__ import annotations

import itertools
import operator
from typing import Any

import torch
from torch import Tensor, nn

from graphwright.capture import symbolic_trace
from graphwright.ir import Graph, Node
from graphwright.runtime import GraphModule

__all__ = ["are_nodes_independent", "may_depend_on", "merge_matmul", "split_result_tensors"]


def split_result_tensors(result: Tensor, inputs: list[Tensor]) -> tuple[Tensor, ...]:
    """Cut a tensor along dimension 0 into pieces as long as the inputs are.

    >>> [len(piece) for piece in split_result_tensors(torch.ones(5, 2), [torch.ones(2, 3), torch.ones(3, 3)])]
    [2, 3]
    """
    return torch.split(result, [value.shape[0] for value in inputs])


def may_depend_on(a: Node, b: Node, search_depth: int = 6) -> bool:
    """Tell whether `a` may need the value of `b`; paths longer than `search_depth` count as if they led there."""
    if a is b:
        return True
    if not a.all_input_nodes:
        return False
    if search_depth == 0:
        return True
    return any(may_depend_on(read, b, search_depth - 1) for read in a.all_input_nodes)


def are_nodes_independent(nodes: list[Node]) -> bool:
    """Tell whether surely none of the nodes needs the value of another."""
    pairs = itertools.combinations(nodes, 2)
    return not any(may_depend_on(one, other) or may_depend_on(other, one) for one, other in pairs)


def merge_matmul(in_mod: nn.Module) -> GraphModule:
    """Compute independent `torch.matmul(x_i, w)` by one `w` as one product of all `x_i` below each other.

    The left sides must be matrices: a product of rows is what stacks.

    >>> class Two(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.w = nn.Parameter(torch.ones(2, 3))
    ...     def forward(self, x, y):
    ...         return torch.matmul(x, self.w), torch.matmul(y, self.w)
    >>> len(merge_matmul(Two()).graph.find_nodes(op="call_function", target=torch.matmul))
    1
    """
    module = symbolic_trace(in_mod)
    graph = module.graph
    groups: dict[Any, list[Node]] = {}
    for node in graph.find_nodes(op="call_function", target=torch.matmul):
        if len(node.args) == 2 and not node.kwargs and all(isinstance(arg, Node) for arg in node.args):
            right = node.args[1]
            groups.setdefault(right.target if right.op == "get_attr" else right, []).append(node)
    for products in groups.values():
        if len(products) > 1 and are_nodes_independent(products):
            _merge(graph, products)
    graph.lint()
    return module


def _merge(graph: Graph, products: list[Node]) -> None:
    """Replace the products by one, placed once all left sides are there, and move their readers behind it."""
    lefts = [product.args[0] for product in products]
    right = products[0].args[1]
    with graph.inserting_before(products[0]):
        stacked = graph.call_function(torch.cat, (lefts,))
        merged = graph.call_function(torch.matmul, (stacked, right))
        pieces = graph.call_function(split_result_tensors, (merged, lefts))
        items = [graph.call_function(operator.getitem, (pieces, index)) for index in range(len(products))]
    for product, item in zip(products, items, strict=True):
        product.replace_all_uses_with(item)
        graph.erase_node(product)
    _sort(graph)


def _sort(graph: Graph) -> None:
    """Move nodes so that each comes after what it reads, and otherwise stay in order."""
    done: set[Node] = set()
    for anchor in list(graph.nodes):
        waiting = [] if anchor in done else [anchor]
        while waiting:
            node = waiting[-1]
            missing = [read for read in node.all_input_nodes if read not in done]
            if missing:
                waiting += missing
                continue
            waiting.pop()
            if node not in done and node is not anchor:
                anchor.prepend(node)
            done.add(node)
