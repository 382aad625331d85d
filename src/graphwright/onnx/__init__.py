from graphwright.onnx.export import export
from graphwright.onnx.program import OnnxProgram
__all__ = ["OnnxProgram", "export"]
