"""Join a ReLU to the convolution or linear layer before it, across a residual addition too.

The activation then writes into the layer's fresh output in place of a tensor of its own: less memory traffic, and one
call where there were two or three.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from graphwright.ir import Node
from graphwright.ops import call_of, is_inplace, is_untouched
from graphwright.passes.support.ownership import Ownership
from graphwright.passes.support.submodules import LINEAR_LIKE, LinearLike, ModuleCalls
from graphwright.runtime import GraphModule, graph_of


class ConvReLU(nn.Module):
    """A convolution or linear layer, then ReLU.

    >>> ConvReLU(nn.Linear(3, 2))(torch.zeros(1, 3)).min() >= 0
    tensor(True)
    """

    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        self.conv = conv
        self.training = conv.training

    def forward(self, x: Tensor) -> Tensor:
        """Run the layer and clamp its output, which is nobody else's yet, in place."""
        out: Tensor = self.conv(x)
        return out.relu_()


class ConvAddReLU(nn.Module):
    """A convolution or linear layer, plus another value, then ReLU: the end of a residual block.

    `in_place` adds into the layer's output as `out += other` does: the sum keeps the layer's dtype and shape.

    >>> ConvAddReLU(nn.Linear(3, 2))(torch.zeros(1, 3), torch.full((1, 2), -9.0))
    tensor([[0., 0.]], grad_fn=<ReluBackward0>)
    """

    def __init__(self, conv: nn.Module, in_place: bool = False) -> None:
        super().__init__()
        self.conv = conv
        self.in_place = in_place
        self.training = conv.training

    def forward(self, x: Tensor, other: Tensor) -> Tensor:
        """Run the layer on `x`, add `other`, and clamp the sum."""
        out: Tensor = self.conv(x)
        total = out.add_(other) if self.in_place else out + other
        return total.relu_()


@dataclass(frozen=True, slots=True)
class FuseConvReLU:
    """Join every ReLU to the convolution or linear layer before it: `ConvReLU`, `ConvAddReLU`.

    Knows `nn.ReLU`, `torch.relu`, `F.relu`, `Tensor.relu` and their in-place forms. Returns the number of ReLUs
    joined. Left alone: a layer whose value has other readers too, subclasses, hooks; a ReLU in another `with` block;
    and a residual addition with anything between it, the last layer that feeds it and the ReLU, which might write to
    what is added.

    >>> from graphwright import symbolic_trace
    >>> gm = symbolic_trace(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
    >>> FuseConvReLU().run(gm), type(gm.get_submodule("0")).__name__
    (1, 'ConvReLU')
    """

    def run(self, gm: GraphModule) -> int:
        """Edit a captured module in place; return the number of changes."""
        calls, ownership = ModuleCalls(gm), Ownership(gm)
        matches = [match for node in graph_of(gm).all_nodes() if (match := _match(node, calls, ownership))]
        groups: dict[tuple[int, _Form], list[_Match]] = {}
        for match in matches:
            groups.setdefault((id(match.layer), match.form), []).append(match)
        for group in groups.values():
            _join(group, calls)
        return len(matches)

    def __call__(self, gm: GraphModule) -> int:
        """Do the same as `run`."""
        return self.run(gm)


def fuse_conv_relu(gm: GraphModule) -> int:
    """Join ReLUs to the layers before them; see `FuseConvReLU`.

    >>> from graphwright import symbolic_trace
    >>> fuse_conv_relu(symbolic_trace(nn.Sequential(nn.Conv2d(1, 1, 1), nn.Sigmoid())))
    0
    """
    return FuseConvReLU().run(gm)


# ---- finding

_Form = Literal["relu", "add, relu", "add into, relu"]
_ADDITIONS = (operator.add, operator.iadd, torch.add)
_IN_PLACE = (operator.iadd, "add_")


@dataclass(frozen=True, slots=True)
class _Match:
    """A layer, the ReLU that ends what it starts, and the addition between the two, where there is one."""

    form: _Form
    layer: nn.Module
    layer_node: Node
    relu: Node
    addition: Node | None = None


def _match(relu: Node, calls: ModuleCalls, ownership: Ownership) -> _Match | None:
    """Return the match that ends in this node: a ReLU that the layer before it can take in."""
    read = _read(relu, calls)
    if read is None or not ownership.effects(relu.graph).are_together(read, relu):
        return None
    layer = _layer(read, calls)
    if layer is None:
        return _match_addition(relu, read, calls)
    # In place, at once: whoever reads the layer's value later reads what the ReLU made of it.
    if list(read.users) == [relu] or (_is_in_place(relu, calls) and read.next is relu):
        return _Match("relu", layer, read, relu)
    return _match_addition(relu, read, calls)


def _match_addition(relu: Node, read: Node, calls: ModuleCalls) -> _Match | None:
    """Return the match of a layer, an addition and a ReLU that come directly after one another."""
    addition, layer_node = relu.prev, relu.prev.prev
    layer = _layer(layer_node, calls)
    if layer is None or not _is_addition(addition) or layer_node not in addition.args:
        return None
    first, other = addition.args[0], _other_operand(addition, layer_node)
    if not isinstance(other, Node) or other is layer_node:
        return None
    # Captures differ in what later nodes read after `out += x`: what the operator returned, or `out` itself.
    writes = addition.target in _IN_PLACE
    sums = (addition, first) if writes else (addition,)
    if read not in sums or any(set(node.users) - {addition, relu} for node in (*sums, layer_node)):
        return None
    if writes and first is layer_node:
        return _Match("add into, relu", layer, layer_node, relu, addition)
    if writes:
        # `other += layer`: out of place is the same only where `other` is fresh, and nothing is promoted.
        known = _layer(other, calls)
        if known is None or known.weight.dtype != layer.weight.dtype:
            return None
    return _Match("add, relu", layer, layer_node, relu, addition)


def _read(relu: Node, calls: ModuleCalls) -> Node | None:
    """What a node reads that is a ReLU of one value, in any spelling; None for others."""
    if relu.op == "call_module":
        module = calls.module(relu)
        value = calls.input(relu) if type(module) is nn.ReLU and is_untouched(module) else None
    else:
        call = call_of(relu)
        is_relu = call is not None and call.key == "relu" and len(relu.all_input_nodes) == 1
        value = call.arguments["input"] if call is not None and is_relu else None
    return value if isinstance(value, Node) else None


def _is_in_place(relu: Node, calls: ModuleCalls) -> bool:
    module = calls.module(relu)
    return is_inplace(relu) or (isinstance(module, nn.ReLU) and module.inplace)


def _layer(node: Any, calls: ModuleCalls) -> LinearLike | None:
    """Return the layer that a node calls, where it is one that can take in what follows."""
    module = calls.module(node)
    if not isinstance(module, LINEAR_LIKE) or type(module) not in LINEAR_LIKE:
        return None
    return module if is_untouched(module) else None


def _is_addition(node: Node) -> bool:
    if len(node.args) != 2 or node.kwargs:
        return False
    if node.op == "call_method":
        return node.target in ("add", "add_")
    return node.op == "call_function" and node.target in _ADDITIONS


def _other_operand(addition: Node, layer_node: Node) -> object:
    one, two = addition.args
    return two if one is layer_node else one


# ---- editing


def _join(group: list[_Match], calls: ModuleCalls) -> None:
    """Join one layer with the ReLUs that follow it in the same form."""
    form, layer = group[0].form, group[0].layer
    new = ConvReLU(layer) if form == "relu" else ConvAddReLU(layer, in_place=form == "add into, relu")
    calls.replace([match.layer_node for match in group], new, "relu")
    for match in group:
        match.relu.replace_all_uses_with(match.layer_node)
        calls.erase(match.relu)
        if match.addition is not None:
            other = _other_operand(match.addition, match.layer_node)  # by now perhaps a layer that took in its ReLU
            calls.erase(match.addition)
            match.layer_node.args = (*match.layer_node.args, other)
