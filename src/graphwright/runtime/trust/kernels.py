"""Kernels of torch that write where their arguments say, unchecked, and that ordinary models use: with the check.

What a file names is one of these in its place; `save` writes the name of what it stands for.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import _WeightNorm
from torch.nn.utils.weight_norm import WeightNorm

from graphwright.errors import GraphError
from graphwright.ops import has_no_side_effect


@has_no_side_effect
def weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    """Compute `torch._weight_norm`, whose kernel writes a norm for each row of `v` into as many as `g` has.

    >>> weight_norm(torch.ones(2, 4), torch.ones(2, 1))[0]
    tensor([0.5000, 0.5000, 0.5000, 0.5000])
    >>> weight_norm(torch.ones(2, 4), torch.ones(1, 1))
    Traceback (most recent call last):
    graphwright.errors.GraphError: the weight norm of [2, 4] in dimension 0 has other sizes than [1, 1]...
    """
    rows = [size if place in (dim, dim + v.dim()) else 1 for place, size in enumerate(v.shape)]
    if dim != -1 and list(g.shape) != rows:  # the norm of the whole is computed in other ways
        raise GraphError(
            f"the weight norm of {list(v.shape)} in dimension {dim} has other sizes than {list(g.shape)}",
            fix="load files only from those you trust",
        )
    return torch._weight_norm(v, g, dim)


class CheckedWeightNorm(_WeightNorm):
    """The parametrization of torch's, with the check."""

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        """Compute the weight."""
        return weight_norm(weight_v, weight_g, self.dim)


class CheckedWeightNormHook(WeightNorm):
    """The hook of torch's, with the check."""

    def compute_weight(self, module: nn.Module) -> Tensor:
        """Compute the weight."""
        return weight_norm(getattr(module, f"{self.name}_v"), getattr(module, f"{self.name}_g"), self.dim)


_CHECKED: dict[Any, Any] = {
    torch._weight_norm: weight_norm, _WeightNorm: CheckedWeightNorm, WeightNorm: CheckedWeightNormHook,
}  # fmt: skip
_PLAIN = {checked: plain for plain, checked in _CHECKED.items()}


def checked(value: Any) -> Any:
    """What stands for a function or class in what was loaded from a file; all else is its own.

    >>> checked(([1],))
    ([1],)
    """
    try:
        return _CHECKED.get(value, value)
    except TypeError:  # it has no hash, and is no function
        return value


def unchecked(value: Any) -> Any:
    """The function or class that it stands for."""
    return _PLAIN.get(value, value) if type(value).__hash__ is not None else value
