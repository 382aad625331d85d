"""Programs made ready: layers as modules, nothing in place; and for one mode, evaluation, with batch norms folded."""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence

from torch import Tensor

from graphwright.analysis import ShapesOfCalls
from graphwright.engines import Call
from graphwright.ir import Node
from graphwright.passes import (
    FoldConditions,
    FuseConvBatchNorm,
    RemoveDeadCode,
    RemoveInPlace,
    RemoveNoOps,
    SetTraining,
    UseModules,
    is_inside_used,
    substitute,
    take_parameter_out,
)
from graphwright.quantization.programs.products import use_linear_functions, use_linear_layers
from graphwright.quantization.sites import LAYERS
from graphwright.runtime import GraphModule, graphs_of, has_attribute, read_attribute


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


def simplify(gm: GraphModule, calls: Sequence[Call]) -> None:
    """Make a program one of layers in evaluation, with batch norms folded and nothing in place."""
    read = _read(gm)
    SetTraining(False).run(gm)
    FoldConditions().run(gm)
    _fix_dtypes(gm)
    simplify_in_both_modes(gm, calls)
    RemoveNoOps(inference=True).run(gm)
    use_linear_layers(gm)
    FuseConvBatchNorm(relu=False).run(gm)
    RemoveDeadCode().run(gm)
    _let_go(gm, read - _read(gm))


def _fix_dtypes(gm: GraphModule) -> None:
    """Write the dtypes of parameters and buffers, where a program reads them: a layer's is that of its floats."""
    for node in [node for graph in graphs_of(gm) for node in graph.all_nodes() if node.target is getattr]:
        held = node.args[0]
        if node.args[1:] == ("dtype",) and isinstance(held, Node) and held.op == "get_attr":
            tensor = read_attribute(gm, str(held.target))
            if isinstance(tensor, Tensor):
                substitute(node, tensor.dtype)


def _read(gm: GraphModule) -> set[str]:
    """The paths of what a program reads of modules."""
    return {str(node.target) for graph in graphs_of(gm) for node in graph.all_nodes() if node.op == "get_attr"}


def _let_go(gm: GraphModule, paths: Collection[str]) -> None:
    """Take parameters out of modules that nothing calls: those that layers have now, and that files need not have."""
    for path in paths:
        owner, _, name = path.rpartition(".")
        module = gm.get_submodule(owner) if has_attribute(gm, path) else gm
        if name in module._parameters and owner and not is_inside_used(gm, path):
            take_parameter_out(gm, path)


def simplify_in_both_modes(gm: GraphModule, calls: Sequence[Call]) -> None:
    """Make a program one of layers with nothing in place, which trains as it did."""
    shapes = ShapesOfCalls(gm, calls)
    for node in gm.graph.all_nodes():
        if isinstance(shapes.known_value(node), Tensor):
            node.meta["tensor_meta"] = shapes[node]
    RemoveInPlace().run(gm)
    RemoveNoOps().run(gm)
    use_linear_functions(gm)
    UseModules(LAYERS).run(gm)
    for node in gm.graph.all_nodes():
        if node._meta:
            node.meta.pop("tensor_meta", None)
