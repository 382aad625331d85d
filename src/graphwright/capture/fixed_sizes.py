"""Sizes that are the same for all inputs, because the program itself says them: the 16 of `x.view(n, -1, 16)`.

A question about such a size has one answer, so that it needs neither a branch nor a guard.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from graphwright.capture.growing import is_growing
from graphwright.capture.tensor_proxy import TensorProxy

__all__ = ["fixed_sizes"]

Sizes = list[int | None]  # one per dimension, None where inputs may decide

_RESHAPES = frozenset({"view", "reshape"})
_SAME = frozenset({
    "to", "float", "half", "bfloat16", "double", "type", "type_as", "contiguous", "clone", "detach", "neg", "abs",
    "exp", "log", "sqrt", "rsqrt", "cos", "sin", "tanh", "sigmoid", "relu", "gelu", "silu", "softmax", "log_softmax",
    "dropout", "layer_norm", "rms_norm", "logical_not", "invert", "cumsum",
})  # fmt: skip
_BROADCAST = frozenset({
    "add", "sub", "mul", "truediv", "div", "pow", "eq", "ne", "lt", "le", "gt", "ge", "and_", "or_", "logical_and",
    "logical_or", "maximum", "minimum", "where", "masked_fill",
})  # fmt: skip


def fixed_sizes(name: str, args: Sequence[Any], kwargs: Mapping[str, Any], result: torch.Tensor) -> dict[int, int]:
    """The sizes of the result of an operation that its arguments fix, by dimension counted from the end."""
    if not args or "out" in kwargs:
        return {}
    if name in _RESHAPES:
        sizes = _literals(args[1:])
    elif name == "expand":
        sizes = _expanded(_sizes_of(args[0]), _literals(args[1:]))
    elif name in ("transpose", "swapaxes", "swapdims", "permute"):
        sizes = _permuted(_sizes_of(args[0]), name, args[1:])
    elif name == "unsqueeze":
        sizes = _unsqueezed(_sizes_of(args[0]), args[1:])
    elif name == "getitem":
        sizes = _indexed(_sizes_of(args[0]), args[1] if isinstance(args[1], tuple) else (args[1],))
    elif name in ("cat", "concat"):
        sizes = _joined(args, kwargs)
    elif name in _SAME and isinstance(args[0], torch.Tensor):
        sizes = _sizes_of(args[0])
    elif name in _BROADCAST and not any(isinstance(value, torch.Tensor) for value in kwargs.values()):
        sizes = _broadcast([_sizes_of(value) for value in args if isinstance(value, torch.Tensor)])
    else:
        return {}
    if len(sizes) != result.dim():
        return {}
    return {i - len(sizes): n for i, n in enumerate(sizes) if n is not None and n == result.shape[i]}


def _sizes_of(value: Any) -> Sizes:
    if isinstance(value, TensorProxy):
        rank = value.example.dim()
        return [value.fixed.get(i - rank) for i in range(rank)]
    if isinstance(value, torch.Tensor):  # a parameter or buffer
        with torch._C.DisableTorchFunction():
            return list(value.shape)
    return []


def _literals(args: Sequence[Any]) -> Sizes:
    """Sizes as they are passed, one by one or as one sequence."""
    given = args[0] if len(args) == 1 and isinstance(args[0], tuple | list) else args
    return [size if type(size) is int and size != -1 else None for size in given]


def _expanded(sizes: Sizes, wanted: Sizes) -> Sizes:
    before = [None] * (len(wanted) - len(sizes)) + sizes
    return [known if size is None and known != 1 else size for known, size in zip(before, wanted, strict=True)]


def _permuted(sizes: Sizes, name: str, args: Sequence[Any]) -> Sizes:
    order = list(range(len(sizes)))
    dims = args[0] if len(args) == 1 and isinstance(args[0], tuple | list) else args
    if not all(type(dim) is int for dim in dims):
        return []
    if name == "permute":
        order = [order[dim] for dim in dims]
    elif len(dims) == 2:
        a, b = dims
        order[a], order[b] = order[b], order[a]
    else:
        return []
    return [sizes[dim] for dim in order]


def _unsqueezed(sizes: Sizes, args: Sequence[Any]) -> Sizes:
    if len(args) != 1 or type(args[0]) is not int:
        return []
    at = args[0] % (len(sizes) + 1)
    return [*sizes[:at], 1, *sizes[at:]]


def _indexed(sizes: Sizes, index: tuple[Any, ...]) -> Sizes:
    kinds = (type(None), type(...), slice, int)
    if not all(type(item) in kinds for item in index):
        return []
    taken = sum(type(item) in (slice, int) for item in index)
    out: Sizes = []
    rest = iter(sizes)
    for item in (*index, *(() if ... in index else (...,))):
        if item is None:
            out.append(1)
        elif item is ...:
            out += [next(rest) for _ in range(len(sizes) - taken)]
        elif isinstance(item, slice):
            out.append(_sliced(next(rest), item))
        else:
            next(rest)
    return out


def _sliced(size: int | None, item: slice) -> int | None:
    bounds = (item.start, item.stop, item.step)
    if all(bound is None for bound in bounds):  # a bound may be a tensor, which is not to be compared
        return size
    if size is None or not all(bound is None or type(bound) is int for bound in bounds):
        return None
    return len(range(*item.indices(size)))


def _joined(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Sizes:
    if is_growing(args[0]):
        return []
    parts = [_sizes_of(value) for value in args[0]]
    rank = max(map(len, parts), default=0)
    parts = [part for part in parts if len(part) == rank]  # `torch.cat` skips an empty list of numbers
    dim = args[1] if len(args) > 1 else kwargs.get("dim", 0)
    if type(dim) is not int:
        return []
    out: Sizes = [next((size for size in column if size is not None), None) for column in zip(*parts, strict=True)]
    along = [part[dim] for part in parts]
    out[dim] = None if None in along else sum(size or 0 for size in along)
    return out


def _broadcast(operands: list[Sizes]) -> Sizes:
    rank = max(map(len, operands), default=0)
    out: Sizes = []
    for dim in range(-rank, 0):
        column = [sizes[dim] for sizes in operands if len(sizes) >= -dim]
        wide = next((size for size in column if size is not None and size != 1), None)
        out.append(wide if wide is not None else None if None in column else 1)
    return out
