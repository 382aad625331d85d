"""Fold batch norms into the convolutions and linear layers before or behind them, for inference.

In evaluation mode a batch norm is a fixed scale and shift per channel, and so is what a convolution can absorb into
its weights: one operation instead of two, the same numbers up to rounding.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

from torch import nn

from graphwright.errors import TrainingModeError
from graphwright.ir import Node
from graphwright.ops import is_untouched
from graphwright.passes.fusion.fold_batch_norm import (
    BatchNorm,
    fold_batch_norm,
    fold_batch_norm_before,
    scale_and_shift,
)
from graphwright.passes.fusion.fuse_conv_relu import FuseConvReLU
from graphwright.passes.support.ownership import Ownership
from graphwright.passes.support.submodules import LINEAR_LIKE, TRANSPOSED, LinearLike, ModuleCalls
from graphwright.runtime import GraphModule, expect, graph_of

# The batch norm that treats the features of a layer, its outputs or inputs, as the layer does.
_NORM_OF: dict[type[nn.Module], type[nn.Module]] = {
    nn.Linear: nn.BatchNorm1d,
    nn.Conv1d: nn.BatchNorm1d,
    nn.Conv2d: nn.BatchNorm2d,
    nn.Conv3d: nn.BatchNorm3d,
    nn.ConvTranspose1d: nn.BatchNorm1d,
    nn.ConvTranspose2d: nn.BatchNorm2d,
    nn.ConvTranspose3d: nn.BatchNorm3d,
}
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)

# BatchNorm1d takes two ranks and normalizes dimension 1 of both. Only for these inputs is that the dimension of
# the features that the layer beside it has; for others the fold would be wrong without a word.
_RANK: dict[type[nn.Module], int] = {nn.Linear: 2, nn.Conv1d: 3, nn.ConvTranspose1d: 3}


@dataclass(frozen=True, slots=True)
class FuseConvBatchNorm:
    """Fold every batch norm beside a convolution or linear layer into that layer's weights.

    relu: a ReLU that follows a convolution or linear layer joins it as well, see `FuseConvReLU`.
    into_next: a batch norm with no such layer before it goes into the one behind it, where that is exact: that layer
        does not pad with zeros (which the batch norm would have shifted), or the batch norm shifts nothing.

    The modules of the original model stay as they are: the captured module gets new ones. A layer whose weights are
    used in several places is folded once for each batch norm beside it.

    Left alone: a layer or batch norm whose value has other readers too, subclasses, hooks, parametrizations, batch
    norms that keep no running statistics, pairs with a write or the edge of a `with` block between them. Raises
    PassError, before changing anything, where a batch norm that would be folded is in training mode. Returns the
    number of batch norms folded and ReLUs joined.

    >>> from graphwright import symbolic_trace
    >>> gm = symbolic_trace(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)).eval())
    >>> FuseConvBatchNorm().run(gm)
    1
    >>> [node.target for node in gm.graph.nodes]
    ['input', '0', 'output']
    """

    relu: bool = True
    into_next: bool = True

    def run(self, gm: GraphModule) -> int:
        """Edit a captured module in place; return the number of changes."""
        calls, ownership = ModuleCalls(gm), Ownership(gm)
        nodes = list(graph_of(gm).all_nodes())
        behind = [match for node in nodes if (match := _match_behind(node, calls, ownership))]
        taken = {match.norm_node for match in behind}
        found = [_match_before(node, calls, ownership) for node in nodes] if self.into_next else []
        before = [match for match in found if match is not None and match.norm_node not in taken]
        _refuse_training([*behind, *before])
        _fold_all(behind, calls)
        _fold_all([match.as_it_is_now(calls) for match in before], calls)
        return len(behind) + len(before) + (FuseConvReLU().run(gm) if self.relu else 0)

    def __call__(self, gm: GraphModule) -> int:
        """Do the same as `run`."""
        return self.run(gm)


def fuse_conv_batch_norm(gm: GraphModule) -> int:
    """Fold batch norms into the layers beside them, and ReLUs into those before them; see `FuseConvBatchNorm`.

    >>> from graphwright import symbolic_trace
    >>> gm = symbolic_trace(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU()).eval())
    >>> fuse_conv_batch_norm(gm)
    2
    """
    return FuseConvBatchNorm().run(gm)


# ---- finding and editing


@dataclass(frozen=True, slots=True)
class _Match:
    """A layer and the batch norm beside it; of the two, nothing else reads the first one's value."""

    layer_node: Node
    norm_node: Node
    layer: LinearLike
    norm: BatchNorm
    is_norm_first: bool

    def as_it_is_now(self, calls: ModuleCalls) -> _Match:
        """The match after others were folded: its layer may be another one by now."""
        layer = calls.module(self.layer_node)
        assert isinstance(layer, LINEAR_LIKE)
        return replace(self, layer=layer)


def _match_behind(norm_node: Node, calls: ModuleCalls, ownership: Ownership) -> _Match | None:
    """Return the match that ends in this node: a batch norm that the layer before it can absorb."""
    norm = _norm(norm_node, calls)
    layer_node = calls.input(norm_node) if norm is not None else None
    layer = _layer(layer_node, calls)
    if norm is None or layer is None or not isinstance(layer_node, Node):
        return None
    features = layer.out_features if isinstance(layer, nn.Linear) else layer.out_channels
    if not _fit(layer, features, norm) or len(layer_node.users) != 1:
        return None
    if not ownership.is_untouched_between(layer_node, norm_node):
        return None
    return _Match(layer_node, norm_node, layer, norm, False)


def _match_before(layer_node: Node, calls: ModuleCalls, ownership: Ownership) -> _Match | None:
    """Return the match that ends in this node: a layer that can absorb the batch norm before it."""
    layer = _layer(layer_node, calls)
    norm_node = calls.input(layer_node) if layer is not None else None
    norm = _norm(norm_node, calls)
    if norm is None or layer is None or not isinstance(norm_node, Node):
        return None
    features = layer.in_features if isinstance(layer, nn.Linear) else layer.in_channels
    if not _fit(layer, features, norm) or len(norm_node.users) != 1:
        return None
    if not ownership.is_untouched_between(norm_node, layer_node, calls.input(norm_node)):
        return None
    if not (_reads_only_inputs(layer) or not scale_and_shift(norm)[1].any()):
        return None
    return _Match(layer_node, norm_node, layer, norm, True)


def _norm(node: object, calls: ModuleCalls) -> BatchNorm | None:
    """The batch norm that a node calls, if it keeps statistics and may be replaced."""
    norm = calls.module(node)
    if not isinstance(norm, _BATCH_NORMS) or not _is_replaceable(norm, _BATCH_NORMS, calls):
        return None
    keeps_statistics = norm._buffers.get("running_mean") is not None and norm._buffers.get("running_var") is not None
    return norm if keeps_statistics else None


def _layer(node: object, calls: ModuleCalls) -> LinearLike | None:
    """The layer that a node calls, if it may be replaced."""
    layer = calls.module(node)
    is_layer = isinstance(layer, LINEAR_LIKE) and _is_replaceable(layer, LINEAR_LIKE, calls)
    return layer if is_layer else None  # type: ignore[return-value]


def _fit(layer: LinearLike, features: int, norm: BatchNorm) -> bool:
    is_of_kind = type(norm) is _NORM_OF[type(layer)] and layer.weight.is_floating_point()
    return is_of_kind and features == norm.num_features


def _reads_only_inputs(layer: LinearLike) -> bool:
    """Tell whether each output is a sum over a whole kernel of inputs, none of them a zero that stands for nothing."""
    if isinstance(layer, nn.Linear):
        return True
    if isinstance(layer, TRANSPOSED):
        sizes = (*layer.kernel_size, *layer.stride)
        return set(sizes) == {1} and not any((*layer.padding, *layer.output_padding))
    if layer.padding_mode != "zeros" or layer.padding == "valid":
        return True
    if layer.padding == "same":
        return set(layer.kernel_size) == {1}
    return not any(layer.padding)


def _is_replaceable(module: nn.Module, kinds: tuple[type, ...], calls: ModuleCalls) -> bool:
    """Tell whether a module does what its very class says, and the graph only ever calls it."""
    return type(module) in kinds and is_untouched(module) and not calls.is_read(module)


def _refuse_training(matches: list[_Match]) -> None:
    training = [match.norm_node for match in matches if match.norm.training]
    if training:
        raise TrainingModeError(
            f"Fusion only for eval! batch norm {training[0].target!r} is in training mode: it normalizes by the "
            "statistics of each batch, which no weights can absorb",
            at=training[0].origin,
            fix="call gm.eval() first",
        )


def _fold_all(matches: list[_Match], calls: ModuleCalls) -> None:
    groups: dict[tuple[int, int], list[_Match]] = {}  # the same two modules may follow each other in many places
    for match in matches:
        groups.setdefault((id(match.layer), id(match.norm)), []).append(match)
    for group in groups.values():
        _fold(group, calls)


def _fold(group: list[_Match], calls: ModuleCalls) -> None:
    """Fold one batch norm into one layer, at all places where they follow each other."""
    folded = _folded_layer(group[0])
    calls.replace([match.layer_node for match in group], folded, "folded")
    for match in group:
        if type(match.layer) in _RANK:
            _expect_rank(match, _RANK[type(match.layer)], calls)
        stands_for_it = calls.input(match.norm_node) if match.is_norm_first else match.layer_node
        match.norm_node.replace_all_uses_with(stands_for_it)
        calls.erase(match.norm_node)


def _folded_layer(match: _Match) -> LinearLike:
    """Make a layer like this one, with the batch norm in its weights."""
    layer, norm = match.layer, match.norm
    fold = fold_batch_norm_before if match.is_norm_first else fold_batch_norm
    groups = 1 if isinstance(layer, nn.Linear) else layer.groups
    weight, bias = fold(layer.weight, layer.bias, norm, transposed=isinstance(layer, TRANSPOSED), groups=groups)
    # A copy of everything but the tensors, which are about to be replaced.
    folded = copy.deepcopy(layer, {id(parameter): parameter for parameter in layer.parameters()})
    folded.weight = nn.Parameter(weight, requires_grad=layer.weight.requires_grad)
    folded.bias = nn.Parameter(bias, requires_grad=layer.weight.requires_grad)
    return folded


def _expect_rank(match: _Match, rank: int, calls: ModuleCalls) -> None:
    """Guard the rank of what the first of the two reads: this graph does not say it."""
    graph, first = match.layer_node.graph, match.norm_node if match.is_norm_first else match.layer_node
    with graph.inserting_before(first):
        dim = graph.call_method("dim", (calls.input(first),))
        where = f"batch norm {match.norm_node.target!r}, folded for inputs of {rank} dimensions"
        graph.call_function(expect, (dim, rank, where))
