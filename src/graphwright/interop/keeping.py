"""What a target keeps of guards and of attributes that are read in each call, and what it says where it cannot."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterable
from typing import Literal

import torch
from torch import nn

from graphwright.ir import Node
from graphwright.passes import remove_guards
from graphwright.runtime import GraphModule, expect_modules, expect_outside, graph_of, is_conditional, read_attribute

Guards = Literal["keep", "drop"]


def with_guards(module: GraphModule, guards: Guards) -> GraphModule:
    """The module, or a copy without guards where these are to be dropped. Raises ValueError for another word."""
    if guards not in ("keep", "drop"):
        raise ValueError(f"guards is 'keep' or 'drop', not {guards!r}")
    if guards == "keep":
        return module
    other = copy.copy(module)
    remove_guards(other)
    return other


def check_outside(module: GraphModule) -> None:
    """Check now what a target cannot check later, since it has neither these modules nor Python's global names.

    Raises GuardError for what is no more as the program was captured.
    """
    graph = graph_of(module)
    if is_conditional(graph):
        expect_modules(module)
    for node in graph.all_nodes():
        if node.target is expect_outside:
            expect_outside(*node.args)


def frozen_attributes(module: nn.Module, nodes: Iterable[Node]) -> list[str]:
    """The paths of numbers and objects that nodes read of a module in each call; training flags are no such thing.

    >>> import graphwright
    >>> class Scaled(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.scale, self.weight = 2.0, nn.Parameter(torch.ones(1))
    ...     def forward(self, x):
    ...         return x * self.scale + self.weight
    >>> gm = graphwright.trace(Scaled(), torch.ones(3))
    >>> frozen_attributes(gm, gm.graph.nodes)
    ['scale']
    """
    paths = dict.fromkeys(str(node.target) for node in nodes if node.op == "get_attr")
    return [path for path in paths if _is_live(module, path)]


def _is_live(module: nn.Module, path: str) -> bool:
    if path.rpartition(".")[2] == "training" or path in graph_of(module).constants:
        return False
    return not isinstance(read_attribute(module, path), torch.Tensor | nn.Module)


_NAMED = 6


def warn_of_frozen(paths: list[str], target: str) -> None:
    """Warn, once, of attributes that a program reads in each call and a target does not: the first of them by name."""
    if paths:
        several = len(paths) > 1
        more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
        warnings.warn(
            f"{', '.join(paths[:_NAMED])}{more} {'are constants' if several else 'is a constant'} of {target}: "
            f"the program reads {'them' if several else 'it'} of its modules in each call",
            stacklevel=3,
        )
