"""Products with a weight of (in, out), as in GPT-2, made linear layers, whose weight is (out, in)."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from graphwright.ir import Node
from graphwright.rewrite import Calls
from graphwright.runtime import GraphModule, forget_module, graphs_of, read_attribute


def use_linear_layers(gm: GraphModule) -> int:
    """Call nn.Linear where a program multiplies by parameters of a module that has no others; gives how many.

    It takes the place of that module, under its name: `addmm(bias, x, weight)`, `x @ weight` and `mm(x, weight)`. The
    weight of the module is copied. Left alone: parameters that something else reads, or has as well.

    >>> import graphwright
    >>> class Product(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.weight, self.bias = nn.Parameter(torch.ones(3, 2)), nn.Parameter(torch.zeros(2))
    ...     def forward(self, x):
    ...         return torch.addmm(self.bias, x, self.weight)
    >>> gm = graphwright.trace(nn.Sequential(Product()), torch.ones(1, 3))
    >>> use_linear_layers(gm), gm.get_submodule("0")
    (1, Linear(in_features=3, out_features=2, bias=True))
    """
    calls = Calls(gm)
    nodes = [node for graph in graphs_of(gm) for node in graph.all_nodes() if node.op.startswith("call")]
    return sum(_change(node, gm, calls) for node in nodes)


def _change(node: Node, gm: GraphModule, calls: Calls) -> bool:
    found = _product(node, calls)
    if found is None:
        return False
    x, weight, bias = found
    owner = str(weight.target).rpartition(".")[0]
    read = [weight] if bias is None else [weight, bias]
    module = gm.get_submodule(owner)
    if not owner or module._modules or not _are_all(module, owner, read) or not _are_alone(gm, module, read):
        return False
    values = [read_attribute(gm, str(each.target)) for each in read]
    if not all(type(value) is nn.Parameter and value.dtype is torch.float32 for value in values):
        return False
    if values[0].dim() != 2 or (bias is not None and values[1].shape != values[0].shape[1:]):
        return False
    parent, _, name = owner.rpartition(".")
    gm.get_submodule(parent)._modules[name] = _linear(*values).train(module.training)
    for graph in graphs_of(gm):
        forget_module(graph, owner)
    node.op, node.target, node.args, node.kwargs = "call_module", owner, (x,), {}
    for each in read:
        each.graph.erase_node(each)
    return True


def _product(node: Node, calls: Calls) -> tuple[Node, Node, Node | None] | None:
    """What a node multiplies, by which parameter, and what it adds to that."""
    call = calls.of(node)
    if call is None or call.key not in ("addmm", "mm", "matmul"):
        return None
    given = call.arguments
    if call.key == "addmm":
        if given.get("alpha", 1) not in (None, 1) or given.get("beta", 1) not in (None, 1):
            return None
        x, weight, bias = given.get("mat1"), given.get("mat2"), given.get("input")
    else:
        x, weight, bias = given.get("input"), given.get("other", given.get("mat2")), None
    parts: tuple[Any, ...] = (x, weight) if call.key != "addmm" else (x, weight, bias)
    if not all(isinstance(each, Node) for each in parts) or any(each.op != "get_attr" for each in parts[1:]):
        return None
    return x, weight, bias  # type: ignore[return-value]


def _are_all(module: nn.Module, path: str, read: list[Node]) -> bool:
    """Tell whether a module has these tensors, each read once, and no others."""
    tensors = {f"{path}.{name}" for table in (module._parameters, module._buffers) for name in table}
    once = all(len(each.users) == 1 for each in read) and len({each.graph for each in read}) == 1
    return once and tensors == {str(each.target) for each in read}


def _are_alone(gm: GraphModule, module: nn.Module, read: list[Node]) -> bool:
    """Tell whether nothing else reads a module's tensors, or has them, or the module, as well."""
    paths = {str(each.target) for each in read}
    readers = [each for graph in graphs_of(gm) for each in graph.all_nodes() if each.target in paths]
    places = [path for path, each in gm.named_modules(remove_duplicate=False) if each is module]
    own = {id(parameter) for parameter in module.parameters()}
    held = [each for _, each in gm.named_parameters(remove_duplicate=False) if id(each) in own]
    return len(readers) == len(read) and len(places) == 1 and len(held) == len(own)


def _linear(weight: nn.Parameter, bias: nn.Parameter | None = None) -> nn.Linear:
    with torch.device("meta"):
        made = nn.Linear(weight.shape[0], weight.shape[1], bias=bias is not None)
    made.weight = nn.Parameter(weight.detach().t().contiguous(), requires_grad=weight.requires_grad)
    if bias is not None:
        made.bias = bias
    return made
