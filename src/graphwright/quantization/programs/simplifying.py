"""Programs made ready: layers as modules, nothing in place; and for one mode, evaluation, with batch norms folded."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from graphwright.analysis import Shapes
from graphwright.passes import (
    FoldConditions,
    FuseConvBatchNorm,
    RemoveDeadCode,
    RemoveInPlace,
    RemoveNoOps,
    SetTraining,
    UseModules,
)
from graphwright.quantization.programs.products import use_linear_layers
from graphwright.quantization.sites import LAYERS
from graphwright.runtime import GraphModule

__all__ = ["simplify", "simplify_in_both_modes", "with_own_modules"]


def with_own_modules(gm: GraphModule) -> GraphModule:
    """Copy a captured module with all of its modules, but with the same tensors.

    >>> import graphwright
    >>> from torch import nn
    >>> gm = graphwright.symbolic_trace(nn.Sequential(nn.Sequential(nn.Linear(2, 2))))
    >>> one, other = (each.get_submodule("0.0") for each in (gm, with_own_modules(gm)))
    >>> one is other, one.bias is other.bias
    (False, True)
    """
    kept = [*gm.parameters(), *gm.buffers(), *gm.meta.values()]
    return copy.deepcopy(gm, {id(each): each for each in kept})


def simplify(gm: GraphModule, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Make a program one of layers in evaluation, with batch norms folded and nothing in place."""
    SetTraining(False).run(gm)
    FoldConditions().run(gm)
    simplify_in_both_modes(gm, args, kwargs)
    RemoveNoOps(inference=True).run(gm)
    use_linear_layers(gm)
    FuseConvBatchNorm(relu=False).run(gm)
    RemoveDeadCode().run(gm)


def simplify_in_both_modes(gm: GraphModule, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Make a program one of layers with nothing in place, which trains as it did."""
    shapes = Shapes(gm, *args, **kwargs)
    for node in gm.graph.all_nodes():
        if isinstance(shapes.known_value(node), Tensor):
            node.meta["tensor_meta"] = shapes[node]
    RemoveInPlace().run(gm)
    RemoveNoOps().run(gm)
    UseModules(LAYERS).run(gm)
    for node in gm.graph.all_nodes():
        if node._meta:
            node.meta.pop("tensor_meta", None)
