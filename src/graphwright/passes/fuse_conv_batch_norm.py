"""Fold batch norms into the convolutions and linear layers that feed them, for inference.

In evaluation mode a batch norm is a fixed scale and shift per channel, and so is what a convolution can absorb into
its weights: one operation instead of two, the same numbers up to rounding.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from graphwright.errors import PassError, TrainingModeError
from graphwright.ir import Node
from graphwright.ops import is_untouched
from graphwright.passes.fuse_conv_relu import FuseConvReLU
from graphwright.passes.submodules import LINEAR_LIKE, TRANSPOSED, Calls, LinearLike
from graphwright.runtime import GraphModule, expect, graph_of

__all__ = ["FuseConvBatchNorm", "fold_batch_norm", "fuse_conv_batch_norm", "scale_and_shift"]

BatchNorm = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d

_FOLLOWED_BY: dict[type[nn.Module], type[nn.Module]] = {
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
# the features that the layer before it makes; for others the fold would be wrong without a word.
_RANK: dict[type[nn.Module], int] = {nn.Linear: 2, nn.Conv1d: 3, nn.ConvTranspose1d: 3}


@dataclass(frozen=True, slots=True)
class FuseConvBatchNorm:
    """Fold every batch norm that follows a convolution or linear layer into that layer's weights.

    With `relu`, a ReLU that follows a convolution or linear layer joins it as well, see `FuseConvReLU`. Returns the
    number of batch norms folded and ReLUs joined.

    The modules of the original model stay as they are: the captured module gets new ones. A layer whose weights are
    used in several places is folded once for each batch norm that follows it.

    Left alone: a layer whose value has other readers too, subclasses, hooks, parametrizations, batch norms that
    keep no running statistics. Raises PassError, before changing anything, where a batch norm that would be folded
    is in training mode.

    >>> from graphwright import symbolic_trace
    >>> gm = symbolic_trace(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)).eval())
    >>> FuseConvBatchNorm()(gm)
    1
    >>> [node.target for node in gm.graph.nodes]
    ['input', '0', 'output']
    """

    relu: bool = True

    def __call__(self, gm: GraphModule) -> int:
        calls = Calls(gm)
        matches = [match for node in graph_of(gm).all_nodes() if (match := _match(node, calls))]
        _refuse_training(matches)
        groups: dict[tuple[int, int], list[_Match]] = {}  # the same two modules may follow each other in many places
        for match in matches:
            groups.setdefault((id(match.layer), id(match.norm)), []).append(match)
        for group in groups.values():
            _fold(group, calls)
        return len(matches) + (FuseConvReLU()(gm) if self.relu else 0)


def fuse_conv_batch_norm(gm: GraphModule) -> int:
    """Fold batch norms, and ReLUs, into the layers before them; see `FuseConvBatchNorm`.

    >>> from graphwright import symbolic_trace
    >>> gm = symbolic_trace(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU()).eval())
    >>> fuse_conv_batch_norm(gm)
    2
    """
    return FuseConvBatchNorm()(gm)


# ---- the arithmetic


def scale_and_shift(norm: BatchNorm) -> tuple[Tensor, Tensor]:
    """Return the scale and shift, per channel, that a batch norm applies in evaluation mode.

    Both have shape (channels,) and at least single precision. Raises PassError when `norm` keeps no running
    statistics.

    >>> norm = nn.BatchNorm1d(2, eps=0.0, affine=False)
    >>> _ = norm.running_mean.copy_(torch.tensor([1.0, 2.0])), norm.running_var.fill_(4.0)
    >>> scale_and_shift(norm)
    (tensor([0.5000, 0.5000]), tensor([-0.5000, -1.0000]))
    """
    mean, variance = norm.running_mean, norm.running_var
    if mean is None or variance is None:
        raise PassError(
            f"{type(norm).__name__}({norm.num_features}) keeps no running statistics: it normalizes each batch by "
            "itself, which no weights can absorb",
            fix="make it with track_running_stats=True",
        )
    wide = torch.promote_types(variance.dtype, torch.float32)
    scale = torch.rsqrt(variance.to(wide) + norm.eps)
    if norm.weight is not None:
        scale = scale * norm.weight.detach().to(wide)
    shift = -mean.to(wide) * scale
    if norm.bias is not None:
        shift = shift + norm.bias.detach().to(wide)
    return scale, shift


def fold_batch_norm(
    weight: Tensor, bias: Tensor | None, norm: BatchNorm, *, transposed: bool = False, groups: int = 1
) -> tuple[Tensor, Tensor]:
    """Fold an inference-mode batch norm into the weights of the layer that feeds it.

    weight (out, in / groups, *kernel), or with `transposed` (in, out / groups, *kernel), and bias (out,) or None
    -> the same shapes and dtype, the bias always present. The arithmetic runs in single precision or better.
    Raises PassError when `norm` keeps no running statistics.

    Source: Jacob et al., arXiv:1712.05877, section 3.2.

    >>> conv, norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8).eval()
    >>> [tuple(t.shape) for t in fold_batch_norm(conv.weight, conv.bias, norm)]
    [(8, 3, 3, 3), (8,)]
    >>> conv = nn.ConvTranspose2d(6, 8, 3, groups=2, bias=False)
    >>> [tuple(t.shape) for t in fold_batch_norm(conv.weight, conv.bias, norm, transposed=True, groups=2)]
    [(6, 4, 3, 3), (8,)]
    """
    scale, shift = scale_and_shift(norm)
    wide = torch.promote_types(weight.dtype, scale.dtype)
    filters = weight.detach().to(wide)
    kernel = [1] * (filters.dim() - 2)
    if transposed:
        # Input channels come in `groups` blocks; each block feeds its own out / groups output channels.
        blocks = filters.reshape(groups, filters.shape[0] // groups, *filters.shape[1:])
        folded = (blocks * scale.reshape(groups, 1, -1, *kernel)).reshape(filters.shape)
    else:
        folded = filters * scale.reshape(-1, 1, *kernel)
    moved = shift if bias is None else bias.detach().to(wide) * scale + shift
    return folded.to(weight.dtype), moved.to(weight.dtype)


# ---- finding and editing


@dataclass(frozen=True, slots=True)
class _Match:
    """A layer and the batch norm that reads it and nothing else does."""

    layer_node: Node
    norm_node: Node
    layer: LinearLike
    norm: BatchNorm


def _match(norm_node: Node, calls: Calls) -> _Match | None:
    """Return the match that ends in this node: a batch norm that the layer before it can absorb."""
    norm = calls.module(norm_node)
    if not isinstance(norm, _BATCH_NORMS) or not _is_replaceable(norm, _BATCH_NORMS, calls):
        return None
    if norm._buffers.get("running_mean") is None or norm._buffers.get("running_var") is None:
        return None
    layer_node = norm_node.args[0]
    layer = calls.module(layer_node)
    if not isinstance(layer, LINEAR_LIKE) or not _is_replaceable(layer, LINEAR_LIKE, calls):
        return None
    if len(layer_node.users) != 1 or type(norm) is not _FOLLOWED_BY[type(layer)]:
        return None
    if _features(layer) != norm.num_features or not layer.weight.is_floating_point():
        return None
    return _Match(layer_node, norm_node, layer, norm)


def _is_replaceable(module: nn.Module, kinds: tuple[type, ...], calls: Calls) -> bool:
    """Tell whether a module does what its very class says, and the graph only ever calls it."""
    return type(module) in kinds and is_untouched(module) and not calls.is_read(module)


def _features(layer: LinearLike) -> int:
    return layer.out_features if isinstance(layer, nn.Linear) else layer.out_channels


def _refuse_training(matches: list[_Match]) -> None:
    training = [match.norm_node for match in matches if match.norm.training]
    if training:
        raise TrainingModeError(
            f"Fusion only for eval! batch norm {training[0].target!r} is in training mode: it normalizes by the "
            "statistics of each batch, which no weights can absorb",
            at=training[0].origin,
            fix="call gm.eval() first",
        )


def _fold(group: list[_Match], calls: Calls) -> None:
    """Fold one batch norm into one layer, at all places where they follow each other."""
    folded = _folded_layer(group[0].layer, group[0].norm)
    calls.replace([match.layer_node for match in group], folded, "folded")
    for match in group:
        if type(match.layer) in _RANK:
            _expect_rank(match, _RANK[type(match.layer)])
        match.norm_node.replace_all_uses_with(match.layer_node)
        calls.erase(match.norm_node)


def _folded_layer(layer: LinearLike, norm: BatchNorm) -> LinearLike:
    """Make a layer like this one, with the batch norm in its weights."""
    if isinstance(layer, TRANSPOSED):
        weight, bias = fold_batch_norm(layer.weight, layer.bias, norm, transposed=True, groups=layer.groups)
    else:
        weight, bias = fold_batch_norm(layer.weight, layer.bias, norm)
    # A copy of everything but the tensors, which are about to be replaced.
    folded = copy.deepcopy(layer, {id(parameter): parameter for parameter in layer.parameters()})
    folded.weight = nn.Parameter(weight, requires_grad=layer.weight.requires_grad)
    folded.bias = nn.Parameter(bias, requires_grad=layer.weight.requires_grad)
    return folded


def _expect_rank(match: _Match, rank: int) -> None:
    """Guard the rank of the layer's input: this graph does not say it."""
    graph = match.layer_node.graph
    with graph.inserting_before(match.layer_node):
        dim = graph.call_method("dim", (match.layer_node.args[0],))
        where = f"batch norm {match.norm_node.target!r}, folded for inputs of {rank} dimensions"
        graph.call_function(expect, (dim, rank, where))
