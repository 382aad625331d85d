"""`module.to(dtype)` while a program is captured: allowed where it changes nothing.

A module converts itself in place, by writing to its parameters, which are shared with the user's. Models do so to make
sure of a dtype or device that the parameters have already.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import nn

from graphwright.capture.state.running import refused

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import TypedCapture


def convert_module(
    recorder: TypedCapture, shell: nn.Module, function: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True
) -> nn.Module:
    """Stand for `_apply` of a shell: check that a conversion leaves each parameter and buffer what it is.

    Raises CaptureError where it does not.
    """
    for module in shell.modules() if recurse else [shell]:
        for tensor in [*module._parameters.values(), *module._buffers.values()]:
            if tensor is None:
                continue
            example = recorder.example(tensor)
            made = recorder.examples.run(function, (example,), {})
            if not _is_alike(example, made):
                raise refused(
                    recorder,
                    f"the program converts the parameters of a {type(shell).__name__} to another dtype or device",
                    "convert the module before it is captured",
                )
    return shell


def _is_alike(a: torch.Tensor, b: torch.Tensor) -> bool:
    kind = (a.dtype, a.device, a.layout, a.shape, a.stride())
    return isinstance(b, torch.Tensor) and (b.dtype, b.device, b.layout, b.shape, b.stride()) == kind
