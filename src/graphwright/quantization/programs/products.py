"""Products with parameters made linear layers, whose weight is (out, in): of (in, out), as in GPT-2, and transposed."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
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
        if found is not None and found.weight.op == "get_attr":
            products.setdefault(str(found.weight.target).rpartition(".")[0], []).append(found)
    return sum(_change(gm, owner, found) for owner, found in products.items())


def use_linear_functions(gm: GraphModule) -> int:
    """Call F.linear where a program multiplies by the transpose of a parameter: `x @ weight.T`; gives how many.

    >>> import graphwright
    >>> class Product(nn.Linear):
    ...     def forward(self, x):
    ...         return x @ self.weight.T + self.bias
    >>> gm = graphwright.trace(nn.Sequential(Product(3, 2)), torch.ones(1, 3))
    >>> use_linear_functions(gm), [str(node.target) for node in gm.graph.nodes if node.op == "get_attr"]
    (1, ['0.weight', '0.bias'])
    """
    calls, count = Calls(gm), 0
    for node in [node for graph in graphs_of(gm) for node in graph.all_nodes() if node.op.startswith("call")]:
        found = _product(node, calls)
        if found is None or not _is_matrix(gm, transposed := _transposed(found.weight, calls)):
            continue
        assert transposed is not None
        bias = () if found.bias is None else (found.bias,)
        if not all(read_attribute(gm, str(each.target)).dim() == 1 for each in bias):
            continue
        node.op, node.target, node.args, node.kwargs = "call_function", F.linear, (found.x, transposed, *bias), {}
        if not found.weight.users:
            found.weight.graph.erase_node(found.weight)
        count += 1
    return count


def _transposed(node: Node, calls: Calls) -> Node | None:
    """What a node swaps the two dimensions of, if it reads a tensor of a module."""
    call = calls.of(node) if node.op.startswith("call") else None
    given = dict(call.arguments) if call is not None else {}
    read = given.pop("input", None)
    if call is None or not isinstance(read, Node) or read.op != "get_attr":
        return None
    if call.key == "transpose":
        return read if {dim % 2 for dim in given.values() if type(dim) is int} == {0, 1} else None
    return read if call.key in ("numpy_T", "mT", "t") and not given else None


def _is_matrix(gm: GraphModule, read: Node | None) -> bool:
    value = read_attribute(gm, str(read.target)) if read is not None else None
    return isinstance(value, nn.Parameter) and value.dim() == 2


class _Product(NamedTuple):
    """A node that multiplies a value by another, and adds one that it reads of a module."""

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
    """The product that a node is: what it multiplies, by what, and what it adds to that."""
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
    if not all(isinstance(each, Node) for each in parts) or any(each.op != "get_attr" for each in parts[2:]):
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
