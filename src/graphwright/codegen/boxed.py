"""Programs whose code takes one list and empties it, so that no caller keeps the inputs alive during the run."""

from __future__ import annotations

import re

from graphwright.codegen.custom import CodeGen

_NAME = re.compile(r"\w+")


class BoxedCodeGen(CodeGen):
    """Writes a function of one list of arguments, which is empty once their names are bound.

    >>> import graphwright
    >>> gm = graphwright.symbolic_trace(lambda a, b: a - b)
    >>> gm.graph.set_codegen(BoxedCodeGen())
    >>> values = [5, 2]
    >>> gm(values), values
    (3, [])
    """

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str, *, expanded_def: bool = False) -> str:
        """Write the `def` line of one parameter, and the lines that take its items."""
        names = [match[0] for match in map(_NAME.search, free_vars) if match and match[0] != "self"]
        lines = ["args_iter = iter(args_list)", *(f"{name} = next(args_iter)" for name in names), "args_list.clear()"]
        definition = super().gen_fn_def(["self", "args_list"], maybe_return_annotation)
        return "\n    ".join([definition, *(lines if names else [])])
