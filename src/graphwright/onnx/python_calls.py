"""Python's functions of tensors that it would take apart, and texts of values that only a run knows."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from graphwright.interop import (
    FILLED,
    Counted,
    Items,
    Rows,
    as_number_tensor,
    as_truth,
    is_filled,
    is_symbolic,
    rows_of,
    set_item,
)
from graphwright.ops import unpack

# ---- texts


class Text(str):
    """A text of values that only a run knows, without them."""

    __slots__ = ()


_TEXTS = (str, repr, ascii, format)


def is_of_a_run(value: Any) -> bool:
    """Tell whether a value is a tensor, a number or a text that only a run knows."""
    return isinstance(value, torch.Tensor | Text) or is_symbolic(value)


def is_text_of_a_run(target: Any, args: tuple[Any, ...]) -> bool:
    """Tell whether a call makes a text of such values."""
    makes = target in _TEXTS or (target in (operator.mod, operator.add) and any(isinstance(arg, str) for arg in args))
    return makes and any(is_of_a_run(leaf) for leaf in pytree.tree_leaves(args))


# ---- tensors


def _tensor(data: Any, **options: Any) -> Any:
    dtype = options.get("dtype")
    if isinstance(data, torch.Tensor):
        return data.detach().clone() if dtype is None else data.to(dtype).detach().clone()
    if is_filled(data):
        made = rows_of(data).tensor
    elif isinstance(data, Counted):
        made = torch.arange(data.start, data.stop, data.step)
    elif isinstance(data, list | tuple) and any(isinstance(each, torch.Tensor) or is_symbolic(each) for each in data):
        if not all(isinstance(each, int | float | torch.Tensor) or is_symbolic(each) for each in data):
            return NotImplemented
        made = torch.stack(_promoted([as_number_tensor(each) for each in data]))
    elif is_symbolic(data):
        made = as_number_tensor(data)
    else:
        return NotImplemented
    if dtype is None and made.dtype == torch.float64:
        dtype = torch.get_default_dtype()
    return made if dtype is None else made.to(dtype)


def written_out(data: Any) -> Any:
    """Numbers as tensors that a body makes itself: it can hold no constants."""
    if isinstance(data, bool | int | float):
        return as_number_tensor(data) if not isinstance(data, float) else torch.full((), data)
    if isinstance(data, list) and data and len(data) <= MOST_WRITTEN:
        parts = [written_out(each) for each in data]
        if all(isinstance(each, torch.Tensor) for each in parts):
            return torch.stack(_promoted(parts))
    return data


MOST_WRITTEN = 64  # numbers of a list that are written out one by one


def _promoted(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    dtype = tensors[0].dtype
    for tensor in tensors[1:]:
        dtype = torch.promote_types(dtype, tensor.dtype)
    return [tensor.to(dtype) for tensor in tensors]


def _len(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.shape[0]
    if isinstance(value, Items):
        return value.length
    return FILLED[len](value)


def _getitem(value: Any, index: Any) -> Any:
    if is_filled(value):
        value = rows_of(value)
    if isinstance(value, Counted) and index == slice(None, None, -1):
        last = value.start + (value.length - 1) * value.step
        return Counted(last, value.start - (1 if value.step > 0 else -1), -value.step)
    return value[index] if isinstance(value, Rows) else NotImplemented


def _unpack(value: Any, count: int) -> Any:
    if isinstance(value, torch.Tensor):
        torch._check(value.shape[0] == count)
        return tuple([value[i] for i in range(count)])
    return NotImplemented


def _iter(value: Any = ()) -> Any:
    return value if isinstance(value, Items) else Rows(value) if isinstance(value, torch.Tensor) else NotImplemented


FUNCTIONS: dict[Any, Callable[..., Any]] = {
    **FILLED,
    len: _len,
    list: _iter,
    tuple: _iter,
    iter: _iter,
    operator.getitem: _getitem,
    operator.setitem: set_item,
    torch.tensor: _tensor,
    torch.as_tensor: _tensor,
    unpack: _unpack,
    torch.unbind: lambda value, dim=0: _parts(value, dim),
    torch.squeeze: lambda value, dim=None: _squeeze(value, dim),
}


def _parts(value: torch.Tensor, dim: int = 0) -> Any:
    return Rows(value, dim % value.dim()) if is_symbolic(value.shape[dim]) else NotImplemented


def _squeeze(value: torch.Tensor, dim: int | Sequence[int] | None = None) -> Any:
    """Dimensions of one, of those that are known to be: one that is open is taken to be larger."""
    dims = range(value.dim()) if dim is None else (dim,) if isinstance(dim, int) else dim
    known = tuple([each for each in dims if not is_symbolic(value.shape[each])]) if value.dim() else ()
    if not value.dim() or len(known) == len(dims):
        return NotImplemented
    return value.squeeze(known) if known else value


def _tolist(value: torch.Tensor) -> Any:
    if value.dim() == 0:
        return _number(value)
    if value.dim() > 1:
        return NotImplemented
    if is_symbolic(value.shape[0]):
        return Rows(value, numbers=True)
    return [_number(value[i]) for i in range(value.shape[0])]


def _number(value: torch.Tensor) -> Any:
    """`value.item()`: a whole number as such, every other one as a tensor."""
    value = value.reshape(())
    if value.dtype == torch.bool:
        return value
    return value.to(torch.float64) if value.dtype.is_floating_point else value.item()


METHODS: dict[str, Callable[..., Any]] = {
    "item": _number,
    "tolist": _tolist,
    "unbind": _parts,
    "squeeze": _squeeze,
    "__len__": _len,
    "__bool__": as_truth,
}
