"""Graph -> Python source -> function.

A graph comes in; source text that runs, and the function compiled from it, go out. The text is the truth: what is
printed is what runs, but for when modules are looked up, where they are called or once at the start of a call. Read
function.py first.

    boxed.py         code that takes its inputs in one list and empties it
    pytree.py        programs whose arguments have a structure
    custom.py        code that users change: another signature, another `return`, another body
    details.py       types and shapes of known values, the user's lines, colors, profiler ranges
    stack_traces.py  which line of the user's program a stack trace ends with
    readable/        code as a person would write it: nested expressions, `if`, `for` and `while`, comments
    function.py      the text of one function, a statement a node
    regions.py       which nodes form `with` blocks
    compiler.py      text -> function
    python_code.py   the text with what it needs, and where each line comes from
    flattening.py    taking arguments with a structure apart, in the generated code
    spelling/        values, names, operators and long lines
"""

from graphwright.codegen.boxed import BoxedCodeGen
from graphwright.codegen.compiler import compile_source
from graphwright.codegen.custom import CodeGen, is_plain, on_generate_code
from graphwright.codegen.details import Details, tensor_of, tensor_text
from graphwright.codegen.function import graph_to_source
from graphwright.codegen.python_code import PythonCode
from graphwright.codegen.pytree import PyTreeCodeGen, PyTreeInfo
from graphwright.codegen.readable.readable import WITHOUT_DEL, graph_to_readable_source, readable_source
from graphwright.codegen.regions import region_exits
from graphwright.codegen.spelling.arguments import Globals, argument
from graphwright.codegen.stack_traces import parse_stack_trace

__all__ = [
    "WITHOUT_DEL",
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
    "region_exits",
    "tensor_of",
    "tensor_text",
]

# The sub-rooms and files from the top floor to the bottom: imports go down.
FLOORS = (
    "boxed", "pytree", "custom", "details", "stack_traces", "readable", "function", "regions", "compiler",
    "python_code", "flattening", "spelling",
)  # fmt: skip
