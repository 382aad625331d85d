"""Copies of modules whose tensors are fake: they have shapes and dtypes and no values."""

from __future__ import annotations

import copy

from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode


def with_fake_tensors(module: nn.Module, mode: FakeTensorMode) -> nn.Module:
    """Copy a module with its parameters and buffers as fake tensors of `mode`; the module itself stays as it is.

    >>> with_fake_tensors(nn.Linear(2, 3), FakeTensorMode()).weight.shape
    torch.Size([3, 2])
    """
    tensors = [*module.parameters(), *module.buffers()]
    fakes = {id(tensor): tensor if isinstance(tensor, FakeTensor) else mode.from_tensor(tensor) for tensor in tensors}
    return copy.deepcopy(module, fakes)  # what the memo has is not copied
