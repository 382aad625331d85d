"""Sizes that are the same for all inputs, because the program itself says them: the 16 of `x.view(n, -1, 16)`.

A question about such a size has one answer, so that it needs neither a branch nor a guard. So has the question whether
two sizes are equal that an operation has made so: those of `x` and of `torch.relu(x)`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from graphwright.capture.proxies.growing import is_growing
from graphwright.capture.state.symbols import symbol_of
from graphwright.capture.state.tensor_proxy import Dim, TensorProxy

Sizes = list[int | Dim | None]  # one per dimension, None where nothing is known

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
_REDUCE = frozenset({"mean", "sum", "amax", "amin", "var", "std", "logsumexp"})


_SAME_MODULES = (
    nn.Dropout, nn.LayerNorm, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.ReLU, nn.GELU, nn.SiLU, nn.Tanh,
    nn.Sigmoid, nn.Softmax, nn.Identity,
)  # fmt: skip


def size_of(tensor: TensorProxy, dim: int) -> int | Dim:
    """What is known of a size; `dim` counts from the end."""
    known = tensor.sizes.get(dim)
    if known is None:
        with torch._C.DisableTorchFunction():
            known = Dim(tensor.example.shape[dim])
        tensor.sizes = {**tensor.sizes, dim: known}
    return known


def sizes_after(module: nn.Module, args: Sequence[Any], result: torch.Tensor) -> dict[int, int | Dim]:
    """What is known of the sizes that a module of torch's gives, whose parameters may be others when it runs."""
    is_plain = not (module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module))
    if not is_plain or len(args) != 1 or not isinstance(args[0], TensorProxy):
        return {}
    sizes = _sizes_of(args[0])
    if type(module) is nn.Linear:
        sizes = [*sizes[:-1], None]
    elif type(module) is nn.Embedding:
        sizes = [*sizes, None]
    elif type(module) not in _SAME_MODULES:
        return {}
    return _by_dimension(sizes, result)


def known_sizes(
    name: str, args: Sequence[Any], kwargs: Mapping[str, Any], result: torch.Tensor
) -> dict[int, int | Dim]:
    """What the arguments of an operation tell of the sizes of its result, by dimension counted from the end."""
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
    elif name == "arange":
        sizes = [_literal(args[0])] if len(args) == 1 else []
    elif name == "matmul" and all(isinstance(value, torch.Tensor) for value in args):
        sizes = _multiplied(*map(_sizes_of, args))
    elif name in _REDUCE:
        sizes = _reduced(_sizes_of(args[0]), args[1:], kwargs)
    elif name in ("cat", "concat"):
        sizes = _joined(args, kwargs)
    elif name in _SAME and isinstance(args[0], torch.Tensor):
        sizes = _sizes_of(args[0])
    elif name in _BROADCAST and not (kwargs and any(isinstance(value, torch.Tensor) for value in kwargs.values())):
        sizes = _broadcast([_sizes_of(value) for value in args if isinstance(value, torch.Tensor)])
    else:
        return {}
    return _by_dimension(sizes, result)


def _by_dimension(sizes: Sizes, result: torch.Tensor) -> dict[int, int | Dim]:
    with torch._C.DisableTorchFunction():
        shape = result.shape
    rank = len(shape)
    found: dict[int, int | Dim] = {}
    if len(sizes) == rank:
        for i, size in enumerate(sizes):
            if size is not None and shape[i] == (size.hint if type(size) is Dim else size):
                found[i - rank] = size
    return found


def _sizes_of(value: Any) -> Sizes:
    if type(value) is TensorProxy:
        known = value.sizes
        with torch._C.DisableTorchFunction():
            shape = value.example.shape
        rank = len(shape)
        sizes: Sizes = []
        for dim in range(-rank, 0):
            size = known.get(dim)
            if size is None:
                known = known if known is not value.sizes else {**known}
                size = known[dim] = Dim(shape[dim])
            sizes.append(size)
        if known is not value.sizes:
            vars(value)["sizes"] = known
        return sizes
    with torch._C.DisableTorchFunction():
        return list(value.shape) if isinstance(value, torch.Tensor) else []  # a parameter or buffer


def _literals(args: Sequence[Any]) -> Sizes:
    """Sizes as they are passed, one by one or as one sequence."""
    given = args[0] if len(args) == 1 and isinstance(args[0], tuple | list) else args
    return [_literal(size) for size in given]


def _literal(size: Any) -> int | Dim | None:
    if type(size) is int:
        return size if size != -1 else None
    symbol = symbol_of(size)
    return symbol.dim if symbol is not None else None


def _expanded(sizes: Sizes, wanted: Sizes) -> Sizes:
    before = [None] * (len(wanted) - len(sizes)) + sizes
    return [
        known if type(known) is int and known != 1 else size  # a size that inputs decide may be one
        for known, size in zip(before, wanted, strict=True)
    ]


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


def _sliced(size: int | Dim | None, item: slice) -> int | Dim | None:
    bounds = (item.start, item.stop, item.step)
    if all(bound is None for bound in bounds):  # a bound may be a tensor, which is not to be compared
        return size
    if type(size) is not int or not all(bound is None or type(bound) is int for bound in bounds):
        return None
    return len(range(*item.indices(size)))


def _reduced(sizes: Sizes, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Sizes:
    """Sizes after what is computed along one dimension."""
    dim, keeps = (*args, kwargs.get("dim"))[0], (*args[1:], kwargs.get("keepdim", False))[0]
    if type(dim) is not int or type(keeps) is not bool or not -len(sizes) <= dim < len(sizes):
        return []
    dim %= len(sizes)
    return [*sizes[:dim], *([1] if keeps else []), *sizes[dim + 1 :]]


def _multiplied(left: Sizes, right: Sizes) -> Sizes:
    """Sizes of a product of matrices, of as many as there are."""
    if len(left) < 2 or len(right) < 2:
        return []
    return [*_broadcast([left[:-2], right[:-2]]), left[-2], right[-1]]


def _joined(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Sizes:
    if is_growing(args[0]):
        return []
    parts = [_sizes_of(value) for value in args[0]]
    rank = max(map(len, parts), default=0)
    parts = [part for part in parts if len(part) == rank]  # `torch.cat` skips an empty list of numbers
    dim = args[1] if len(args) > 1 else kwargs.get("dim", 0)
    if type(dim) is not int:
        return []
    out: Sizes = [_of_equals(column) for column in zip(*parts, strict=True)]
    along = [size for part in parts if type(size := part[dim]) is int]
    out[dim] = sum(along) if len(along) == len(parts) else None
    return out


def _of_equals(sizes: Sequence[int | Dim | None]) -> int | Dim | None:
    """What is known of a size that all of these are."""
    known = [size for size in sizes if size is not None]
    return next((size for size in known if type(size) is int), known[0] if known else None)


def _broadcast(operands: list[Sizes]) -> Sizes:
    if len(operands) == 1:
        return operands[0]
    rank = max(map(len, operands), default=0)
    out: Sizes = []
    for dim in range(-rank, 0):
        column = [sizes[dim] for sizes in operands if len(sizes) >= -dim]
        wide = [size for size in column if size != 1]
        number = next((size for size in wide if type(size) is int), None)
        is_one = all(size is wide[0] for size in wide)  # a size that inputs decide may be one, and another not
        out.append(number if number is not None else (wide[0] if wide else 1) if is_one else None)
    return out
