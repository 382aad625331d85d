"""Layers in a row get channels of like ranges, without a change of what the program computes."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from graphwright.ir import Node
from graphwright.passes import ModuleCalls
from graphwright.quantization.algorithms.equalization import LayerWeights, equalize
from graphwright.quantization.decide import Decision
from graphwright.quantization.layers import with_tensors
from graphwright.quantization.sites import Program, owners_of_tensors

# What gives c * f(x) for c * x, and keeps channels where they are: the last dimension of linear layers, which pooling
# would mix, and that before as many of space as convolutions have.
_BETWEEN = {0: {"relu"}, **{n: {"relu", f"max_pool{n}d", f"avg_pool{n}d"} for n in (1, 2, 3)}}
_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


def equalize_layers(program: Program, decisions: Mapping[Node, Decision]) -> bool:
    """Equalize rows of layers each of which the next alone reads, as far as rules ask for it; tells whether any was."""
    calls = ModuleCalls(program.gm)
    owners = owners_of_tensors(program.gm)
    wanted = {
        node
        for node, decision in decisions.items()
        if decision.config is not None
        and decision.config.equalize
        and isinstance(decision.site.module, _LAYERS)
        and len(calls.nodes(decision.site.module)) == 1
        and owners[id(decision.site.module.weight)] == 1
    }
    spaces = {node: int(kind[-2]) if (kind := decisions[node].site.kind).startswith("conv") else 0 for node in wanted}
    following = {node: _next(node, spaces, program) for node in wanted}
    firsts = [node for node in wanted if node not in following.values() and following[node] is not None]
    for first in sorted(firsts):
        row: list[Node] = []
        node: Node | None = first
        while node is not None:
            row.append(node)
            node = following[node]
        _equalize_row(row, decisions, calls)
    return bool(firsts)


def _next(node: Node, spaces: Mapping[Node, int], program: Program) -> Node | None:
    """The layer that alone reads what a layer gives, by the same channels; `spaces` has the dimensions after them."""
    space = spaces[node]
    while len(node.users) == 1:
        (user,) = node.users
        if user in spaces:
            return user if spaces[user] == space and program.calls.module(user) is not None else None
        call = program.calls.of(user) if user.op.startswith("call") else None
        if call is None or call.key not in _BETWEEN[space] or call.arguments.get("return_indices"):
            return None
        node = user
    return None


def _equalize_row(row: list[Node], decisions: Mapping[Node, Decision], calls: ModuleCalls) -> None:
    modules = [decisions[node].site.module for node in row]
    layers = [_weights(module) for module in modules if module is not None]
    for node, module, made in zip(row, modules, equalize(layers), strict=True):
        assert module is not None
        calls.replace([node], with_tensors(module, made.weight, made.bias), "equalized")


def _weights(module: nn.Module) -> LayerWeights:
    weight, bias = module._parameters["weight"], module._parameters.get("bias")
    assert isinstance(weight, Tensor)
    groups = getattr(module, "groups", 1)
    assert isinstance(groups, int)
    is_transposed = isinstance(module, nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d)
    return LayerWeights(weight.detach(), None if bias is None else bias.detach(), groups, is_transposed)
