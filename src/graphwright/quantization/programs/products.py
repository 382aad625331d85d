"""Products with a weight of (in, out), as in GPT-2, made linear layers, whose weight is (out, in)."""

from __future__ import annotations

from typing import Any, NamedTuple

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
    products: dict[str, list[_Product]] = {}
    for node in [node for graph in graphs_of(gm) for node in graph.all_nodes() if node.op.startswith("call")]:
        found = _product(node, calls)
        if found is not None:
            products.setdefault(str(found.weight.target).rpartition(".")[0], []).append(found)
    return sum(_change(gm, owner, found) for owner, found in products.items())


class _Product(NamedTuple):
    """A node that multiplies a value by a parameter, and adds another one."""

    node: Node
    x: Node
    weight: Node
    bias: Node | None

    @property
    def read(self) -> list[Node]:
        """The nodes that read the parameters."""
        return [self.weight] if self.bias is None else [self.weight, self.bias]


def _change(gm: GraphModule, owner: str, products: list[_Product]) -> int:
    """Make a module with a weight, and perhaps a bias, a linear layer, if all that reads them are such products."""
    module, read = gm.get_submodule(owner), products[0].read
    paths = [str(each.target) for each in read]
    if not owner or module._modules or any([str(each.target) for each in other.read] != paths for other in products):
        return 0
    if not _are_all(module, owner, products) or not _are_alone(gm, module, products):
        return 0
    values = [read_attribute(gm, path) for path in paths]
    if not all(type(value) is nn.Parameter and value.dtype is torch.float32 for value in values):
        return 0
    if values[0].dim() != 2 or (len(values) > 1 and values[1].shape != values[0].shape[1:]):
        return 0
    parent, _, name = owner.rpartition(".")
    gm.get_submodule(parent)._modules[name] = _linear(*values).train(module.training)
    for graph in graphs_of(gm):
        forget_module(graph, owner)
    for node, x, *_ in products:
        node.op, node.target, node.args, node.kwargs = "call_module", owner, (x,), {}
    for each in [each for product in products for each in product.read]:
        each.graph.erase_node(each)
    return len(products)


def _product(node: Node, calls: Calls) -> _Product | None:
    """The product that a node is: what it multiplies, by which parameter, and what it adds to that."""
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
    return _Product(node, x, weight, bias)  # type: ignore[arg-type]


def _are_all(module: nn.Module, path: str, products: list[_Product]) -> bool:
    """Tell whether a module has these tensors, each read once for a product, and no others."""
    tensors = {f"{path}.{name}" for table in (module._parameters, module._buffers) for name in table}
    once = all(
        len(each.users) == 1 and each.graph is product.read[0].graph for product in products for each in product.read
    )
    return once and tensors == {str(each.target) for each in products[0].read}


def _are_alone(gm: GraphModule, module: nn.Module, products: list[_Product]) -> bool:
    """Tell whether nothing else reads a module's tensors, or has them, or the module, as well."""
    read = [each for product in products for each in product.read]
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
