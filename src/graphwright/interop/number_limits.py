"""What `torch.finfo` says of a dtype, as a function that TorchScript reads, which has no `torch.finfo`."""

from __future__ import annotations

import torch

LIMITS = ("eps", "max", "min", "resolution", "smallest_normal", "tiny", "bits")  # what `limits_of` gives, in its order


def limits_of(dtype: torch.dtype) -> list[float]:
    """The limits of the numbers of a dtype.

    >>> limits_of(torch.float32)[LIMITS.index("min")] == torch.finfo(torch.float32).min
    True
    """
    if dtype == torch.float32:
        return _limits(1.1920928955078125e-07, 3.4028234663852886e38, 1e-6, 1.1754943508222875e-38, 32.0)
    if dtype == torch.float64:
        return _limits(2.220446049250313e-16, 1.7976931348623157e308, 1e-15, 2.2250738585072014e-308, 64.0)
    if dtype == torch.bfloat16:
        return _limits(0.0078125, 3.3895313892515355e38, 0.01, 1.1754943508222875e-38, 16.0)
    if dtype == torch.float16:
        return _limits(0.0009765625, 65504.0, 0.001, 6.103515625e-05, 16.0)
    raise TypeError("torch.finfo() requires a floating point input type.")


def _limits(eps: float, largest: float, resolution: float, smallest: float, bits: float) -> list[float]:
    return [eps, largest, -largest, resolution, smallest, smallest, bits]
