"""torchvision without the operators of its own that only a matching build brings."""

from __future__ import annotations

import functools
import importlib.util
import pathlib

import torch


@functools.cache
def declare_torchvision() -> torch.library.Library | None:
    """Declare torchvision's operators where they are missing, so that the package can be imported; none is run here.

    A build that brings them is left to define them itself: no operator may be defined twice.
    """
    if _brings_operators():
        return None
    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library


def _brings_operators() -> bool:
    """Tell whether torchvision's compiled operators can be loaded into this torch."""
    if hasattr(torch.ops.torchvision, "nms"):
        return True
    found = importlib.util.find_spec("torchvision")
    for folder in found.submodule_search_locations or () if found is not None else ():
        for library in pathlib.Path(folder).glob("_C*"):
            try:
                torch.ops.load_library(library)
            except OSError:  # made for another torch
                continue
    return hasattr(torch.ops.torchvision, "nms")
