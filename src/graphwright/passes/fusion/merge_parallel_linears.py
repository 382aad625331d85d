"""Linear layers that read the same value become one, whose result is split: query, key and value in one product."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from graphwright.ir import Graph, Node
from graphwright.ops import call_of, functional_call, is_untouched, may_share_memory, sources_of
from graphwright.passes.support.bodies import may_write
from graphwright.passes.support.layouts import reads_any_layout, reshape_views
from graphwright.passes.support.submodules import ModuleCalls, graphs_in, install, is_inside_used, take_parameter_out
from graphwright.runtime import GraphModule, read_attribute


@dataclass(frozen=True, slots=True)
class MergeParallelLinears:
    """Merge linear layers with the same input into one linear layer and a split of what it gives.

    `nn.Linear` and `F.linear` of parameters alike. The merged layer is new: its parameters are copies, one below the
    other, and those of the layers that it stands for leave the captured module. Gradients are the same numbers in
    these places; the state dict has other names (`attention.query_key_value.weight`), and an optimizer has to be made
    afterwards. The original model stays as it is. Returns the number of layers that went into others.

    Values that are given back, written to, or read by what may ask for their strides are copied out of the merged
    result; `view` of the others becomes `reshape`.

    at_least: so many layers have to read a value.
    fill_biases: merge layers with and without bias, too, with a bias of zeros, which training would change. Without
        it, this is done where no bias is trained.

    Left alone: tied and shared weights, hooks, subclasses, parametrizations, weights of different dtypes or devices,
    trained beside frozen ones, and layers with a write in place or the border of a `with` block between them.

    >>> from graphwright import symbolic_trace
    >>> class Attention(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.q, self.k, self.v = nn.Linear(8, 8), nn.Linear(8, 2), nn.Linear(8, 2)
    ...     def forward(self, x):
    ...         return self.q(x).sum() + self.k(x).sum() + self.v(x).sum()
    >>> gm = symbolic_trace(Attention())
    >>> MergeParallelLinears().run(gm)
    2
    >>> gm.q_k_v
    Linear(in_features=8, out_features=12, bias=True)
    """

    at_least: int = 2
    fill_biases: bool = False

    def run(self, gm: GraphModule) -> int:
        """Edit a captured module in place; return the number of changes."""
        calls = ModuleCalls(gm)
        uses = _Uses(gm, calls)
        count = 0
        for graph in graphs_in(gm):
            for group in list(self._groups(graph, uses, gm)):
                _merge(group, gm, calls)
                count += len(group) - 1
        return count

    def _groups(self, graph: Graph, uses: _Uses, gm: nn.Module) -> Iterator[list[_Layer]]:
        """The layers of a graph that can be merged, in their order."""
        groups: dict[Any, list[_Layer]] = {}
        waiting: dict[Any, list[_Layer]] = {}
        for node in graph.nodes:
            layer = uses.layer(node)
            if layer is not None:
                waiting.setdefault((layer.input, _kind(layer.weight)), []).append(layer)
            elif waiting and uses.may_write_to(node, {key[0] for key in waiting}):
                _note(groups, waiting)
        _note(groups, waiting)
        for found in groups.values():
            for group in self._by_bias(found):
                if len(group) >= max(self.at_least, 2):
                    yield group

    def _by_bias(self, layers: list[_Layer]) -> list[list[_Layer]]:
        """The layers whose bias is trained, and the others."""
        trained = {layer.node for layer in layers if layer.bias is not None and layer.bias.requires_grad}
        if trained and self.fill_biases:
            trained.update(layer.node for layer in layers if layer.bias is None)
        return [[each for each in layers if (each.node in trained) is chosen] for chosen in (True, False)]


@dataclass(frozen=True, slots=True)
class _Layer:
    """A linear layer in the graph: a call of a module, or of the function with parameters."""

    node: Node
    input: Node
    weight: torch.Tensor
    bias: torch.Tensor | None
    path: str  # of the module that has the weight


def _kind(tensor: torch.Tensor) -> Any:
    return tensor.dtype, tensor.device, tensor.requires_grad, tensor.shape[1]


def _note(groups: dict[Any, list[_Layer]], waiting: dict[Any, list[_Layer]]) -> None:
    """What comes next stands behind a write, and belongs to other groups."""
    for key, layers in waiting.items():
        groups[key, len(groups)] = layers
    waiting.clear()


# ---- which layers


class _Uses:
    """Which linear layers own their parameters alone: nobody else in the captured module can tell they went."""

    def __init__(self, gm: GraphModule, calls: ModuleCalls) -> None:
        self._gm, self._calls = gm, calls
        self._names: dict[int, int] = {}  # how many names a parameter has, by id
        for _, parameter in gm.named_parameters(remove_duplicate=False):
            self._names[id(parameter)] = self._names.get(id(parameter), 0) + 1
        self._reads: dict[str, list[Node]] = {}
        self._called: set[int] = set()
        for graph in graphs_in(gm):
            for node in graph.nodes:
                if node.op == "get_attr":
                    self._reads.setdefault(str(node.target), []).append(node)
                elif node.op == "call_module":
                    self._called.add(id(read_attribute(gm, str(node.target))))

    def layer(self, node: Node) -> _Layer | None:
        """The layer that a node calls, if it can go."""
        if node.op == "call_module":
            layer = self._of_module(node)
        else:
            layer = self._of_function(node) if node.op in ("call_function", "call_method") else None
        if layer is None:
            return None
        parameters = [each for each in (layer.weight, layer.bias) if each is not None]
        if any(type(each) is not nn.Parameter or self._names.get(id(each)) != 1 for each in parameters):
            return None
        if any(each._backward_hooks or each.layout is not torch.strided for each in parameters):
            return None
        if len({(each.dtype, each.device) for each in parameters}) > 1 or layer.weight.dim() != 2:
            return None
        return layer

    def may_write_to(self, node: Node, inputs: Iterable[Node]) -> bool:
        """Tell whether a node may change one of these values or what is outside of the graph, or how it is computed."""
        if not node.op.startswith("call") or not may_write([node], self._gm):
            return False
        call = functional_call(node)
        if call is None or not call.writes or call.operator.acts:
            return True
        written = [call.arguments[name] for name in call.writes]
        return not all(isinstance(each, Node) and self._is_apart(each, inputs) for each in written)

    def _is_apart(self, value: Node, others: Iterable[Node]) -> bool:
        """Tell whether a value is memory that the program has made itself, and no other's."""
        if None in sources_of(value, self._calls.find):
            return False
        return not any(may_share_memory(value, other, self._calls.find) for other in others)

    def _of_module(self, node: Node) -> _Layer | None:
        module: Any = self._calls.module(node)
        if type(module) is not nn.Linear or not is_untouched(module):
            return None
        value = self._calls.input(node)
        if not isinstance(value, Node) or len(self._calls.nodes(module)) != 1 or self._calls.is_read(module):
            return None
        if is_inside_used(self._gm, str(node.target)):
            return None
        return _Layer(node, value, module.weight, module.bias, str(node.target))

    def _of_function(self, node: Node) -> _Layer | None:
        call = call_of(node)
        if call is None or call.key != "linear" or not isinstance(call.arguments["input"], Node):
            return None
        if call.arguments["input"] in (call.arguments["weight"], call.arguments["bias"]):
            return None
        tensors = [call.arguments[name] for name in ("weight", "bias")]
        for tensor in tensors:
            if tensor is not None and not self._is_own(tensor, node):
                return None
        found: list[Any] = [None if each is None else read_attribute(self._gm, str(each.target)) for each in tensors]
        weight, bias = found
        return _Layer(node, call.arguments["input"], weight, bias, str(tensors[0].target).rpartition(".")[0])

    def _is_own(self, tensor: Any, node: Node) -> bool:
        """Tell whether an argument is an attribute that this node alone reads."""
        if not isinstance(tensor, Node) or tensor.op != "get_attr" or list(tensor.users) != [node]:
            return False
        owner = str(tensor.target).rpartition(".")[0]
        called = bool(owner) and id(read_attribute(self._gm, owner)) in self._called
        return (
            not (called or is_inside_used(self._gm, str(tensor.target))) and len(self._reads[str(tensor.target)]) == 1
        )


# ---- the merged layer


def _merge(group: Sequence[_Layer], gm: GraphModule, calls: ModuleCalls) -> None:
    """Put one layer in the place of several."""
    first = group[0]
    sizes = [layer.weight.shape[0] for layer in group]
    path = install(gm, _merged(group, gm.training), _place(gm, [_name(layer) for layer in group]))
    graph = first.node.graph
    with graph.inserting_before(first.node):
        linear = graph.call_module(path, (first.input,))
        split = graph.call_function(torch.split, (linear, sizes), {"dim": -1})
    linear.origin = split.origin = first.node.origin
    for i, layer in enumerate(group):
        node = layer.node
        with graph.inserting_before(node):
            part = graph.call_function(operator.getitem, (split, i))
        part.origin = node.origin
        part.meta.update(_meta_of_part(node, sum(sizes), sizes[i]))
        copied = not reads_any_layout(node)
        with graph.inserting_after(part):
            value = graph.call_method("clone", (part,), {"memory_format": torch.contiguous_format}) if copied else part
        if copied:
            value.origin = node.origin
            value.meta.update(node.meta)
        else:
            reshape_views(node)
        node.replace_all_uses_with(value)
        name = node.name
        _remove(layer, gm, calls)
        value.name = name


def _merged(group: Sequence[_Layer], training: bool) -> nn.Linear:
    weight = torch.cat([layer.weight.detach() for layer in group])
    biases = [layer.bias for layer in group]
    merged = nn.Linear(weight.shape[1], weight.shape[0], bias=any(b is not None for b in biases), device="meta")
    merged.weight = nn.Parameter(weight, requires_grad=group[0].weight.requires_grad)
    if merged.bias is not None:
        parts = [weight.new_zeros(len(layer.weight)) if layer.bias is None else layer.bias for layer in group]
        trained = any(b is not None and b.requires_grad for b in biases)
        merged.bias = nn.Parameter(torch.cat([part.detach() for part in parts]), requires_grad=trained)
    return merged.train(training)


def _name(layer: _Layer) -> str:
    return layer.path or "linear"


def _place(gm: nn.Module, paths: Iterable[str]) -> str:
    """A path for what stands in the place of several modules: beside them, and called as all of them."""
    parents, names = zip(*[(path.rpartition(".")[0], path.rpartition(".")[2]) for path in paths], strict=True)
    name = "_".join(dict.fromkeys(names))
    parent = parents[0] if len(set(parents)) == 1 else ""
    if parent and isinstance(read_attribute(gm, parent), nn.Sequential | nn.ModuleList | nn.ModuleDict):
        parent, name = "", f"{parent.replace('.', '_')}_{name}"
    name = f"linear_{name}" if name[0].isdigit() else name
    return f"{parent}.{name}" if parent else name


def _meta_of_part(node: Node, total: int, own: int) -> dict[str, Any]:
    """What is known of a part: what was known of the layer's own result, but for the strides."""
    meta = {key: value for key, value in node.meta.items() if key != "val"}
    known = meta.get("tensor_meta")
    if known is not None:
        strides = (*[stride // own * total for stride in known.stride[:-1]], 1)
        meta["tensor_meta"] = known._replace(stride=strides, memory_format=None)
    return meta


def _remove(layer: _Layer, gm: GraphModule, calls: ModuleCalls) -> None:
    """Erase a layer that was merged, with its parameters."""
    attributes = [used for used in layer.node.all_input_nodes if used.op == "get_attr" and used is not layer.input]
    calls.erase(layer.node)
    for attribute in attributes:
        if not attribute.users:
            attribute.graph.erase_node(attribute)
            take_parameter_out(gm, str(attribute.target))
