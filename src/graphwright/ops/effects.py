"""Which operations do more than compute a value.

An operation is impure when leaving it out could change what the rest of the program computes: it writes to an
argument or a buffer, advances the random state, checks something, or is not known.
"""

from __future__ import annotations

import builtins
import math
import operator
from typing import Any

import torch
from torch import nn

from graphwright.ir import Node

__all__ = ["RANDOM_FUNCTIONS", "is_impure", "is_inplace", "is_random"]

_INPLACE_OPERATORS = frozenset({
    operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ifloordiv, operator.imod,
    operator.imatmul, operator.ipow, operator.ilshift, operator.irshift, operator.iand, operator.ixor, operator.ior,
    operator.iconcat, operator.setitem, operator.delitem, setattr, delattr,
})  # fmt: skip

_RANDOM_NAMES = frozenset({
    "rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like", "normal", "bernoulli",
    "multinomial", "poisson", "binomial", "rrelu", "gumbel_softmax", "native_dropout", "manual_seed", "seed",
})  # fmt: skip
# The functions that draw random numbers though no tensor is passed to them.
RANDOM_FUNCTIONS = frozenset(
    getattr(torch, name)
    for name in ("rand", "randn", "randint", "randperm", "normal", "rand_like", "randn_like", "randint_like",
                 "bernoulli", "multinomial", "poisson")
)  # fmt: skip
_DROPOUTS = frozenset({
    "dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout", "feature_dropout",
})  # fmt: skip

_SPEAKING_BUILTINS = frozenset({print, input, open, exec, eval, next})
_PURE_HOMES = ("torch", "_operator", "math", "builtins", "operator")
_DROPOUT_MODULES = (nn.modules.dropout._DropoutNd, nn.RReLU)
_RUNNING_MODULES = (nn.modules.batchnorm._NormBase,)


def is_inplace(node: Node) -> bool:
    """Tell whether a node writes to one of its arguments."""
    if node.kwargs.get("inplace") or node.kwargs.get("out") is not None:
        return True
    if node.op == "call_method":
        return _ends_inplace(node.target) or node.target in ("__setitem__", "copy_", "set_")
    if node.op == "call_function":
        if node.target in _INPLACE_OPERATORS or _ends_inplace(getattr(node.target, "__name__", "")):
            return True
        schema = getattr(node.target, "_schema", None)
        return schema is not None and bool(schema.is_mutable)
    return False


def is_random(node: Node) -> bool:
    """Tell whether a node may advance a random state."""
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    if node.op == "call_function" and name in _DROPOUTS:
        return node.kwargs.get("training", True) is not False
    if node.op == "call_function" and name == "scaled_dot_product_attention":
        return bool(node.kwargs.get("dropout_p", 0.0))
    return node.op in ("call_function", "call_method") and name in _RANDOM_NAMES


def is_impure(node: Node, module: nn.Module | None = None) -> bool:
    """Tell whether a node has an effect beyond its value, so that it stays though nobody reads it.

    `module` is the submodule that a call_module node calls, where it is known. Functions and modules that this
    library does not know count as impure.
    """
    op = node.op
    if op in ("placeholder", "output"):
        return True
    if op == "get_attr":
        return False
    if is_inplace(node) or is_random(node):
        return True
    if op == "call_method":
        return not hasattr(torch.Tensor, node.target) and node.target not in _PURE_METHODS
    if op == "call_function":
        return _is_unknown(node.target)
    return _is_module_impure(module)


_PURE_METHODS = frozenset({"items", "keys", "values", "get", "split", "strip", "join", "format", "lower", "upper"})


def _ends_inplace(name: str) -> bool:
    return name.endswith("_") and not name.endswith("__") and name not in ("and_", "or_", "not_", "is_")


def _is_unknown(function: Any) -> bool:
    if function in _SPEAKING_BUILTINS:
        return True
    if getattr(builtins, getattr(function, "__name__", ""), None) is function:
        return False
    home = getattr(function, "__module__", None)
    if home is None:  # torch's own functions do not say where they live
        return getattr(torch, getattr(function, "__name__", ""), None) is not function and not isinstance(
            getattr(function, "__objclass__", None), type
        )
    return home.partition(".")[0] not in _PURE_HOMES and not hasattr(math, getattr(function, "__name__", ""))


def _is_module_impure(module: nn.Module | None) -> bool:
    if module is None or not type(module).__module__.startswith("torch.nn."):
        return True
    if getattr(module, "inplace", False):
        return True
    if module.training:
        if isinstance(module, _DROPOUT_MODULES) or getattr(module, "dropout", 0):
            return True
        if isinstance(module, _RUNNING_MODULES) and module.track_running_stats:
            return True
    return any(child.training and _is_module_impure(child) for child in module.children())
