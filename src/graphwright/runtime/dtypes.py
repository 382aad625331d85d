"""Which conversions of a captured module would make the dtypes wrong that its program asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from graphwright.errors import GuardError
from graphwright.runtime.entries import STATE
from graphwright.runtime.premises.text import dtypes_in
from graphwright.runtime.premises.unlike import asked_dtypes


def refuse_conversion(module: nn.Module, convert: Callable[[Any], Any]) -> None:
    """Raise GuardError where a tensor would get another dtype than a program in a module takes for granted."""
    converted: dict[torch.dtype, torch.dtype] = {}
    for at, each in module.named_modules():  # any of which may refuse
        for entry in each.__dict__[STATE].entries.values() if STATE in each.__dict__ else ():
            for path, tensor, was, asked in asked_dtypes(each, entry.premises, at):
                dtype = tensor.dtype
                if dtype not in converted:
                    converted[dtype] = convert(torch.empty(0, dtype=dtype)).dtype
                if converted[dtype] != dtype and str(converted[dtype]) not in dtypes_in(was):
                    raise GuardError(
                        f"{path} was of {was} when the program was captured, which asks for it; this makes it one of "
                        f"{converted[dtype]}",
                        at=asked,
                        fix="convert the original model, then capture it",
                    )
