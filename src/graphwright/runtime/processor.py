"""What programs have to know of the processor that they run on."""

from __future__ import annotations

import functools
import platform

import torch


@functools.cache
def sums_bytes_exactly() -> bool:
    """Tell whether kernels add up products of unsigned and signed bytes exactly.

    On x86 without VNNI those of oneDNN and ONNX Runtime add them in pairs of 16 bits, which saturate.

    >>> sums_bytes_exactly() in (True, False)
    True
    """
    return platform.machine() not in ("x86_64", "AMD64") or bool(torch.cpu._is_vnni_supported())
