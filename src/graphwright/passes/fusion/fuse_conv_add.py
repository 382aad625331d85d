"""Join additions, with their ReLUs, to the convolutions before them: torch.ao's modules for residual blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from graphwright.ir import Node
from graphwright.ops import functional_call, is_untouched
from graphwright.passes.support.bodies import may_write, nodes_between
from graphwright.passes.support.ownership import Ownership
from graphwright.passes.support.submodules import ModuleCalls, graphs_in
from graphwright.passes.support.tensor_facts import is_number
from graphwright.runtime import GraphModule


def fuse_conv_add(gm: GraphModule, calls: ModuleCalls, fused: Any) -> int:
    """Put `fused.ConvAdd2d` and `fused.ConvAddReLU2d` in the place of convolutions whose value is added to another.

    The first operand is preferred, where both are convolutions. Returns the number of operations that went into others.
    Left alone is what `FuseActivations` leaves.
    """
    ownership = Ownership(gm)
    groups: dict[Any, list[_Sum]] = {}  # the same convolution may be used in many places
    for graph in graphs_in(gm):
        for node in reversed(list(graph.nodes)):
            found = _sum(node, calls, ownership, gm)
            if found is not None:
                groups.setdefault((id(calls.find(found.conv)), id(found.module)), []).append(found)
    for group in groups.values():
        conv: Any = calls.find(group[0].conv)
        relu = group[0].module
        module = fused.ConvAdd2d(conv, torch.add) if relu is None else fused.ConvAddReLU2d(conv, torch.add, relu)
        module.training = conv.training  # and not `train`, which would reach the modules inside
        calls.replace([each.conv for each in group], module, "fused")
        for each in group:
            _join(each, calls)
    return sum(1 + (each.relu is not None) for group in groups.values() for each in group)


@dataclass(frozen=True, slots=True)
class _Sum:
    """A convolution, the addition of its value to another one, and the ReLU behind it, where there is one."""

    conv: Node
    addition: Node
    relu: Node | None
    module: nn.Module | None  # the ReLU


def _sum(addition: Node, calls: ModuleCalls, ownership: Ownership, gm: GraphModule) -> _Sum | None:
    """The sum that a node computes, if a fused module can stand for it."""
    call = functional_call(addition)
    if call is None or call.key != "add" or call.arguments.get("alpha", 1) != 1 or call.writes not in ((), ("input",)):
        return None
    pair = call.arguments["input"], call.arguments["other"]
    for conv, other in (pair, pair[::-1]):
        if not _may_join(conv, calls) or not isinstance(other, Node) or other is conv or is_number(other):
            continue
        late = [user for user in conv.users if user is not addition]  # these read what was written
        if late and (not call.writes or min(late) < addition):
            continue
        if call.writes and conv is not pair[0]:
            continue
        readers = {*addition.users, *late}
        relu = next(iter(readers)) if len(readers) == 1 else None
        module = calls.module(relu)
        if relu is None or type(module) is not nn.ReLU or not is_untouched(module):
            relu = module = None
        last = relu or addition
        between = nodes_between(conv, last, (addition,))
        if ownership.effects(addition.graph).are_together(conv, addition, last) and not may_write(between, gm):
            return _Sum(conv, addition, relu, module)
    return None


def _may_join(node: Any, calls: ModuleCalls) -> bool:
    module = calls.module(node)
    return type(module) is nn.Conv2d and is_untouched(module)


def _join(found: _Sum, calls: ModuleCalls) -> None:
    """Have the call of the convolution compute the whole sum, where that was computed."""
    conv, last = found.conv, found.relu or found.addition
    (other,) = [value for value in found.addition.all_input_nodes if value is not conv]
    found.addition.prepend(conv)
    conv.args = (*conv.args, other)
    conv.meta.update({key: last.meta[key] for key in ("tensor_meta", "val") if key in last.meta})
    last.replace_all_uses_with(conv)
    for node in (last, found.addition) if last is not found.addition else (last,):
        calls.erase(node)
