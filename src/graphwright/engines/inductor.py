"""A program of tensors of known sizes, compiled by `torch.compile`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from graphwright.runtime import GraphModule


def open_program(gm: GraphModule, args: tuple[Tensor, ...], threads: int) -> Callable[..., Sequence[Tensor]]:
    """Compile a program that gives a tuple of tensors; it is compiled when it is first called."""
    compiled: Callable[..., Any] = torch.compile(gm, dynamic=False)
    return compiled
