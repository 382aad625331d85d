"""Captured modules whose layers compute with integers.

schemes.py     how values are written as integers
affine.py      what integers stand for, and rounding
"""

from graphwright.quantization.affine import (
    Grid,
    dequantize,
    dequantize_by,
    fake_quantize_by,
    grid_of_range,
    quantize,
    quantize_by,
)
from graphwright.quantization.schemes import (
    Granularity,
    PerAxis,
    PerGroup,
    PerTensor,
    PerToken,
    QConfig,
    Scheme,
    dynamic_int8,
    static_int8,
    weight_only_int4,
    weight_only_int8,
)

__all__ = [
    "Granularity",
    "Grid",
    "PerAxis",
    "PerGroup",
    "PerTensor",
    "PerToken",
    "QConfig",
    "Scheme",
    "dequantize",
    "dequantize_by",
    "dynamic_int8",
    "fake_quantize_by",
    "grid_of_range",
    "quantize",
    "quantize_by",
    "static_int8",
    "weight_only_int4",
    "weight_only_int8",
]

# Files, the top floor first: a file imports from those after it.
FLOORS = ("affine", "schemes")
