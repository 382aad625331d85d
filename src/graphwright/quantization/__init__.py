"""Captured modules whose layers compute with integers.

Read schemes.py first.

    schemes.py     how values are written as integers
    affine.py      what integers stand for, and rounding
    layers.py      layers with weights of integers
    layer_functions.py  what they compute
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
    "quantize",
    "quantize_by",
    "quantized_conv",
    "quantized_conv_transpose",
    "quantized_embedding",
    "quantized_linear",
    "static_int8",
    "weight_only_int4",
    "weight_only_int8",
]

# Files, the top floor first: a file imports from those after it.
FLOORS = ("layers", "layer_functions", "affine", "schemes")
