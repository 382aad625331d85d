"""Bias correction: what the outputs of a layer are off by in the mean goes into its bias, one layer after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from graphwright.ir import Node
from graphwright.quantization.decide import Decision
from graphwright.quantization.improving.judging import Loss, channel_of
from graphwright.quantization.improving.watching import Batches, See, run_batches, watching
from graphwright.runtime import GraphModule

__all__ = ["correct_biases", "means_of_outputs"]

Means = dict[Node, list[Tensor]]


def means_of_outputs(gm: GraphModule, decisions: Mapping[Node, Decision], batches: Batches) -> Means:
    """The mean of each output channel of the layers whose bias is to be corrected, batch by batch.

    A layer that is called at several places has one bias for unlike errors: it is left as it is.
    """
    calls = Counter(id(decision.site.module) for decision in decisions.values())
    means: Means = {
        node: []
        for node, decision in decisions.items()
        if decision.mode == "static"
        and decision.site.module is not None
        and calls[id(decision.site.module)] == 1
        and decision.config is not None
        and decision.config.correct_bias
    }
    if not means:
        return means
    with watching(gm, {node: _noting(decisions[node].site.kind, found) for node, found in means.items()}):
        run_batches(gm, batches)
    return means


def _noting(kind: str, found: list[Tensor]) -> See:
    def see(x: Tensor, y: Tensor) -> None:
        found.append(_mean(y, kind))

    return see


def correct_biases(
    gm: GraphModule,
    means: Means,
    decisions: Mapping[Node, Decision],
    layers: Mapping[Node, nn.Module],
    losses: Mapping[Node, Loss],
    batches: Batches,
) -> None:
    """Move the biases of quantized layers so that their outputs have the means that they had in float.

    Each batch runs through the whole program; a layer sees inputs that the layers before it have corrected for that
    batch already. Of several batches, and rounds of a loop, the corrections are averaged. A channel whose error is
    hardly one of its mean is left alone: what is large in a few places would be spread over all others.
    """
    seen = {node: iter(found) for node, found in means.items() if node in layers and found}
    if seen:
        functions = {
            node: _correcting(layers[node], decisions[node].site.kind, found, losses.get(node))
            for node, found in seen.items()
        }
        with watching(gm, functions):
            run_batches(gm, batches)


_LEAST_SHARE = 0.05  # of a channel's squared error that its mean has to make up


def _correcting(layer: nn.Module, kind: str, means: Iterator[Tensor], loss: Loss | None) -> See:
    count = 0
    share = None if loss is None else loss.share_of_mean
    is_corrected = True if share is None else share >= _LEAST_SHARE

    def see(x: Tensor, y: Tensor) -> Tensor:
        nonlocal count
        expected = next(means, None)
        bias = layer.bias
        if expected is None or not isinstance(bias, Tensor):
            return y
        count += 1
        moved = (expected - _mean(y, kind)) / count * is_corrected
        if not bool(torch.isfinite(moved).all()):
            return y
        bias.add_(moved)
        return y + _along(moved, y, kind)

    return see


def _mean(y: Tensor, kind: str) -> Tensor:
    channel = channel_of(y, kind)
    return y.double().mean([i for i in range(y.dim()) if i != channel]).float()


def _along(values: Tensor, y: Tensor, kind: str) -> Tensor:
    return values.reshape([-1 if i == channel_of(y, kind) else 1 for i in range(y.dim())])
