"""Modules of other systems where a captured one is looked at: interpreters, shapes, costs, parts, drawings."""

from __future__ import annotations

from typing import Any

import torch.fx

from graphwright.interop.fx import from_fx
from graphwright.interop.torchscript import write_for_torchscript
from graphwright.ir import Graph
from graphwright.runtime import ForeignModules, read_foreign, write_scripts

__all__ = ["read_others"]


def read_others() -> None:
    """Have functions that only look at a captured module take torch.fx's, and torch.jit.script take captured ones."""
    write_scripts(write_for_torchscript)
    read_foreign(ForeignModules(_is_fx, from_fx, _note_back, "from_fx"))


def _is_fx(module: Any) -> bool:
    return isinstance(module, torch.fx.GraphModule)


def _note_back(module: torch.fx.GraphModule, graph: Graph) -> None:
    noted = {node.name: node for node in graph.nodes}
    for node in module.graph.nodes:
        if node.name in noted:
            node.meta.update(noted[node.name].meta)
