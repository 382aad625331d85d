"""What passes that move writes have to know: in which context a node runs, and what is certainly a tensor."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from graphwright.ir import Graph, Node, bodies_of
from graphwright.ops import call_of, enter_context, exit_context, is_impure, is_random, is_region, transformed
from graphwright.passes.bodies import module_of
from graphwright.passes.tensor_facts import is_number, rank_of, shape_and_dtype

__all__ = ["contexts_of", "gives_tensor", "plain_graphs", "writes_between"]

_NO_TENSOR = frozenset({"size", "dim", "numel", "stride", "item", "tolist", "dtype", "device", "layout", "getitem"})
_ARITHMETIC = frozenset({"add", "sub", "mul", "div", "pow", "neg", "floor_divide", "remainder", "positive", "abs"})


def contexts_of(graph: Graph) -> dict[Node, int]:
    """A number for each node: of nodes with the same one, none is in a `with` block that another is not in.

    What switches gradients on or off without a block counts as one.
    """
    number = 0
    found = {}
    for node in graph.nodes:
        name = str(getattr(node.target, "__name__", node.target))
        switches = node.target in (enter_context, exit_context) or "grad_enabled" in name or "inference_mode" in name
        number += switches
        found[node] = number
        number += switches
    return found


def plain_graphs(graph: Graph) -> Iterator[Graph]:
    """A graph, and the bodies of its branches and loops; not those of transforms such as `vmap`."""
    yield graph
    for node in graph.nodes if graph.has_bodies else ():
        if is_region(node) and node.target is not transformed:
            for body in bodies_of(node):
                yield from plain_graphs(body)


def writes_between(first: Node, last: Node, gm: nn.Module) -> bool:
    """Tell whether anything between two nodes may write to a value or buffer, or does what is not known."""
    find = module_of(gm)
    node = first.next
    while node is not last:
        if is_impure(node, find(node), in_any_mode=True) and not is_random(node, find(node)):
            return True
        node = node.next
    return False


def gives_tensor(node: object, depth: int = 16) -> bool:
    """Tell whether a node certainly gives one tensor, rather than a number or a list.

    >>> graph = Graph()
    >>> x = graph.placeholder("x")
    >>> gives_tensor(graph.call_method("relu", (x,))), gives_tensor(graph.call_method("size", (x, 0))), gives_tensor(x)
    (True, False, False)
    """
    if not isinstance(node, Node) or not depth or is_number(node):
        return False
    if shape_and_dtype(node) is not None or rank_of(node)[0]:
        return True
    if node.op == "call_module":
        owner = node.graph.owning_module
        module = None if owner is None else owner.get_submodule(str(node.target))
        return isinstance(module, nn.modules.conv._ConvNd | nn.modules.batchnorm._NormBase | _ONE_TENSOR)
    call = call_of(node) if node.op in ("call_function", "call_method") else None
    if call is None or call.key in _NO_TENSOR or "." in call.key:
        return False
    if call.key in _ARITHMETIC:
        return any(gives_tensor(value, depth - 1) for value in call.arguments.values())
    return all(output in (0, None) for output, _ in call.operator.aliases) and call.key not in _SEVERAL


_SEVERAL = frozenset({"unbind", "split", "chunk", "tensor_split", "var_mean", "std_mean", "topk", "sort", "max", "min",
                      "nonzero", "meshgrid", "unique", "concat"})  # fmt: skip
_ONE_TENSOR = (
    nn.Linear | nn.LayerNorm | nn.GroupNorm | nn.Embedding | nn.ReLU | nn.ReLU6 | nn.LeakyReLU | nn.GELU | nn.SiLU
    | nn.Sigmoid | nn.Tanh | nn.modules.dropout._DropoutNd | nn.modules.pooling._AvgPoolNd
)  # fmt: skip
