"""Max pooling of bytes, which torch has not: the larger one of slices, along one dimension after the other."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from graphwright.ops import has_no_side_effect


@has_no_side_effect
def max_pool_of_integers(
    input: Tensor,
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    ceil_mode: bool = False,
) -> Tensor:
    """Give the largest integer of each window over the last dimensions, as `F.max_pool2d` and its like do of floats.

    >>> max_pool_of_integers(torch.tensor([[1, 5, 2, 4]], dtype=torch.uint8), (2,), (2,), (0,), (1,))
    tensor([[5, 4]], dtype=torch.uint8)
    """
    least = torch.iinfo(input.dtype).min
    padded, around, sizes = input, [], []
    for i in range(len(kernel)):
        size, window = input.shape[i - len(kernel)], (kernel[i] - 1) * dilation[i] + 1
        sizes.append((size + 2 * padding[i] - window + (stride[i] - 1 if ceil_mode else 0)) // stride[i] + 1)
        if ceil_mode and (sizes[i] - 1) * stride[i] >= size + padding[i]:
            sizes[i] -= 1  # a window begins in the image, or in what is before it
        over = (sizes[i] - 1) * stride[i] + window - size - padding[i]
        around += [[padding[i], max(over, 0)]]
    if any(before or after for before, after in around):
        padded = F.pad(input, [size for pair in reversed(around) for size in pair], value=least)
    for i in range(len(kernel)):
        dim = i - len(kernel)
        span = (sizes[i] - 1) * stride[i] + 1
        index = [slice(None)] * padded.dim()
        parts = []
        for k in range(kernel[i]):
            index[dim] = slice(k * dilation[i], k * dilation[i] + span, stride[i])
            parts.append(padded[tuple(index)])
        padded = parts[0]
        for part in parts[1:]:
            padded = torch.maximum(padded, part)
    return padded
