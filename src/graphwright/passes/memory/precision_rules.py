"""Which calls run in low precision, which in full, and which in whatever their inputs have."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch
from torch import nn

from graphwright.errors import PassError
from graphwright.ir import Node
from graphwright.ops import key_of, operator_of_target
from graphwright.passes.support.node_names import module_paths
from graphwright.runtime import graph_of

Choice = Literal["low", "full", "follow", "either"]

_LOW_MODULES = (
    nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d,
)  # fmt: skip
_FOLLOWING_MODULES = (
    nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.GELU, nn.SiLU, nn.Hardswish, nn.Hardtanh, nn.Tanh, nn.Sigmoid, nn.Identity,
    nn.Flatten, nn.Unflatten, nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.modules.dropout._DropoutNd,
)  # fmt: skip
_LOW = frozenset({
    "linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "conv1d", "conv2d", "conv3d", "conv_transpose1d",
    "conv_transpose2d", "conv_transpose3d", "scaled_dot_product_attention",
})  # fmt: skip
# What gives of low precision as good a result as its inputs are, and of two precisions the higher one.
_FOLLOWING = frozenset({
    "relu", "relu6", "leaky_relu", "gelu", "silu", "hardswish", "hardtanh", "tanh", "sigmoid", "dropout", "neg", "abs",
    "add", "sub", "mul", "div", "maximum", "minimum", "clone", "contiguous", "view", "reshape", "flatten", "unflatten",
    "permute", "transpose", "t", "mT", "squeeze", "unsqueeze", "expand", "movedim", "narrow", "select", "repeat",
    "max_pool1d", "max_pool2d", "max_pool3d", "getitem", "roll", "flip", "pad",
})  # fmt: skip
# What asks for nothing that precision changes.
_EITHER = frozenset({"size", "dim", "numel", "stride", "is_contiguous"})


class PrecisionRules:
    """The user's rules, and what holds where they say nothing.

    A rule names modules by a pattern of their paths, which holds for all that runs inside of them, or by their class;
    or functions, by one of their spellings. It gives the precision, `low` or torch.float32. Of several rules the last
    one holds. Raises PassError for a rule that concerns nothing in the module, or gives another precision.
    """

    def __init__(self, gm: nn.Module, low: torch.dtype, rules: Mapping[Any, torch.dtype]) -> None:
        self._gm = gm
        if not low.is_floating_point or low.itemsize != 2:
            raise PassError(f"{low} is no low precision", fix="use torch.bfloat16 or torch.float16")
        self._tests: list[tuple[Callable[[Node], bool], Choice]] = []
        nodes = [node for node in graph_of(gm).all_nodes() if node.op.startswith("call")]
        for what, dtype in rules.items():
            if dtype not in (low, torch.float32):
                raise PassError(f"the rule for {what!r} gives {dtype}", fix=f"give {low} or torch.float32")
            test = self._test(what)
            if not any(map(test, nodes)):
                raise PassError(
                    f"nothing in the module is {what!r}", fix="name a path as `named_modules` does, a class, a function"
                )
            self._tests.append((test, "low" if dtype is low else "full"))

    def choose(self, node: Node) -> Choice:
        """What holds for a call."""
        for test, choice in reversed(self._tests):
            if test(node):
                return choice
        if node.op == "call_module":
            kind = type(self._gm.get_submodule(str(node.target)))
            return "low" if kind in _LOW_MODULES else "follow" if issubclass(kind, _FOLLOWING_MODULES) else "full"
        key = key_of(node)
        if key in _LOW:
            return "low"
        return "follow" if key in _FOLLOWING else "either" if key in _EITHER else "full"

    def _test(self, what: Any) -> Callable[[Node], bool]:
        if isinstance(what, str):
            return lambda node: any(fnmatch.fnmatchcase(path, what) for path in module_paths(node))
        if isinstance(what, type):
            return lambda node: node.op == "call_module" and isinstance(self._gm.get_submodule(str(node.target)), what)
        known = operator_of_target("call_function", what) if callable(what) else None
        key = what if known is None else known.key
        return lambda node: node.op != "call_module" and key_of(node) == key
