"""torchvision without the operators of its own that only a matching build brings."""

from __future__ import annotations

import functools

import torch


@functools.cache
def declare_torchvision() -> torch.library.Library | None:
    """Declare torchvision's operators where they are missing, so that the package can be imported; none is run here."""
    if hasattr(torch.ops.torchvision, "nms"):
        return None
    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library
