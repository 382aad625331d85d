"""Which conversions of a captured module would make the dtypes wrong that its program asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from graphwright.errors import GuardError
from graphwright.ir import Node
from graphwright.runtime.entries import STATE, is_readable

__all__ = ["refuse_conversion"]


def refuse_conversion(module: nn.Module, convert: Callable[[Any], Any]) -> None:
    """Raise GuardError where parameters would get another floating dtype, and a program in a module mentions one.

    A program has the dtypes that it asked for as constants.
    """
    states = [each.__dict__[STATE] for each in module.modules() if STATE in each.__dict__]  # any of which may refuse
    graphs = {id(entry.graph): entry.graph for each in states for entry in each.entries.values()}
    nodes = (node for graph in graphs.values() for node in graph.all_nodes())
    if not is_readable(module) or not any(map(_mentions_float_dtype, nodes)):
        return
    parameter = next((each for each in module.parameters() if each.is_floating_point()), None)
    if parameter is not None and convert(torch.empty(0, dtype=parameter.dtype)).dtype != parameter.dtype:
        raise GuardError(
            f"the program was captured with {parameter.dtype} parameters and asks for dtypes on its way",
            fix="convert the original model, then capture it",
        )


def _mentions_float_dtype(node: Node) -> bool:
    values = (*node._args, *node._kwargs.values())
    return any(isinstance(value, torch.dtype) and value.is_floating_point for value in values)
