"""Source of a PyTorch program -> graph, with every `if`, `while` and `for`.

A module or function comes in, whose source is read and not run; a GraphModule goes out. Read script.py first, then
values.py and types.py for what is known of a program while it is compiled, statements.py and branches.py for how it is.
"""

from graphwright.script.marks import annotate, export, fork, ignore, is_instance, is_scripting, unused, wait
from graphwright.script.script import script

__all__ = ["annotate", "export", "fork", "ignore", "is_instance", "is_scripting", "script", "unused", "wait"]
