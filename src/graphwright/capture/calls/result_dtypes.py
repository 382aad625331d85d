"""The dtypes of what operations give: what they follow from."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from graphwright.capture.calls.facts import dtype_of
from graphwright.capture.proxies.calls_as_written import LOOKS_AT_SIZES, name_of_target
from graphwright.capture.proxies.growing import is_growing
from graphwright.ir import Node
from graphwright.ops import is_region, unpack
from graphwright.values import leaves

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import TypedCapture

_DEFAULT = torch.get_default_dtype

# Whose result has the dtype that they are called for, or is of bool or of places, whatever they get.
GIVES_DTYPE = frozenset({
    "float", "double", "half", "bfloat16", "int", "long", "short", "byte", "char", "bool", "eq", "ne", "lt", "le", "gt",
    "ge", "isnan", "isinf", "isfinite", "isclose", "isin", "logical_and", "logical_or", "logical_xor", "logical_not",
    "greater", "greater_equal", "less", "less_equal", "not_equal", "argmax", "argmin", "argsort", "nonzero", "one_hot",
    "count_nonzero",
})  # fmt: skip
_WITH_PLACES = frozenset({"topk", "sort", "kthvalue", "cummax", "cummin", "mode"})  # give values, and where they were
# Of what they give no float of another dtype can come: truths, places, and numbers that are as wide as Python's.
GIVES_NO_FLOATS = GIVES_DTYPE - {"float", "double", "half", "bfloat16"} | {
    "all", "any", "contains", "dim", "finfo", "is_", "is_not", "len", "not_", "numel", "requires_grad", "shape", "size",
    "training",
}  # fmt: skip
# Whose result has the dtype of their operands under `torch.autocast`, too; that of all others may be another there.
LIKE_OPERANDS = frozenset({
    "Buffer", "Parameter",
    "abs", "add", "and_", "append", "arange", "chunk", "clone", "cond", "contiguous", "detach", "dict", "dropout",
    "embedding", "empty", "empty_like", "expand", "expand_as", "extend", "flatten", "floordiv", "for_loop",
    "full", "full_like", "gelu", "getattr", "getitem", "iadd", "identity", "imul", "insert", "invert",
    "isub", "itruediv", "list", "masked_fill", "mod", "mul", "neg", "new_empty", "new_full",
    "new_ones", "new_zeros", "ones", "ones_like", "or_", "permute", "pop", "pow", "relu", "reshape", "setitem",
    "sigmoid", "silu", "split", "squeeze", "sub", "t", "tanh", "to", "transpose", "truediv", "tuple", "type_as",
    "unbind", "unflatten", "unpack", "unsqueeze", "view", "where", "while_loop", "xor", "zeros", "zeros_like",
})  # fmt: skip
# Whose results have the dtype to which those of their operands are promoted, or one that they are called for: floats of
# no other dtype come of it. Functions, and modules of torch by the names of their classes.
_PROMOTES = LIKE_OPERANDS - {"append", "extend", "insert", "pop", "dict"} | {
    "addmm", "amax", "amin", "baddbmm", "bmm", "cat", "ceil", "clamp", "clamp_max", "clamp_min", "concat", "conv1d",
    "conv2d", "conv3d", "copysign", "cos", "cumsum", "diff", "div", "einsum", "elu", "erf", "exp", "expm1", "flip",
    "floor", "fmod", "gather", "glu", "group_norm", "hardswish", "index_add", "index_select", "interpolate",
    "layer_norm", "leaky_relu", "linear", "log", "log1p", "log_softmax", "masked_scatter", "matmul", "max", "maximum",
    "mean", "min", "minimum", "mm", "movedim", "nan_to_num", "narrow", "norm", "normalize", "outer", "pad", "prod",
    "ravel", "reciprocal", "relu6", "remainder", "repeat", "repeat_interleave", "requires_grad_", "roll", "round",
    "rms_norm", "rsqrt", "scaled_dot_product_attention", "scatter", "scatter_add", "select", "sign", "sin", "softmax",
    "softplus", "sort", "sqrt", "square", "stack", "std", "sum", "swapaxes", "tile", "topk", "tril", "triu", "unfold",
    *("adaptiveavgpool1d", "adaptiveavgpool2d", "avgpool1d", "avgpool2d", "batchnorm1d", "batchnorm2d", "batchnorm3d"),
    *("groupnorm", "hardtanh", "layernorm", "leakyrelu", "maxpool1d", "maxpool2d", "rmsnorm", "softmax", "upsample"),
    "var", "zeropad2d",
}  # fmt: skip


def promotes(node: Node, name: str, module: nn.Module | None) -> bool:
    """Tell whether what a node gives has the dtype to which those of its operands are promoted, or one it is told."""
    if module is not None and not type(module).__module__.startswith("torch.nn.modules."):
        return False
    if node.target is getattr and node.args[1] in ("real", "imag"):
        return False
    return name in _PROMOTES


def gives_places(node: Node) -> bool:
    """Tell whether a node is what says where `topk`, `sort` and their like found their values: whole numbers."""
    if node.target is not operator.getitem or node.args[1] != 1:
        return False
    given = node.args[0]
    given = given.args[0] if isinstance(given, Node) and given.target is unpack else given
    return isinstance(given, Node) and not is_region(given) and name_of_target(given.target) in _WITH_PLACES


def is_fixed(recorder: TypedCapture, node: Node) -> bool:
    """Tell whether the dtype of what a node gives follows from no input and no tensor of the modules.

    So it is behind `scores.float()`. Under `torch.autocast` it may be another: that is taken for granted.
    """
    pending, seen, asks_autocast = [node], {node}, False
    for each in pending:
        name = name_of_target(each.target)
        if each.op not in ("call_function", "call_method") or is_region(each) or each in recorder.ledger.unforeseen:
            return False
        if name in GIVES_DTYPE:
            continue
        if not promotes(each, name, None):
            return False
        if any(isinstance(arg, torch.dtype) for arg in (*each.args, *each.kwargs.values())):
            continue
        if not each.all_input_nodes:
            return False
        asks_autocast |= name not in LIKE_OPERANDS
        pending += [used for used in each.all_input_nodes if used not in seen]
        seen.update(each.all_input_nodes)
    recorder.ledger.asks_autocast |= asks_autocast
    return True


def unforeseen(
    op: str, function: str, example: torch.Tensor, args: tuple[Any, ...], kwargs: dict[str, Any], is_opaque: bool
) -> dict[str, Any]:
    """The rank and dtype of what an operation gave, where they do not follow from those of its arguments.

    >>> ones = torch.ones(2)
    >>> unforeseen("call_function", "zeros", torch.zeros(2), (2,), {}, False)
    {'dtype': torch.float32}
    >>> unforeseen("call_function", "mul", ones * 2, (ones, 2), {}, False)
    {}
    """
    if is_opaque:
        return {"rank": example.dim(), "dtype": example.dtype}
    if function in LOOKS_AT_SIZES:
        return {"rank": example.dim()}
    if function in _OF_VALUES and args and _may_be_empty(args[0]):  # then of one dimension, and the default dtype
        return {"rank": example.dim()} if "dtype" in kwargs else {"rank": example.dim(), "dtype": example.dtype}
    if op == "call_module" or (args and isinstance(args[0], torch.Tensor) and _has_floats(args[0])):  # as nearly all
        return {}
    return {"dtype": example.dtype} if _is_the_default(function, example, args, kwargs) else {}


_OF_VALUES = frozenset({"tensor", "as_tensor", "asarray", "new_tensor"})  # which look at values of Python


def _may_be_empty(values: Any) -> bool:
    """Tell whether there is a list among some values of which only a run knows how long it is."""
    return is_growing(values) or (type(values) in (list, tuple) and any(map(_may_be_empty, values)))


def _is_the_default(function: str, example: torch.Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Tell whether floats are made of none, as by `torch.zeros(2)` and `counts / 2`: of torch's default dtype."""
    if example.dtype is not _DEFAULT() or function in GIVES_DTYPE:
        return False
    return not any(
        type(each) is torch.dtype or (isinstance(each, torch.Tensor) and _has_floats(each))
        for each in leaves((args, kwargs))
    )


def _has_floats(tensor: torch.Tensor) -> bool:
    dtype = dtype_of(tensor)
    return dtype.is_floating_point or dtype.is_complex
