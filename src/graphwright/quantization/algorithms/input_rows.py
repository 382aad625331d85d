"""The inputs of a layer as rows that its weight, as a matrix, multiplies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def linear_rows(x: Tensor) -> Tensor:
    """The inputs (..., in) of a linear layer as rows (n, in).

    >>> linear_rows(torch.ones(2, 3, 4)).shape
    torch.Size([6, 4])
    """
    return x.reshape(-1, x.shape[-1])


def conv_rows(
    x: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int] | str,
    dilation: Sequence[int],
    groups: int = 1,
    padding_mode: str = "zeros",
) -> Tensor:
    """The inputs (batch, in, sizes...) of a convolution as rows (groups, n, in / groups * kernel).

    `rows[g] @ weight.reshape(groups, out // groups, -1)[g].T` are the outputs of a group, without bias; n counts the
    places of all outputs of the batch. Of one, two or three dimensions; the arguments are those of `nn.Conv2d`.

    >>> conv_rows(torch.ones(2, 4, 8, 8), (3, 3), (1, 1), (1, 1), (1, 1), groups=2).shape
    torch.Size([2, 128, 18])
    """
    dims = len(kernel_size)
    spans = [step * (size - 1) + 1 for size, step in zip(kernel_size, dilation, strict=True)]
    mode = "constant" if padding_mode == "zeros" else padding_mode
    around = [length for pair in reversed(_padding(padding, spans)) for length in pair]
    windows = F.pad(x, around, mode=mode) if any(around) else x
    for i, (span, step) in enumerate(zip(spans, stride, strict=True)):
        windows = windows.unfold(2 + i, span, step)
    every: tuple[Any, ...] = (..., *(slice(None, None, step) for step in dilation))
    windows = windows[every].unflatten(1, (groups, -1))  # (batch, groups, in, places..., kernel...)
    places, kernel = range(3, 3 + dims), range(3 + dims, 3 + 2 * dims)
    rows: Tensor = windows.permute(1, 0, *places, 2, *kernel).flatten(1, 1 + dims).flatten(2)
    return rows


def _padding(padding: Sequence[int] | str, spans: Sequence[int]) -> list[tuple[int, int]]:
    """What is put before and after each dimension."""
    if isinstance(padding, str):
        around = [span - 1 if padding == "same" else 0 for span in spans]
        return [(total // 2, total - total // 2) for total in around]
    return [(length, length) for length in padding]


def some_rows(rows: Tensor, count: int) -> Tensor:
    """At most so many rows (..., n, in), evenly chosen."""
    there = rows.shape[-2]
    if there <= count:
        return rows
    return rows.index_select(-2, torch.linspace(0, there - 1, count, device=rows.device).long())
