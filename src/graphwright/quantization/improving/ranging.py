"""Which range a value gets: that of the least error in what the layers that read it give.

The least error of the value itself cuts off what is rare and large, which may be what matters: the few activations of
a transformer that are hundreds of times as large as all others.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from graphwright.ir import Node
from graphwright.quantization.algorithms.input_rows import linear_rows, some_rows
from graphwright.quantization.backends import Backend
from graphwright.quantization.decide import Decision
from graphwright.quantization.grids import Range, activation_scheme, grid_for
from graphwright.quantization.improving.watching import Batches, Sampled, run_until_enough, watching
from graphwright.quantization.observers.observer import Observer
from graphwright.runtime import GraphModule

_RATIOS = (1.0, 0.9, 0.75, 0.6, 0.45, 0.3)  # of the range of all values
_ROWS, _PLACES, _SIDE = 1024, 4096, 32  # of a batch, errors are estimated from; a side of the middle of images


def refine_ranges(
    gm: GraphModule,
    decisions: Mapping[Node, Decision],
    observers: Mapping[Node, Observer],
    ranges: dict[Node, Range],
    backend: Backend,
    batches: Batches,
) -> None:
    """Replace ranges that were found by squared error by those of the least error in outputs, tried on some inputs."""
    readers: dict[Node, list[Node]] = {}
    for node, decision in decisions.items():
        config, module, value = decision.config, decision.site.module, node.args[0]
        if decision.mode != "static" or config is None or config.activation is None or module is None:
            continue
        is_searched = config.activation.observer == "histogram"
        if isinstance(value, Node) and value in observers and value in ranges and is_searched:
            readers.setdefault(value, []).append(node)
    tried = {
        value: _Tried(_candidates(observers[value], ranges[value]), [decisions[node] for node in nodes], backend)
        for value, nodes in readers.items()
    }
    if tried:
        with watching(gm, {readers[value][0]: each.see for value, each in tried.items()}):
            run_until_enough(gm, batches, tried.values())
    for value, each in tried.items():
        if any(each.errors.values()):
            ranges[value] = min(each.errors, key=each.errors.__getitem__)


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


class _Tried(Sampled):
    """Ranges of a value: the errors that layers make together which read it."""

    def __init__(self, candidates: Sequence[Range], decisions: Sequence[Decision], backend: Backend) -> None:
        super().__init__()
        config = decisions[0].config
        assert config is not None
        self.errors = dict.fromkeys(candidates, 0.0)
        self._scheme = activation_scheme(config, backend)
        modules: list[Any] = [decision.site.module for decision in decisions]
        weights = [module.weight.detach() for module in modules if isinstance(module, nn.Linear)]
        self._readers: list[_Reader] = [_Convolution(each) for each in modules if not isinstance(each, nn.Linear)]
        self._readers += [_Product(torch.cat(weights))] if weights else []

    def see(self, x: Tensor, y: Tensor) -> None:
        """Add the errors for an input."""
        if self.has_enough:
            return
        self.count += x.numel()
        for reader in self._readers:
            sample = reader.sample(x)
            for each in self.errors:
                self.errors[each] += reader.cost(grid_for(each, self._scheme).rounded(sample).sub_(sample))


class _Product:
    """Linear layers that read one value, as one."""

    def __init__(self, weight: Tensor) -> None:
        self._is_squared = len(weight) > weight.shape[1]  # then it is less work
        self._matrix = weight.T @ weight if self._is_squared else weight.T

    def sample(self, x: Tensor) -> Tensor:
        """Some rows of what they read."""
        return some_rows(linear_rows(x), _ROWS)

    def cost(self, error: Tensor) -> float:
        """The squared error in what they give, for errors of rows."""
        made = error @ self._matrix
        return float((made * (error if self._is_squared else made)).sum())


class _Convolution:
    """A convolution, transposed or not, that reads a value."""

    def __init__(self, module: Any) -> None:
        self._module = module
        spans = [step * (size - 1) + 1 for size, step in zip(module.kernel_size, module.dilation, strict=True)]
        self._side = max(_SIDE, 2 * max(spans))

    def sample(self, x: Tensor) -> Tensor:
        """The middle of some images."""
        x = x if x.dim() == self._module.weight.dim() else x.unsqueeze(0)
        for dim in range(2, x.dim()):
            x = x.narrow(dim, max(0, x.shape[dim] - self._side) // 2, min(x.shape[dim], self._side))
        return x[: max(1, _PLACES // max(1, x[0, 0].numel()))]

    def cost(self, error: Tensor) -> float:
        """The squared error in what it gives, for errors of images."""
        made: Tensor = self._module(error)
        if self._module.bias is not None:
            made = made - self._module.bias.reshape(-1, *[1] * (made.dim() - 2))
        return float(made.square().sum())


_Reader = _Product | _Convolution
