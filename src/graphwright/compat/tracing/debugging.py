"""Stopping in generated code."""

from __future__ import annotations

from graphwright.runtime import GraphModule

__all__ = ["set_trace"]


def set_trace(gm: GraphModule) -> GraphModule:
    """Have the generated code of a module stop in pdb at its start, until it is generated anew.

    >>> from graphwright import symbolic_trace
    >>> "pdb.set_trace()" in set_trace(symbolic_trace(lambda x: x + 1)).code
    True
    """
    stop = "import pdb; pdb.set_trace()\n"
    with gm.graph.on_generate_code(lambda before: lambda body: [stop, *(before(body) if before else body)]):  # type: ignore[attr-defined]
        gm.recompile()
    return gm
