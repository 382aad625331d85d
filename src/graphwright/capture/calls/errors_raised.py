"""What an operation may raise for inputs other than the example's, or for other data."""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any

import torch

from graphwright.capture.proxies.calls_as_written import name_of_target
from graphwright.capture.state.symbols import Symbol, is_symbolic
from graphwright.ir import Node, Target, nodes_in
from graphwright.ops import (
    cond,
    enter_context,
    evaluated,
    exit_context,
    for_loop,
    raise_error,
    transformed,
    unpack,
    while_loop,
)
from graphwright.values import leaves

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import TypedCapture

Errors = tuple[type[BaseException], ...]
# Of which classes errors are that hang on sizes and data; kinds are the example's, or guarded.
_OPERATION: Errors = (RuntimeError, IndexError, ValueError, ZeroDivisionError, OverflowError)
_NUMBER: Errors = (ZeroDivisionError, ValueError, OverflowError, RuntimeError)
_NEVER = frozenset({
    cond, while_loop, for_loop, transformed, enter_context, exit_context, unpack, evaluated, raise_error, list, tuple,
    dict, set, torch.Size, len, print, bool, isinstance, str, repr, getattr, operator.is_, operator.is_not,
    operator.not_, operator.truth, min, max, abs, range, enumerate, zip, reversed, sorted, operator.contains,
})  # fmt: skip
_OF_NONE: tuple[Any, ...] = (max, min, "max", "min")  # fail where there is nothing to choose from
_COMPARED = frozenset({
    operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne, operator.add, operator.sub,
    operator.mul, operator.neg, operator.pos,
})  # fmt: skip
_BY_NAME = frozenset({
    "size", "dim", "numel", "sum", "relu", "tanh", "sigmoid", "exp", "clone", "detach", "contiguous", "float", "double",
    "half", "abs", "neg", "zeros_like", "ones_like", "rand_like", "randn_like", "empty_like", "sin", "cos", "mean",
    "gelu", "silu", "softplus", "square", "isnan", "isfinite", "isinf", "any", "all", "detach_", "append", "extend",
    "add", "mul", "sub",
})  # fmt: skip
_ELEMENTWISE = frozenset({"add", "mul", "sub"})
_OF_DIM = frozenset({"size", "sum", "mean", "any", "all"})  # that a run may say, after the tensor
_DIVISIONS = frozenset({operator.floordiv, operator.mod, operator.truediv, operator.pow, divmod, pow})
_OURS = ("torch", "_operator", "math", "builtins", "graphwright")
_MAY_FAIL = ("linalg", "cholesky", "inverse", "multinomial", "one_hot", "embedding", "index", "gather", "take", "lu_")


def errors_of(op: str, target: Target, args: tuple[Any, ...]) -> Errors:
    """The classes of errors that a node may raise where the program runs; none for what surely works."""
    if op in ("get_attr", "placeholder", "output"):
        return ()
    if op == "call_module":
        return _OPERATION
    if isinstance(target, str):
        return _of_name(target, args)
    home = str(getattr(target, "__module__", None) or "torch").partition(".")[0]
    if home == "graphwright":
        return ()
    if (args[0] if target is transformed else target) in _OF_NONE:
        return (ValueError,) if target is transformed or len(args) == 1 else ()
    try:
        if target in _NEVER:
            return ()
    except TypeError:
        return (Exception,)
    if target is operator.getitem:
        inner = args[0] if args else None
        made = inner.target if isinstance(inner, Node) else None
        return () if made in (unpack, cond, while_loop, for_loop, transformed, list) else _OPERATION
    if target in _COMPARED and len([leaf for leaf in args if _is_tensor(leaf)]) < 2:
        return ()
    if target in _DIVISIONS and _is_no_zero(args[-1]):
        return ()
    if target in (int, float) or target in _DIVISIONS or home == "math":
        return _NUMBER
    if home not in _OURS:
        return (Exception,)
    return _of_name(name_of_target(target), args)


def _of_name(name: str, args: tuple[Any, ...]) -> Errors:
    if name == "item":
        return _NUMBER
    if name in _ELEMENTWISE:
        return () if len([leaf for leaf in args if _is_tensor(leaf)]) < 2 else _OPERATION
    if name in _OF_DIM and any(True for _ in nodes_in(args[1:])):
        return _OPERATION
    return () if name in _BY_NAME else _OPERATION


def _is_no_zero(value: Any) -> bool:
    if isinstance(value, Symbol):
        return value.function == "constant" and bool(value.hint)
    return type(value) in (int, float) and bool(value)


def _is_tensor(value: Any) -> bool:
    """Tell whether a value may be a tensor."""
    return isinstance(value, torch.Tensor | Node)


def fails_by_data(recorder: TypedCapture, target: Target, args: tuple[Any, ...]) -> bool:
    """Tell whether data, rather than sizes, may decide that an operation fails."""
    name = target if isinstance(target, str) else str(getattr(target, "__name__", target))
    if any(part in name for part in _MAY_FAIL) or target in (int, float) or name == "item":
        return True
    for leaf in leaves(args):
        if is_symbolic(leaf) and recorder.questions.subjects.is_data(leaf):
            return True
        if isinstance(leaf, Node) and leaf.target in (int, float, "item"):
            return True
    if target is operator.getitem:
        return any(_is_tensor(leaf) for leaf in leaves(args[1:]))
    return target in _DIVISIONS or getattr(target, "__module__", None) == math.__name__
