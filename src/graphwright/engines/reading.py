"""What nodes of specialized programs call: the names of activations, sums, and the one operation that reads a value."""

from __future__ import annotations

import operator
from typing import Any

import torch
import torch.nn.functional as F

from graphwright.ir import Node


def arguments_of(node: Node, names: tuple[str, ...]) -> dict[str, Any]:
    """The arguments of a call by the names of its parameters; None for those that are left out."""
    given: dict[str, Any] = dict.fromkeys(names)
    given.update(zip(names, node.args, strict=False))
    given.update(node.kwargs)
    return given


def only_user(node: Node) -> Node | None:
    """The one operation that reads a value, once, in its own graph."""
    if len(node.users) != 1:
        return None
    user = next(iter(node.users))
    if user.graph is not node.graph or user.op not in ("call_function", "call_method"):
        return None
    return user if sum(used is node for used in user.args) == 1 and node not in user.kwargs.values() else None


_SUMS = (operator.add, operator.iadd, torch.add, torch.Tensor.add, torch.Tensor.add_)


def is_sum(node: Node) -> bool:
    """Tell whether a node adds two values of the program."""
    if len(node.args) != 2 or node.kwargs or not all(type(arg) is Node for arg in node.args):
        return False
    return node.target in ("add", "add_") if node.op == "call_method" else node.target in _SUMS


def is_written_sum(node: Node) -> bool:
    """Tell whether a sum is written into the first of its values."""
    return node.target in ("add_", operator.iadd, torch.Tensor.add_)


_NAMES: dict[Any, str] = {
    torch.relu: "relu", torch.relu_: "relu", F.relu: "relu", "relu": "relu", "relu_": "relu",
    torch._C._nn.silu: "silu", torch._C._nn.silu_: "silu",
    torch._C._nn.hardswish: "hardswish", torch._C._nn.hardswish_: "hardswish",
    torch._C._nn.hardsigmoid: "hardsigmoid", torch._C._nn.hardsigmoid_: "hardsigmoid",
    torch.sigmoid: "sigmoid", torch.sigmoid_: "sigmoid", F.sigmoid: "sigmoid", "sigmoid": "sigmoid",
    torch.tanh: "tanh", torch.tanh_: "tanh", F.tanh: "tanh", "tanh": "tanh",
}  # fmt: skip


def activation_of(node: Node) -> str | None:
    """The name of the activation that a node calls."""
    if type(node.target).__hash__ is None:
        return None
    if node.target is F.gelu:
        how = arguments_of(node, ("input", "approximate"))["approximate"]
        return {None: "gelu", "none": "gelu", "tanh": "gelu_tanh"}.get(how)
    if node.target is F.relu6:
        return "relu6"
    if node.target is F.hardtanh:
        given = arguments_of(node, ("input", "min_val", "max_val", "inplace"))
        return "relu6" if (given["min_val"], given["max_val"]) == (0.0, 6.0) else None
    name = _NAMES.get(node.target)
    return name if name is not None and len(node.args) == 1 and not node.kwargs else None


def activation_after(value: Node) -> tuple[Node, str] | None:
    """The one operation that reads a value, and its name, where it is an activation."""
    node = only_user(value)
    name = None if node is None else activation_of(node)
    return None if node is None or name is None or node.args[0] is not value else (node, name)
