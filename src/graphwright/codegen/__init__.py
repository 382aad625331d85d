"""Graph -> Python source -> function.

A graph comes in; source text that runs, and the function compiled from it, go out. The text is the truth: what is
printed is what runs. Read function.py first.
"""

from graphwright.codegen.boxed import BoxedCodeGen
from graphwright.codegen.compiler import compile_source
from graphwright.codegen.custom import CodeGen, is_plain, on_generate_code
from graphwright.codegen.details import Details, tensor_of, tensor_text
from graphwright.codegen.function import graph_to_source
from graphwright.codegen.python_code import PythonCode
from graphwright.codegen.pytree import PyTreeCodeGen, PyTreeInfo
from graphwright.codegen.readable import graph_to_readable_source, readable_source
from graphwright.codegen.spelling import Globals, argument
from graphwright.codegen.stack_traces import parse_stack_trace

__all__ = [
    "BoxedCodeGen",
    "CodeGen",
    "Details",
    "Globals",
    "PyTreeCodeGen",
    "PyTreeInfo",
    "PythonCode",
    "argument",
    "compile_source",
    "graph_to_readable_source",
    "graph_to_source",
    "is_plain",
    "on_generate_code",
    "parse_stack_trace",
    "readable_source",
    "tensor_of",
    "tensor_text",
]
