"""The arithmetic of batch norms that go into the weights of the layer before or behind them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graphwright.errors import PassError

BatchNorm = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d


def scale_and_shift(norm: BatchNorm) -> tuple[Tensor, Tensor]:
    """Return the scale and shift, per channel, that a batch norm applies in evaluation mode.

    Both have shape (channels,) and at least single precision. Raises PassError when `norm` keeps no running
    statistics.

    >>> norm = nn.BatchNorm1d(2, eps=0.0, affine=False)
    >>> _ = norm.running_mean.copy_(torch.tensor([1.0, 2.0])), norm.running_var.fill_(4.0)
    >>> scale_and_shift(norm)
    (tensor([0.5000, 0.5000]), tensor([-0.5000, -1.0000]))
    """
    mean, variance = norm.running_mean, norm.running_var
    if mean is None or variance is None:
        raise PassError(
            f"{type(norm).__name__}({norm.num_features}) keeps no running statistics: it normalizes each batch by "
            "itself, which no weights can absorb",
            fix="make it with track_running_stats=True",
        )
    wide = torch.promote_types(variance.dtype, torch.float32)
    scale = torch.rsqrt(variance.to(wide) + norm.eps)
    if norm.weight is not None:
        scale = scale * norm.weight.detach().to(wide)
    shift = -mean.to(wide) * scale
    if norm.bias is not None:
        shift = shift + norm.bias.detach().to(wide)
    return scale, shift


def fold_batch_norm(
    weight: Tensor, bias: Tensor | None, norm: BatchNorm, *, transposed: bool = False, groups: int = 1
) -> tuple[Tensor, Tensor]:
    """Fold an inference-mode batch norm into the weights of the layer that feeds it.

    weight (out, in / groups, *kernel), or with `transposed` (in, out / groups, *kernel), and bias (out,) or None
    -> the same shapes and dtype, the bias always present. The arithmetic runs in single precision or better.
    Raises PassError when `norm` keeps no running statistics.

    Source: Jacob et al., arXiv:1712.05877, section 3.2.

    >>> conv, norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8).eval()
    >>> [tuple(t.shape) for t in fold_batch_norm(conv.weight, conv.bias, norm)]
    [(8, 3, 3, 3), (8,)]
    >>> conv = nn.ConvTranspose2d(6, 8, 3, groups=2, bias=False)
    >>> [tuple(t.shape) for t in fold_batch_norm(conv.weight, conv.bias, norm, transposed=True, groups=2)]
    [(6, 4, 3, 3), (8,)]
    """
    scale, shift = scale_and_shift(norm)
    wide = torch.promote_types(weight.dtype, scale.dtype)
    filters = weight.detach().to(wide)
    kernel = [1] * (filters.dim() - 2)
    if transposed:
        # Input channels come in `groups` blocks; each block feeds its own out / groups output channels.
        blocks = filters.reshape(groups, filters.shape[0] // groups, *filters.shape[1:])
        folded = (blocks * scale.reshape(groups, 1, -1, *kernel)).reshape(filters.shape)
    else:
        folded = filters * scale.reshape(-1, 1, *kernel)
    moved = shift if bias is None else bias.detach().to(wide) * scale + shift
    return folded.to(weight.dtype), moved.to(weight.dtype)


def fold_batch_norm_before(
    weight: Tensor, bias: Tensor | None, norm: BatchNorm, *, transposed: bool = False, groups: int = 1
) -> tuple[Tensor, Tensor]:
    """Fold an inference-mode batch norm into the weights of the layer that reads it.

    weight (out, in / groups, *kernel), or with `transposed` (in, out / groups, *kernel), and bias (out,) or None
    -> the same shapes and dtype, the bias always present. The layer must not pad with zeros: these are not shifted.
    Raises PassError when `norm` keeps no running statistics.

    Source: the same sums as for a batch norm behind the layer: W (s x + t) + b = (W s) x + (W t + b).

    >>> norm, linear = nn.BatchNorm1d(3).eval(), nn.Linear(3, 8)
    >>> [tuple(t.shape) for t in fold_batch_norm_before(linear.weight, linear.bias, norm)]
    [(8, 3), (8,)]
    """
    scale, shift = scale_and_shift(norm)
    wide = torch.promote_types(weight.dtype, scale.dtype)
    filters = weight.detach().to(wide)
    kernel = filters.shape[2:]
    ones = [1] * len(kernel)
    rows = filters.shape[0] // groups
    blocks = filters.reshape(groups, rows, filters.shape[1], *kernel)
    order = (groups, rows, 1) if transposed else (groups, 1, filters.shape[1])  # where the inputs of a group are
    folded = (blocks * scale.reshape(*order, *ones)).reshape(filters.shape)
    taps = blocks * shift.reshape(*order, *ones)
    moved = taps.sum(dim=(1 if transposed else 2, *range(3, 3 + len(kernel)))).flatten()
    if bias is not None:
        moved = moved + bias.detach().to(wide)
    return folded.to(weight.dtype), moved.to(weight.dtype)
