"""Source of a PyTorch program -> graph, with every `if`, `while` and `for`.

A module or function comes in, whose source is read and not run; a GraphModule goes out. Read script.py first, then
program/values.py and types.py for what is known of a program while it is compiled, statements/statements.py and
statements/branches.py for how it is.

    script.py       a program's source in, a captured module out
    compiler.py     the compiler: its parts, which know each other only through here
    calls/          calls: who is called decides how
    expressions/    expressions, and what names, operators and conditions mean
    statements/     statements: how each may end, and what variables are afterwards
    program/        what is known of a program while it is compiled
    marks.py        what programs say to `script`
    tensors.py      what operations of torch give
    annotations.py  from annotations and plain values to types
    types.py        the types of values, and how two become one
"""

from graphwright.script.marks import annotate, export, fork, ignore, is_instance, is_scripting, unused, wait
from graphwright.script.script import script

__all__ = ["annotate", "export", "fork", "ignore", "is_instance", "is_scripting", "script", "unused", "wait"]

# The sub-rooms and files from the top floor to the bottom: imports go down.
FLOORS = (
    "script", "compiler", "calls", "expressions", "statements", "program", "marks", "tensors", "annotations",
    "types",
)  # fmt: skip
