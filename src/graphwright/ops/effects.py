"""Which operations do more than compute a value.

An operation is impure when leaving it out could change what the rest of the program computes: it writes to an
argument or a buffer, advances the random state, checks something, or is not known. Where a flag decides that and the
flag is a value of the graph, the answer is the careful one.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import math
import operator
import types
from typing import Any

import torch
from torch import nn

from graphwright.errors import GraphError
from graphwright.ir import Node, bodies_of, qualified_name
from graphwright.ops.regions import is_region
from graphwright.ops.state import delete_attribute, set_attribute

__all__ = ["DECLARED_IMPURE", "RANDOM_FUNCTIONS", "has_side_effect", "is_impure", "is_inplace", "is_random"]

_INPLACE_OPERATORS = (
    operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ifloordiv, operator.imod,
    operator.imatmul, operator.ipow, operator.ilshift, operator.irshift, operator.iand, operator.ixor, operator.ior,
    operator.iconcat, operator.setitem, operator.delitem, setattr, delattr, set_attribute, delete_attribute,
)  # fmt: skip
_INPLACE_METHODS = frozenset({
    "__iadd__", "__isub__", "__imul__", "__itruediv__", "__ifloordiv__", "__imod__", "__imatmul__", "__ipow__",
    "__ilshift__", "__irshift__", "__iand__", "__ixor__", "__ior__", "__setitem__", "__delitem__", "__setattr__",
    "__delattr__", "__setstate__", "resize", "resize_as",
})  # fmt: skip
# Methods of tensors that act without writing to the tensor's values.
_ACTING_METHODS = frozenset({
    "backward", "retain_grad", "register_hook", "register_post_accumulate_grad_hook", "record_stream",
})  # fmt: skip
_PURE_METHODS = frozenset({"items", "keys", "values", "get", "split", "strip", "join", "format", "lower", "upper"})

# Functions that write to an argument only if one of their arguments says so: (its names, its position, its default).
_Flag = tuple[tuple[str, ...], int, Any]
_WRITES_IF: dict[str, _Flag] = {
    "batch_norm": (("training",), 5, False),
    "native_batch_norm": (("training",), 5, False),
    "instance_norm": (("use_input_stats",), 5, True),
    "embedding": (("max_norm",), 3, None),
    "embedding_bag": (("max_norm",), 3, None),
}
# Functions and methods that draw random numbers: always, or only if one of their arguments says so.
_ALWAYS = ((), 0, True)
_DROPOUT = (("training", "train"), 2, True)
_DRAWS_IF: dict[str, _Flag] = {
    **dict.fromkeys((
        "rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like", "normal", "bernoulli",
        "multinomial", "poisson", "binomial", "gumbel_softmax", "native_dropout", "manual_seed", "seed", "initial_seed",
        "fractional_max_pool2d", "fractional_max_pool3d", "fractional_max_pool2d_with_indices",
        "fractional_max_pool3d_with_indices", "multi_head_attention_forward", "lstm", "gru", "rnn_tanh", "rnn_relu",
    ), _ALWAYS),
    **dict.fromkeys((
        "dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout", "feature_dropout",
    ), _DROPOUT),
    "rrelu": (("training",), 3, False),
    "scaled_dot_product_attention": (("dropout_p",), 4, 0.0),
}  # fmt: skip
# The functions that draw random numbers though no tensor is passed to them.
RANDOM_FUNCTIONS = frozenset(
    getattr(torch, name)
    for name in ("rand", "randn", "randint", "randperm", "normal", "rand_like", "randn_like", "randint_like",
                 "bernoulli", "multinomial", "poisson")
)  # fmt: skip

_ACTING_BUILTINS = (print, input, open, exec, eval, next, breakpoint, __import__)
# Where torch keeps functions that compute; under the other names live modes, seeds, checks, savers and loaders.
_PURE_HOMES = frozenset({
    "torch.nn.functional", "torch._C._nn", "torch.fft", "torch.linalg", "torch.special", "torch.functional",
    "torch._jit_internal", "torch.Tensor", "torch._VF", "torch._C._fft", "torch._C._linalg", "torch._C._special",
})  # fmt: skip
_PURE_TORCH = (torch.Size, torch.device, torch.dtype, torch.finfo, torch.iinfo, torch.is_tensor, torch.is_storage)
_CHECKS = ("_assert", "_check", "_print", "_sync", "_functional_assert", "_functional_sym_constrain", "sym_constrain")
_PURE_NAMESPACES = ("aten", "prims")  # of torch.ops


# ---- the questions


def is_inplace(node: Node) -> bool:
    """Tell whether a node writes to one of its arguments; a branch or loop does if a node inside it may."""
    if is_region(node):
        return any(is_inplace(inner) for body in bodies_of(node) for inner in body.nodes)
    if node.kwargs.get("out") is not None:
        return True
    if node.op == "call_method":
        return _is_inplace_method(node.target)
    if node.op != "call_function":
        return False
    function, name = node.target, _name_of(node)
    if any(function is other for other in _INPLACE_OPERATORS) or _is_inplace_method(name):
        return True
    if name in _WRITES_IF and _is_on(node, _WRITES_IF[name]):
        return True
    position = _position(function, "inplace")
    if position is not None and _is_on(node, (("inplace",), position, False)):
        return True
    schema = getattr(function, "_schema", None)
    return schema is not None and bool(schema.is_mutable)


def is_random(node: Node) -> bool:
    """Tell whether a node may advance a random state."""
    if is_region(node):
        return any(is_random(inner) for body in bodies_of(node) for inner in body.nodes)
    if node.op not in ("call_function", "call_method"):
        return False
    name = _name_of(node)
    if name in _DRAWS_IF and _is_on(node, _DRAWS_IF[name]):
        return True
    return torch.Tag.nondeterministic_seeded in _tags(node.target)


def is_impure(node: Node, module: nn.Module | None = None) -> bool:
    """Tell whether a node has an effect beyond its value, so that it stays though nobody reads it.

    `module` is the submodule that a call_module node calls, where it is known. Functions and modules that this
    library does not know count as impure. A branch or loop is impure if a node inside it is.
    """
    if is_region(node):
        return _has_impure_body(node, node.graph.owning_module)
    op = node.op
    if op in ("placeholder", "output"):
        return True
    if op == "get_attr":
        return False
    if op == "call_module":
        return _is_module_impure(module)
    if is_inplace(node) or is_random(node):
        return True
    if op == "call_method":
        return not _is_pure_method(node.target)
    return not _is_pure_function(node.target) or _is_declared(node.target)


def _has_impure_body(node: Node, owner: nn.Module | None) -> bool:
    bodies = bodies_of(node)
    if any(callable(arg) for arg in node.args):  # a body that is a function: what it does is not known
        return True
    for inner in (inner for body in bodies for inner in body.nodes if inner.op not in ("placeholder", "output")):
        if is_region(inner):
            if _has_impure_body(inner, owner):
                return True
        else:
            called = owner.get_submodule(str(inner.target)) if inner.op == "call_module" and owner is not None else None
            if is_impure(inner, called):
                return True
    return False


def _is_declared(function: Any) -> bool:
    return type(function).__hash__ is not None and function in DECLARED_IMPURE


DECLARED_IMPURE: set[Any] = set()  # by `has_side_effect`


def has_side_effect(fn: Any) -> Any:
    """Declare that calls of a function do more than compute a value: dead-code removal keeps them. Returns `fn`.

    >>> @has_side_effect
    ... def report(x): ...
    >>> report in DECLARED_IMPURE
    True
    """
    DECLARED_IMPURE.add(fn)
    return fn


# ---- what is known of functions and methods


def _name_of(node: Node) -> str:
    """The name that the tables know: `relu` for torch.relu, "relu" and torch.ops.aten.relu.default."""
    target: Any = node.target
    return target if isinstance(target, str) else str(getattr(target, "__name__", "")).partition(".")[0]


def _is_on(node: Node, flag: _Flag) -> bool:
    """Tell whether an argument is given, by name or position, and not off; a value of the graph counts as on."""
    names, position, default = flag
    value = default
    if names and position < len(node.args):
        value = node.args[position]
    for name in names:
        value = node.kwargs.get(name, value)
    return isinstance(value, Node) or not (value is None or value is False or value == 0)


@functools.lru_cache(4096)
def _position_of_hashable(function: Any, parameter: str) -> int | None:
    try:
        return list(inspect.signature(function).parameters).index(parameter)
    except (TypeError, ValueError):  # written in C, or without this parameter
        return None


def _position(function: Any, parameter: str) -> int | None:
    return _position_of_hashable(function, parameter) if isinstance(function, types.FunctionType) else None


def _is_inplace_method(name: str) -> bool:
    if name in _INPLACE_METHODS:
        return True
    return name.endswith("_") and not name.endswith("__") and name not in ("and_", "or_", "not_", "is_")


def _is_pure_method(name: str) -> bool:
    return name not in _ACTING_METHODS and (hasattr(torch.Tensor, name) or name in _PURE_METHODS)


def _tags(function: Any) -> list[Any]:
    """What torch.ops says of an operator; for one that is still to choose its overload, of all of them."""
    if isinstance(function, torch._ops.OpOverload):
        return list(function.tags)
    if isinstance(function, torch._ops.OpOverloadPacket):
        return [tag for name in function.overloads() for tag in getattr(function, name).tags]
    return []


def _is_pure_function(function: Any) -> bool:
    """Tell whether a function only computes, flags and names in the tables aside."""
    is_builtin = isinstance(function, types.BuiltinFunctionType)  # the most common: these live for ever and have a hash
    return _is_pure_builtin(function) if is_builtin else _only_computes(function)


@functools.lru_cache(4096)
def _is_pure_builtin(function: Any) -> bool:
    return _only_computes(function)


def _only_computes(function: Any) -> bool:
    name = str(getattr(function, "__name__", ""))
    if name.startswith(_CHECKS):
        return False
    if getattr(builtins, name, None) is function:
        return not any(function is other for other in _ACTING_BUILTINS)
    if getattr(operator, name, None) is function or getattr(math, name, None) is function:
        return True
    if isinstance(function, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return str(function).partition(".")[0] in _PURE_NAMESPACES
    if any(function is other for other in _PURE_TORCH):
        return True
    if isinstance(function, types.MethodWrapperType):
        return name == "__get__"  # the getter of a property: `torch.Tensor.shape.__get__`
    try:
        home = qualified_name(function).rpartition(".")[0]
    except GraphError:
        return False
    if home == "torch":
        return name.startswith("sym_") or hasattr(torch._C._VariableFunctions, name)
    if home == "torch.Tensor":
        return _is_pure_method(name)
    return home in _PURE_HOMES or home in ("builtins.str", "builtins.bytes", "builtins.int", "builtins.float")


# ---- what is known of modules


def _is_module_impure(module: nn.Module | None) -> bool:
    if module is None or not type(module).__module__.startswith("torch.nn.modules."):
        return True
    if module._forward_hooks or module._forward_pre_hooks or module._backward_hooks:
        return True
    flags: dict[str, Any] = module.__dict__
    if isinstance(module, nn.modules.dropout._DropoutNd) and not module.training:
        return False  # gives back what it gets, also where it would write in training
    if flags.get("inplace") or flags.get("max_norm") is not None:
        return True
    if isinstance(module, nn.modules.lazy.LazyModuleMixin | nn.FractionalMaxPool2d | nn.FractionalMaxPool3d):
        return True
    if module.training:
        if isinstance(module, nn.modules.dropout._DropoutNd | nn.RReLU) or _draws(flags.get("dropout")):
            return True
        if isinstance(module, nn.modules.batchnorm._NormBase) and module.track_running_stats:
            return True
    return any(_is_module_impure(child) for child in module.children())


def _draws(dropout: Any) -> bool:
    """Tell whether a module's attribute `dropout` is a probability above 0; in some it is a child module."""
    return isinstance(dropout, int | float) and dropout > 0
