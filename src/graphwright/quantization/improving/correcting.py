"""Bias correction: what the outputs of a layer are off by goes into its bias, one layer after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from graphwright.ir import Node
from graphwright.quantization.algorithms.bias_correction import output_shift
from graphwright.quantization.algorithms.input_rows import some_rows
from graphwright.quantization.decide import Decision
from graphwright.quantization.improving.judging import channel_of
from graphwright.quantization.improving.watching import Batches, See, run_batches, watching
from graphwright.runtime import GraphModule

Outputs = dict[Node, list[Tensor]]

_ROWS, _FEWEST = 4096, 64  # outputs of each layer that are kept, and of each batch at least


def some_outputs(gm: GraphModule, decisions: Mapping[Node, Decision], batches: Batches) -> Outputs:
    """Some outputs (n, channels) of the layers whose bias is to be corrected, batch by batch.

    A layer that is called at several places has one bias for unlike errors: it is left as it is.
    """
    calls = Counter(id(decision.site.module) for decision in decisions.values())
    outputs: Outputs = {
        node: []
        for node, decision in decisions.items()
        if decision.mode == "static"
        and decision.site.module is not None
        and calls[id(decision.site.module)] == 1
        and decision.config is not None
        and decision.config.correct_bias
    }
    if not outputs:
        return outputs
    batches = list(batches)
    count = max(_FEWEST, _ROWS // max(1, len(batches)))
    with watching(gm, {node: _noting(decisions[node].site.kind, found, count) for node, found in outputs.items()}):
        run_batches(gm, batches)
    return outputs


def _noting(kind: str, found: list[Tensor], count: int) -> See:
    def see(x: Tensor, y: Tensor) -> None:
        found.append(_rows(y, kind, count))

    return see


def correct_biases(
    gm: GraphModule,
    outputs: Outputs,
    decisions: Mapping[Node, Decision],
    layers: Mapping[Node, nn.Module],
    batches: Batches,
) -> None:
    """Move the biases of quantized layers so that their outputs are about those that they had in float.

    Each batch runs through the whole program; a layer sees inputs that the layers before it have corrected for that
    batch already. Of several batches, and rounds of a loop, the corrections are averaged.
    """
    seen = {node: iter(found) for node, found in outputs.items() if node in layers and found}
    if seen:
        functions = {node: _correcting(layers[node], decisions[node].site.kind, found) for node, found in seen.items()}
        with watching(gm, functions):
            run_batches(gm, batches)


def _correcting(layer: nn.Module, kind: str, outputs: Iterator[Tensor]) -> See:
    count = 0

    def see(x: Tensor, y: Tensor) -> Tensor:
        nonlocal count
        expected = next(outputs, None)
        bias = layer.bias
        if expected is None or not isinstance(bias, Tensor):
            return y
        count += 1
        moved = -output_shift(expected, _rows(y, kind, len(expected))) / count
        if not bool(torch.isfinite(moved).all()):
            return y
        bias.add_(moved)
        return y + moved.reshape([-1 if i == channel_of(y, kind) else 1 for i in range(y.dim())])

    return see


def _rows(y: Tensor, kind: str, count: int) -> Tensor:
    """At most so many outputs (n, channels) of a layer."""
    channel = channel_of(y, kind)
    return some_rows(y.movedim(channel, -1).reshape(-1, y.shape[channel]), count).clone()
