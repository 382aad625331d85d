"""Graph -> Python source -> function.

A graph comes in; source text that runs, and the function compiled from it, go out. The text is the truth: what is
printed is what runs. Read function.py first.
"""

from graphwright.codegen.compiler import compile_source
from graphwright.codegen.function import PythonCode, graph_to_source
from graphwright.codegen.readable import graph_to_readable_source, readable_source
from graphwright.codegen.spelling import Globals, argument

__all__ = [
    "Globals",
    "PythonCode",
    "argument",
    "compile_source",
    "graph_to_readable_source",
    "graph_to_source",
    "readable_source",
]
