"""What kernels of quantized layers share: sums, activations, rounding, and how their results compare."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from graphwright.engines import Calls, activated
from graphwright.quantization.affine import dequantize, quantize
from graphwright.quantization.lowering.integers import Steps
from graphwright.runtime import sums_bytes_exactly

SIGNAL_TO_NOISE = 40.0  # in decibels, of floats beside those of the program


def has_onednn() -> bool:
    """Tell whether this build of torch has kernels of oneDNN, by the names that its newer releases give them."""
    return bool(torch.backends.mkldnn.is_available()) and hasattr(torch.ops.onednn, "qconv_pointwise")


def has_exact_onednn() -> bool:
    """Tell whether this build has them, and they sum products of bytes exactly."""
    return has_onednn() and sums_bytes_exactly()


# ---- results


def reason_against(given: Tensor, expected: Tensor) -> str:
    """Say why a result is none: integers off by more than one step, floats with more noise than 40 dB below.

    >>> one = torch.tensor([1, 2], dtype=torch.uint8)
    >>> reason_against(one + 1, one), reason_against(one + 2, one)
    ('', 'off by 2 steps')
    """
    if (given.dtype, given.shape) != (expected.dtype, expected.shape):
        return f"it gives {given.dtype} {tuple(given.shape)}"
    if not expected.numel():
        return ""
    if not expected.is_floating_point():
        steps = int((given.int() - expected.int()).abs().max())
        return f"off by {steps} steps" if steps > 1 else ""
    noise = (given - expected).float().square().sum().item()
    signal = expected.float().square().sum().item()
    if noise <= signal * 10 ** (-SIGNAL_TO_NOISE / 10):
        return ""
    return f"noise of {noise / max(signal, 1e-30):.1e} of the signal"


def values_like(shape: tuple[int, ...], steps: Steps | None) -> Tensor:
    """Random values of a tensor: floats, or integers around the middle of those that there are; images by pixels."""
    x = torch.randn(shape)
    if steps is not None:
        middle = 128 if steps.is_byte else 0
        x = x.mul_(40).round_().add_(middle).clamp_(middle - 128, middle + 127).to(steps.dtype)
    return x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x


# ---- as the program has it


def ended(calls: Calls, value: Any, added: Any, activation: str | None, output: Steps | None, quickly: bool) -> Any:
    """End a layer: add a value, call the activation, and write integers, each where there is one."""
    if added is not None:
        value = calls.call(torch.Tensor.add_, value, added)
    value = activated(calls, activation, value)
    return value if output is None else as_integers(calls, value, output, quickly)


# ---- conversions


def _half(zero_point: int) -> Tensor:
    return torch.tensor(zero_point + 0.5)


def as_integers(calls: Calls, value: Any, steps: Steps, quickly: bool) -> Any:
    """Write floats as integers, as the program does, or quickly: then ties may be rounded up, by a step."""
    if not quickly:
        return calls.call(quantize, value, steps.scale, steps.zero_point, steps.dtype)
    if not steps.is_byte:
        value = calls.call(torch.mul, value, 1 / steps.scale)
        value = calls.call(torch.Tensor.round_, calls.call(torch.Tensor.add_, value, steps.zero_point))
        return calls.call(torch.Tensor.char, calls.call(torch.Tensor.clamp_, value, -128, 127))
    half = calls.packed(_half, (), steps.zero_point)
    value = calls.call(torch.add, half, value, alpha=1 / steps.scale)
    value = calls.call(
        torch.Tensor.short, calls.call(torch.Tensor.clamp_, value, 0, 255)
    )  # cuts what is after the point
    return calls.call(torch.Tensor.byte, value)  # from short it is three times as fast as from float


def as_floats(calls: Calls, value: Any, steps: Steps, quickly: bool) -> Any:
    """Give what integers stand for, as the program does, or by fewer steps of Python's."""
    if not quickly:
        return calls.call(dequantize, value, steps.scale, steps.zero_point)
    if not steps.zero_point:
        return calls.call(torch.mul, value, steps.scale)
    moved = calls.call(torch.Tensor.sub_, calls.call(torch.Tensor.float, value), steps.zero_point)  # 0 is exactly 0
    return calls.call(torch.Tensor.mul_, moved, steps.scale)
