"""Captured modules as ONNX models, with branches and loops on data as If and Loop.

A captured module, or one that is captured first, and example inputs come in; an `OnnxProgram` goes out. Read export.py
first.

    onnxruntime_engine.py  pieces of programs that ONNX Runtime runs for `graphwright.engines`
    openvino_engine.py     the same for OpenVINO
    export.py         the export of one program
    assumptions.py    what torch.export assumes of open sizes, tried out
    checking.py       a model beside its program
    apart.py          a model in a process of its own, which it may end
    running_apart.py  what that process runs
    original.py       the program, run at sizes of its inputs
    program.py        a model, how arguments become its inputs, and what is known of it
    overflow.py       sessions whose sums of integers do not overflow
    sizes.py          example sizes that leave sizes open, and which sizes stay so
    inputs.py         arguments of a program as inputs of a model
    objects.py        objects of arguments and results, taken apart and made again
    running.py        a captured program run while torch.export watches
    python_calls.py   Python's functions of tensors, and texts of values
    layers.py         layers as what they come to
    translation.py    our operators as If and Loop, and some as runtimes fuse them
    quantize_linear.py  quantization as QuantizeLinear and DequantizeLinear
    optimizing.py     onnxscript's optimizer, weights left as they are
    module_functions.py  modules as functions of a model
    regions.py        branches and loops as operators of tensors and sizes
    values.py         what bodies give and take, as tensors
    torch_private.py  what is taken of torch without a promise that it stays
"""

from graphwright.errors import ExportError

try:
    import onnx_ir
    import onnxruntime  # type: ignore[import-untyped]
    import onnxscript
except ImportError as error:
    raise ExportError(f"graphwright.onnx needs {error.name}", fix="pip install graphwright[onnx]") from error

from graphwright.onnx.export import export
from graphwright.onnx.program import OnnxProgram, OnnxReport

del onnx_ir, onnxruntime, onnxscript

__all__ = ["ExportError", "OnnxProgram", "OnnxReport", "export"]

# Files, the top floor first: a file imports from its own floor and from those after it.
FLOORS = (
    "openvino_engine",
    "onnxruntime_engine",
    "export",
    "assumptions",
    "apart",
    "running_apart",
    "checking",
    "program",
    "original",
    "overflow",
    "sizes",
    "inputs",
    "objects",
    "running",
    "python_calls",
    "layers",
    "translation",
    "quantize_linear",
    "optimizing",
    "module_functions",
    "regions",
    "values",
    "torch_private",
)
