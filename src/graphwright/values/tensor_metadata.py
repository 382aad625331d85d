"""What passes note of a tensor, in `meta["tensor_meta"]`: plain facts, which saved files may hold."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch


class TensorMetadata(NamedTuple):
    """What is known of a tensor without its values.

    `memory_format` is None where the tensor is dense in none of the known orders. `qparams` has the quantization
    scheme, scale and zero point where `is_quantized`, and is empty otherwise.

    >>> from graphwright.analysis import extract_tensor_metadata
    >>> extract_tensor_metadata(torch.ones(2, 3)).stride
    (3, 1)
    """

    shape: torch.Size
    dtype: torch.dtype
    requires_grad: bool
    stride: tuple[int, ...]
    memory_format: torch.memory_format | None
    is_quantized: bool
    qparams: dict[str, Any]
