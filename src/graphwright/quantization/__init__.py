"""Captured modules whose layers compute with integers.

A captured module comes in, a captured module of integers goes out. Read schemes.py first, then affine.py.

    algorithms/    better weights, biases and scales for the same integers
    observers/     what is learned of values: which range a grid is to cover
    affine.py      what integers stand for, and rounding
    schemes.py     how values are written as integers
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
from graphwright.quantization.observers.by_name import observer_of
from graphwright.quantization.observers.observer import Observer
from graphwright.quantization.observers.weight_grid import weight_grid
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
    "Observer",
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
    "observer_of",
    "quantize",
    "quantize_by",
    "static_int8",
    "weight_grid",
    "weight_only_int4",
    "weight_only_int8",
]

# Files, the top floor first: a file imports from those after it.
FLOORS = ("algorithms", "observers", "affine", "schemes")
