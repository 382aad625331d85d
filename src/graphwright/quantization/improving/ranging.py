"""Which range a value gets: that of the least error in what the layers that read it give.

The least error of the value itself cuts off what is rare and large, which may be what matters: the few activations of
a transformer that are hundreds of times as large as all others.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from graphwright.ir import Node
from graphwright.quantization.affine import dequantize, quantize
from graphwright.quantization.algorithms.input_rows import linear_rows, some_rows
from graphwright.quantization.backends import Backend
from graphwright.quantization.decide import Decision
from graphwright.quantization.grids import Range, activation_scheme, grid_for
from graphwright.quantization.improving.watching import Batches, See, run_batches, watching
from graphwright.quantization.observers.observer import Observer
from graphwright.quantization.schemes import Scheme
from graphwright.runtime import GraphModule

__all__ = ["refine_ranges"]

_RATIOS = (1.0, 0.9, 0.75, 0.6, 0.45, 0.3)  # of the range of all values
_BATCHES, _ROWS, _IMAGES = 2, 512, 2


def refine_ranges(
    gm: GraphModule,
    decisions: Mapping[Node, Decision],
    observers: Mapping[Node, Observer],
    ranges: dict[Node, Range],
    backend: Backend,
    batches: Batches,
) -> None:
    """Replace ranges that were found by squared error by those of the least error in outputs, tried on some inputs."""
    tries: dict[Node, dict[Range, float]] = {}
    functions: dict[Node, See] = {}
    for node, decision in decisions.items():
        config, module = decision.config, decision.site.module
        if decision.mode != "static" or config is None or config.activation is None or module is None:
            continue
        value = node.args[0]
        observer = observers.get(value) if isinstance(value, Node) else None
        if observer is None or value not in ranges or config.activation.observer != "histogram":
            continue
        assert isinstance(value, Node)
        if value not in tries:
            tries[value] = dict.fromkeys(_candidates(observer, ranges[value]), 0.0)
        functions[node] = _trying(module, tries[value], activation_scheme(config, backend))
    if functions:
        with watching(gm, functions):
            run_batches(gm, list(batches)[:_BATCHES])
    for value, errors in tries.items():
        if any(errors.values()):
            ranges[value] = min(errors, key=lambda each: errors[each])


def _candidates(observer: Observer, found: Range) -> list[Range]:
    low, high = min(float(observer.lowest), 0.0), max(float(observer.highest), 0.0)
    tried = [dataclasses.replace(found, low=low * ratio, high=high * ratio) for ratio in _RATIOS]
    if low < 0 < high:  # the side that is shorter costs little
        tried += [_longer_by(found, low, high, ratio) for ratio in _RATIOS[1:]]
    return [found, *tried]


def _longer_by(found: Range, low: float, high: float, ratio: float) -> Range:
    """A range whose longer side is shortened."""
    if -low > high:
        return dataclasses.replace(found, low=low * ratio, high=high)
    return dataclasses.replace(found, low=low, high=high * ratio)


def _trying(module: nn.Module, errors: dict[Range, float], scheme: Scheme) -> See:
    def see(x: Tensor, y: Tensor) -> None:
        x = some_rows(linear_rows(x), _ROWS) if isinstance(module, nn.Linear) else x[:_IMAGES]
        for each in errors:
            grid = grid_for(each, scheme)
            rounded = dequantize(quantize(x, grid.scale, grid.zero_point, grid.dtype), grid.scale, grid.zero_point)
            errors[each] += _without_bias(module, rounded.sub_(x)).square().sum().item()

    return see


def _without_bias(module: Any, x: Tensor) -> Tensor:
    if isinstance(module, nn.Linear):
        return F.linear(x, module.weight)
    bias = module.bias
    given: Tensor = module(x)
    return given if bias is None else given - bias.reshape(-1, *[1] * (module.weight.dim() - 2))
