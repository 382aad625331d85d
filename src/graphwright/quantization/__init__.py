"""Captured modules whose layers compute with integers.

Read schemes.py first, then converting.py.

    api.py             `quantize_model`: all steps in one call
    lowering_by_engine.py  `lower`: the fastest of what engines make of it
    exporting.py       `to_onnx`: as an ONNX model
    dialects.py        grids as other backends want them
    searching.py       what layers cost, and which to leave in float
    converting.py      `convert`: the program with integers, in plain Python
    improving/         what lowers the error, on calibration data
    calibrating.py     `calibrate`: data run through a prepared module
    preparing.py       `prepare`: values observed where they will be integers
    training/          values and weights rounded in programs that train
    record.py          what became of each layer, and why
    drawing.py         a picture of what each loses
    grids.py           which values share a grid
    results.py         which results may be written as integers
    decide.py          what becomes of each layer, sum and concatenation
    programs/          programs made ready, and observers in them
    sites.py           where they are
    attention.py       attention as one module, as layers
    backends.py        what backends compute with integers
    mapping.py         rules of the user's
    lowering/          reference programs as programs of integers
    in_place.py        `quantize_`: layers of a module, without a capture
    recurrent_layers.py    LSTM, GRU and their cells with weights of integers
    recurrent_functions.py  what they compute
    layers.py          layers with weights of integers
    layer_functions.py what they compute
    algorithms/        better weights, biases and scales for the same integers
    observers/         which range a grid is to cover
    affine.py          what integers stand for, and rounding
    schemes.py         how values are written as integers
"""

from graphwright.quantization import backends
from graphwright.quantization.affine import (
    Grid,
    dequantize,
    dequantize_by,
    fake_quantize_by,
    grid_of_range,
    quantize,
    quantize_by,
)
from graphwright.quantization.api import quantize_model
from graphwright.quantization.backends import Backend
from graphwright.quantization.calibrating import calibrate
from graphwright.quantization.converting import convert
from graphwright.quantization.dialects import in_dialect
from graphwright.quantization.exporting import to_onnx
from graphwright.quantization.improving.judging import sqnr
from graphwright.quantization.in_place import quantize_
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
from graphwright.quantization.lowering_by_engine import lower
from graphwright.quantization.mapping import QConfigMapping, Rule
from graphwright.quantization.observers.by_name import observer_of
from graphwright.quantization.observers.observer import Observer
from graphwright.quantization.observers.weight_grid import weight_grid
from graphwright.quantization.preparing import Preparation, preparation_of, prepare, with_mapping
from graphwright.quantization.record import Explanation, Quantization, Row, quantization_of
from graphwright.quantization.recurrent_functions import (
    quantized_gru,
    quantized_gru_cell,
    quantized_lstm,
    quantized_lstm_cell,
)
from graphwright.quantization.recurrent_layers import (
    QuantizedGRU,
    QuantizedGRUCell,
    QuantizedLSTM,
    QuantizedLSTMCell,
    QuantizedRecurrent,
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
from graphwright.quantization.searching import Sensitivity, search, sensitivity
from graphwright.quantization.training.prepared_module import TrainingModule

__all__ = [
    "Backend",
    "Explanation",
    "Granularity",
    "Grid",
    "Observer",
    "Preparation",
    "PerAxis",
    "PerGroup",
    "PerTensor",
    "PerToken",
    "QConfig",
    "QConfigMapping",
    "Quantization",
    "QuantizedConv1d",
    "QuantizedConv2d",
    "QuantizedConv3d",
    "QuantizedConvTranspose1d",
    "QuantizedConvTranspose2d",
    "QuantizedConvTranspose3d",
    "QuantizedEmbedding",
    "QuantizedGRU",
    "QuantizedGRUCell",
    "QuantizedLSTM",
    "QuantizedLSTMCell",
    "QuantizedLayer",
    "QuantizedLinear",
    "QuantizedRecurrent",
    "Row",
    "Rule",
    "Scheme",
    "Sensitivity",
    "TrainingModule",
    "backends",
    "calibrate",
    "convert",
    "dequantize",
    "dequantize_by",
    "dynamic_int8",
    "fake_quantize_by",
    "grid_of_range",
    "in_dialect",
    "lower",
    "observer_of",
    "preparation_of",
    "prepare",
    "quantization_of",
    "quantize",
    "quantize_",
    "quantize_by",
    "quantize_model",
    "quantized_conv",
    "quantized_conv_transpose",
    "quantized_embedding",
    "quantized_gru",
    "quantized_gru_cell",
    "quantized_linear",
    "quantized_lstm",
    "quantized_lstm_cell",
    "search",
    "sensitivity",
    "sqnr",
    "static_int8",
    "to_onnx",
    "weight_grid",
    "weight_only_int4",
    "weight_only_int8",
    "with_mapping",
]

# Sub-rooms and files, the top floor first: a file imports from its own floor and from those after it.
FLOORS = (
    "api",
    "lowering_by_engine",
    "exporting",
    "dialects",
    "searching",
    "converting",
    "improving",
    "calibrating",
    "preparing",
    "training",
    "record",
    "drawing",
    "grids",
    "results",
    "decide",
    "programs",
    "sites",
    "attention",
    "backends",
    "mapping",
    "lowering",
    "in_place",
    "recurrent_layers",
    "recurrent_functions",
    "layers",
    "layer_functions",
    "algorithms",
    "observers",
    "affine",
    "schemes",
)
