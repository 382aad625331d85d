"""Transformations of linear layers that can be undone: merged ones, and those with the bias in the weight."""

from __future__ import annotations

import operator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from graphwright.ir import Node
from graphwright.passes.forms.reversible import ReversibleTransformation
from graphwright.passes.support.bodies import may_write, nodes_between, plain_graphs
from graphwright.passes.support.layouts import reads_any_layout
from graphwright.passes.support.module_slots import Slot, call_with, is_own, like_now, take_out
from graphwright.passes.support.ownership import Ownership
from graphwright.passes.support.submodules import ModuleCalls
from graphwright.runtime import GraphModule, free_path, graph_of

_BEFORE = "_replaced"  # the attribute of new modules that has the old ones
_PART = "part_of_merged"  # on a node that was the call of a layer: which one


class MergeLinears(ReversibleTransformation):
    """Merge linear layers that take the same input into one, whose result is cut into theirs.

    Undoing it gives back the layers, with what the merged one has learned since. Left alone: layers that are called
    or registered more than once, tied weights, hooks, subclasses, layers of which only some have a bias, another dtype
    or are trained, and those with a write in place or the border of a `with` block between them. See
    `MergeParallelLinears` for the pass that does more and does not go back.

    >>> from graphwright import symbolic_trace
    >>> class Two(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.a, self.b = nn.Linear(3, 4), nn.Linear(3, 2)
    ...     def forward(self, x):
    ...         return self.a(x).sum() + self.b(x).sum()
    >>> gm = MergeLinears()(symbolic_trace(Two()))
    >>> print(gm.a_b_merged, list(gm.state_dict()))
    Linear(in_features=3, out_features=6, bias=True) ['a_b_merged.weight', 'a_b_merged.bias']
    >>> list(MergeLinears()(gm, reverse=True).state_dict())
    ['a.weight', 'a.bias', 'b.weight', 'b.bias']
    """

    preserves_computation = True

    def transform(self, graph_module: GraphModule) -> GraphModule:
        """Merge the layers."""
        calls, ownership = ModuleCalls(graph_module), Ownership(graph_module)
        for graph in list(plain_graphs(graph_of(graph_module))):
            effects = ownership.effects(graph)
            groups: dict[object, list[Node]] = {}
            for node in graph.nodes:
                layer = calls.module(node)
                if type(layer) is nn.Linear and is_own(layer, graph_module, calls):
                    kind = [(p.dtype, p.device, p.requires_grad) for p in layer.parameters()]
                    groups.setdefault((calls.input(node), effects.region_of(node), str(kind)), []).append(node)
            for nodes in groups.values():
                if len(nodes) > 1 and not may_write(nodes_between(nodes[0], nodes[-1]), graph_module):
                    self._merge(nodes, graph_module)
        return graph_module

    def _merge(self, nodes: list[Node], gm: GraphModule) -> None:
        graph = nodes[0].graph
        paths = [str(node.target) for node in nodes]
        owner, _, name = paths[0].rpartition(".")
        while owner and isinstance(gm.get_submodule(owner), nn.Sequential | nn.ModuleList):
            owner, _, inner = owner.rpartition(".")
            name = f"{inner}_{name}"
        name = "_".join([name, *[path.rpartition(".")[2] for path in paths[1:]], "merged"])
        layers = [gm.get_submodule(path) for path in paths]
        path = free_path(gm, f"{owner}.{name}" if owner else name)
        merged = _merged(layers)
        setattr(gm.get_submodule(owner), path.rpartition(".")[2], merged)
        merged.__dict__[_BEFORE] = _Merged(tuple([take_out(gm, each) for each in paths]))
        with graph.inserting_before(nodes[0]):
            call = graph.call_module(path, tuple(nodes[0].all_input_nodes))
        self.mark_as_transformed(call)
        call.origin = nodes[0].origin
        start = 0
        for i, (node, layer) in enumerate(zip(nodes, layers, strict=True)):
            any_layout = reads_any_layout(node) and not any(user.target == "view" for user in node.users)
            cut = (call, (Ellipsis, slice(start, start + _rows(layer))))
            start += _rows(layer)
            node.meta[_PART] = i, tuple(node.kwargs)
            node.kwargs = {}
            if any_layout:
                node.op, node.target, node.args = "call_function", operator.getitem, cut
            else:
                with graph.inserting_before(node):
                    part = graph.call_function(operator.getitem, cut)
                node.op, node.target, node.args = "call_method", "contiguous", (part,)

    def reverse(self, graph_module: GraphModule) -> GraphModule:
        """Give back the layers."""
        for call in reversed(self.get_transformed_nodes(graph_module)):  # the last merge first: their places are noted
            merged = graph_module.get_submodule(str(call.target))
            record = merged.__dict__[_BEFORE]
            take_out(graph_module, str(call.target))
            for slot, layer in zip(reversed(record.slots), reversed(_layers_now(merged, record)), strict=True):
                slot.put_back(graph_module, layer)
            inner = [user for part in call.users if _PART not in part.meta for user in part.users]
            for node in [*call.users, *inner]:
                if _PART in node.meta:
                    number, names = node.meta.pop(_PART)
                    node.op, node.target = "call_module", record.slots[number].path
                    call_with(node, call.args[0], names)
            for part in list(call.users):
                part.graph.erase_node(part)
            call.graph.erase_node(call)
        return graph_module


@dataclass(frozen=True, slots=True)
class _Merged:
    """The layers that were merged, in order, and where they were."""

    slots: tuple[Slot, ...]


def _rows(layer: nn.Module) -> int:
    assert isinstance(layer, nn.Linear)
    return layer.out_features


def _merged(layers: list[nn.Module]) -> nn.Linear:
    """One layer that gives what these give, side by side."""
    first = layers[0]
    assert isinstance(first, nn.Linear)
    rows = sum(_rows(layer) for layer in layers)
    merged = nn.Linear(first.in_features, rows, bias=first.bias is not None, device="meta", dtype=first.weight.dtype)
    for name, parameter in list(first.named_parameters()):
        value = torch.cat([getattr(layer, name).detach() for layer in layers])
        setattr(merged, name, nn.Parameter(value, requires_grad=parameter.requires_grad))
    return merged.train(first.training)


def _layers_now(merged: nn.Module, record: _Merged) -> list[nn.Module]:
    """The layers of a merged one: themselves where nothing was learned since, else new ones."""
    assert isinstance(merged, nn.Linear)
    layers = [slot.module for slot in record.slots]
    if _is_same(merged, _merged(layers)):
        return [like_now(layer, merged) for layer in layers]
    made = []
    sizes = [_rows(layer) for layer in layers]
    weights = merged.weight.detach().split(sizes)
    biases = merged.bias.detach().split(sizes) if merged.bias is not None else [None] * len(sizes)
    for weight, bias in zip(weights, biases, strict=True):
        made.append(_linear(weight.clone(), None if bias is None else bias.clone(), merged))
    return list(made)


def _linear(weight: Tensor, bias: Tensor | None, like: nn.Linear) -> nn.Linear:
    rows, columns = weight.shape
    layer = nn.Linear(columns, rows, bias=bias is not None, device="meta")
    layer.weight = nn.Parameter(weight, requires_grad=like.weight.requires_grad)
    if bias is not None:
        layer.bias = nn.Parameter(bias, requires_grad=like.weight.requires_grad)
    return layer.train(like.training)


def _is_same(now: nn.Linear, before: nn.Linear) -> bool:
    """Tell whether a layer has the weights that it had; where it was moved or cast since, those."""
    pairs = zip(now.parameters(), before.parameters(), strict=True)
    return all(torch.equal(mine, its.to(mine.device, mine.dtype)) for mine, its in pairs)


# ---- the bias as a column of the weight


class FuseBiasInLinear(ReversibleTransformation):
    """Have linear layers take their bias as a further column of the weight, for an input with a 1 at the end.

    Undoing it gives back weight and bias, with what was learned since. Left alone: tied weights, hooks, subclasses,
    and layers whose parameters are read elsewhere, or of which only one is trained.

    >>> from graphwright import symbolic_trace
    >>> gm = FuseBiasInLinear()(symbolic_trace(nn.Sequential(nn.Linear(3, 4))))
    >>> gm.get_submodule("0")
    Linear(in_features=4, out_features=4, bias=False)
    >>> FuseBiasInLinear()(gm, reverse=True).get_submodule("0")
    Linear(in_features=3, out_features=4, bias=True)
    """

    preserves_computation = True

    def transform(self, graph_module: GraphModule) -> GraphModule:
        """Move the biases into the weights."""
        calls = ModuleCalls(graph_module)
        layers = {
            id(layer): layer
            for graph in plain_graphs(graph_of(graph_module))
            for node in graph.nodes
            if type(layer := calls.module(node)) is nn.Linear and layer.bias is not None and layer.in_features
        }
        for layer in layers.values():
            nodes = list(calls.nodes(layer))
            alike = layer.weight.requires_grad is layer.bias.requires_grad
            whole = all(calls.module(node) is layer for node in nodes)  # called with the input alone
            if not (alike and whole and is_own(layer, graph_module, calls, len(nodes))):
                continue
            slot = Slot(str(nodes[0].target), layer, ())
            wide = _with_bias_inside(layer)
            wide.__dict__[_BEFORE] = slot
            owner, _, name = slot.path.rpartition(".")
            graph_module.get_submodule(owner)._modules[name] = wide
            for node in nodes:
                call_with(node, _with_ones(node, calls.input(node)), node.kwargs)
                self.mark_as_transformed(node)
        return graph_module

    def reverse(self, graph_module: GraphModule) -> GraphModule:
        """Take them out again."""
        for node in self.get_transformed_nodes(graph_module):
            wide = graph_module.get_submodule(str(node.target))
            if _BEFORE in wide.__dict__:
                slot = wide.__dict__[_BEFORE]
                owner, _, name = slot.path.rpartition(".")
                graph_module.get_submodule(owner)._modules[name] = _without_bias_inside(wide, slot.module)
            (widened,) = node.all_input_nodes
            x, ones = widened.args[0]
            call_with(node, x, node.kwargs)
            for made in (widened, ones, ones.args[0]):
                if not made.users:
                    made.graph.erase_node(made)
            self.mark_as_restored(node)
        return graph_module


def _with_ones(node: Node, x: Node) -> Node:
    """The input of a layer with a 1 at the end of each row."""
    graph = node.graph
    with graph.inserting_before(node):
        column = graph.call_function(operator.getitem, (x, (Ellipsis, slice(0, 1))))
        ones = graph.call_function(torch.ones_like, (column,))
        return graph.call_function(torch.cat, ((x, ones), -1))


def _with_bias_inside(layer: nn.Linear) -> nn.Linear:
    weight = torch.cat([layer.weight.detach(), layer.bias.detach()[:, None]], 1)
    return _linear(weight, None, layer)


def _without_bias_inside(wide: nn.Module, layer: nn.Module) -> nn.Module:
    assert isinstance(wide, nn.Linear) and isinstance(layer, nn.Linear)
    if _is_same(wide, _with_bias_inside(layer)):
        return like_now(layer, wide)
    weight = wide.weight.detach()
    return _linear(weight[:, :-1].clone(), weight[:, -1].clone(), wide)
