"""Captured modules whose layers compute with integers.

Read schemes.py first, then converting.py.

    lowering/          reference programs as programs of integers
    layers.py          layers with weights of integers
    layer_functions.py what they compute
    observers/         which range a grid is to cover
    affine.py          what integers stand for, and rounding
    schemes.py         how values are written as integers
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
from graphwright.quantization.layer_functions import (
    quantized_conv,
    quantized_conv_transpose,
    quantized_embedding,
    quantized_linear,
)
from graphwright.quantization.layers import (
    QuantizedConv1d,
    QuantizedConv2d,
    QuantizedConv3d,
    QuantizedConvTranspose1d,
    QuantizedConvTranspose2d,
    QuantizedConvTranspose3d,
    QuantizedEmbedding,
    QuantizedLayer,
    QuantizedLinear,
)
from graphwright.quantization.lowering.lower import lower
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
    "QuantizedConv1d",
    "QuantizedConv2d",
    "QuantizedConv3d",
    "QuantizedConvTranspose1d",
    "QuantizedConvTranspose2d",
    "QuantizedConvTranspose3d",
    "QuantizedEmbedding",
    "QuantizedLayer",
    "QuantizedLinear",
    "Scheme",
    "dequantize",
    "dequantize_by",
    "dynamic_int8",
    "fake_quantize_by",
    "grid_of_range",
    "lower",
    "observer_of",
    "quantize",
    "quantize_by",
    "quantized_conv",
    "quantized_conv_transpose",
    "quantized_embedding",
    "quantized_linear",
    "static_int8",
    "weight_grid",
    "weight_only_int4",
    "weight_only_int8",
]

# Sub-rooms and files, the top floor first: a file imports from its own floor and from those after it.
FLOORS = (
    "lowering",
    "layers",
    "layer_functions",
    "observers",
    "affine",
    "schemes",
)
