"""Writes that nobody can see: in place, on a fresh value that only the write itself reads."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from graphwright.ir import Node
from graphwright.ops.effects import DECLARED_IMPURE, is_inplace

__all__ = ["gives_fresh_value", "is_scratch_write"]

# Calls whose result shares no memory with anything else.
_FRESH_FUNCTIONS = frozenset({
    operator.add, operator.sub, operator.mul, operator.truediv, operator.matmul, operator.neg, operator.pow,
    operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne, operator.floordiv, operator.mod,
    torch.abs, torch.exp, torch.sqrt, torch.sin, torch.cos, torch.tanh, torch.sigmoid, torch.relu, torch.sum,
    torch.mean, torch.add, torch.sub, torch.mul, torch.div, torch.neg, torch.matmul, torch.cat, torch.stack,
    torch.clone,
    torch.conv1d, torch.conv2d, torch.conv3d, F.linear, F.conv1d, F.conv2d, F.conv3d, F.batch_norm, F.layer_norm,
})  # fmt: skip
_FRESH_METHODS = frozenset({
    "add", "sub", "mul", "div", "neg", "abs", "exp", "sqrt", "sin", "cos", "tanh", "sigmoid", "relu", "matmul",
    "sum", "mean", "prod", "amax", "amin", "norm", "softmax", "clone", "item", "size", "dim",
})  # fmt: skip
_FRESH_MODULES = (nn.modules.conv._ConvNd, nn.modules.batchnorm._NormBase, nn.Linear, nn.LayerNorm, nn.GroupNorm)
# Calls that write to their first argument and give it back.
_WRITING_FUNCTIONS = frozenset({
    operator.iadd, operator.isub, operator.imul, operator.itruediv,
    F.relu, F.relu6, F.leaky_relu, F.elu, F.selu, F.celu, F.silu, F.mish, F.hardtanh, F.hardswish, F.hardsigmoid,
    torch.relu_, F.relu_,
})  # fmt: skip
_WRITING_MODULES = frozenset({
    nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.SELU, nn.CELU, nn.SiLU, nn.Mish, nn.Hardtanh, nn.Hardswish,
    nn.Hardsigmoid,
})  # fmt: skip
_WRITING_METHODS = frozenset({"relu_", "add_", "sub_", "mul_", "div_", "clamp_", "sigmoid_", "tanh_"})

ModuleOf = Callable[[Node], "nn.Module | None"]


def is_scratch_write(node: Node, module_of: ModuleOf) -> bool:
    """Tell whether a node only writes to a value that was made for it and that nothing else reads.

    `module_of` gives the module that a call_module node calls, where it is known. Nobody can see such a write, once
    the node itself is not read: the ReLU in place behind a convolution whose result is not needed.
    """
    if not _writes_and_returns(node, module_of):
        return False
    written = node.args[0] if node.args else None
    return isinstance(written, Node) and list(written.users) == [node] and gives_fresh_value(written, module_of)


def gives_fresh_value(node: Node, module_of: ModuleOf) -> bool:
    """Tell whether it is known that what a node gives shares no memory with anything else."""
    if node.op == "call_method" and node.target in _FRESH_METHODS:
        return node.kwargs.get("out") is None
    if node.op == "call_function" and _is_among(node.target, _FRESH_FUNCTIONS):
        return node.kwargs.get("out") is None
    if node.op == "call_module":
        module = module_of(node)
        if isinstance(module, _FRESH_MODULES) and _is_plain(module):
            return True
    return is_scratch_write(node, module_of)


def _writes_and_returns(node: Node, module_of: ModuleOf) -> bool:
    if node.op == "call_function":
        return _is_among(node.target, _WRITING_FUNCTIONS) and is_inplace(node) and node.kwargs.get("out") is None
    if node.op == "call_method":
        return node.target in _WRITING_METHODS
    module = module_of(node) if node.op == "call_module" else None
    return type(module) in _WRITING_MODULES and module is not None and _is_plain(module)


def _is_plain(module: nn.Module) -> bool:
    """Tell whether the module is one of torch.nn's own, and nobody hooked into it."""
    hooked = module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    return type(module).__module__.startswith("torch.nn.modules.") and not hooked


def _is_among(target: Any, functions: frozenset[Any]) -> bool:
    return type(target).__hash__ is not None and target in functions and target not in DECLARED_IMPURE
