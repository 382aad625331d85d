"""Lists that loops have filled as often as only a run knows: what a loop has collected stands in them as one tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from graphwright.interop.lower.items import Collected, Rows
from graphwright.interop.lower.numbers import as_number_tensor


def is_filled(values: Any) -> bool:
    """Tell whether a value is such a list.

    >>> is_filled([Collected(torch.ones(2, 3))]), is_filled([torch.ones(3)])
    (True, False)
    """
    return isinstance(values, list) and any(isinstance(each, Collected) for each in values)


def length_of(values: Sequence[Any]) -> Any:
    """How many items there are."""
    return sum(each.length if isinstance(each, Collected) else 1 for each in values)


def rows_of(values: Sequence[Any]) -> Rows:
    """All items, as the rows of one tensor.

    >>> rows_of([torch.zeros(2), Collected(torch.ones(1, 2))]).tensor
    tensor([[0., 0.],
            [1., 1.]])
    """
    parts = [each.tensor if isinstance(each, Collected) else _as_tensor(each)[None] for each in values]
    return Rows(torch.cat(parts))


def _as_tensor(value: Any) -> torch.Tensor:
    return value if isinstance(value, torch.Tensor) else as_number_tensor(value)


def _with_rows(values: Any) -> Any:
    """The parts of a tensor, `tuple(x)`, as a list that is filled."""
    is_parts = isinstance(values, Rows) and not values.numbers
    return [Collected(values.tensor.movedim(values.dim, 0))] if is_parts else values


def _stack(tensors: Any, dim: int = 0) -> Any:
    tensors = _with_rows(tensors)
    if not is_filled(tensors):
        return NotImplemented
    rows = rows_of(tensors).tensor
    return rows if dim == 0 else rows.movedim(0, dim if dim >= 0 else dim + rows.dim())


def _cat(tensors: Any, dim: int = 0, *, axis: int = 0) -> Any:
    tensors = _with_rows(tensors)
    if not is_filled(tensors):
        return NotImplemented
    parts, dim = [], dim or axis
    for each in tensors:
        if isinstance(each, Collected):
            at = dim if dim >= 0 else dim + each.tensor.dim() - 1
            each = each.tensor.movedim(0, at).flatten(at, at + 1)
        parts.append(each)
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim)


def _len(values: Any) -> Any:
    return length_of(values) if is_filled(values) else NotImplemented


# What may be asked of such a list; NotImplemented for every other value.
FILLED: dict[Any, Callable[..., Any]] = {
    torch.stack: _stack,
    torch.cat: _cat,
    torch.concat: _cat,
    torch.concatenate: _cat,
    len: _len,
}
