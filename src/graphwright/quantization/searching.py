"""Which layers quantization costs most, and which to leave in float so that the result is as good as is asked."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from graphwright.analysis import tensors_in
from graphwright.errors import QuantizationError
from graphwright.ir import Node
from graphwright.quantization.calibrating import calibrate, call_of_batch
from graphwright.quantization.converting import Parts, converted, parts_of
from graphwright.quantization.grids import grid_of_input
from graphwright.quantization.improving.judging import sqnr
from graphwright.quantization.improving.watching import See, watching
from graphwright.quantization.mapping import QConfigMapping
from graphwright.quantization.preparing import mapping_of, prepare, with_mapping
from graphwright.quantization.programs.state import Call, as_it_was, fresh
from graphwright.quantization.schemes import QConfig, dynamic_int8
from graphwright.runtime import GraphModule

__all__ = ["Sensitivity", "search", "sensitivity"]

Metric = str | Callable[..., float]


@dataclasses.dataclass(frozen=True, slots=True)
class Sensitivity:
    """What the metric is if one layer alone is quantized."""

    path: str
    op: str
    value: float


def sensitivity(
    model: nn.Module,
    mapping: QConfigMapping | QConfig | None,
    calibration: Iterable[Any],
    metric: Metric = "cosine",
) -> list[Sensitivity]:
    """Quantize each layer alone, and give what the metric is then, the most harmful layer first.

    metric: "cosine" or "sqnr" of outputs on the calibration data; a function of an expected and a given output; or one
    of a module. More is better.
    """
    return _Trial(model, mapping, calibration, metric).harm()


def search(
    model: nn.Module,
    mapping: QConfigMapping | QConfig | None,
    calibration: Iterable[Any],
    metric: Metric = "cosine",
    target: float = 0.999,
) -> QConfigMapping:
    """Find rules under which the metric is at least `target`, with as few changes as that takes.

    The layers that are the most harmful alone are lifted: linear layers to ranges of each token, and, where all of that
    is not enough, left in float. metric: as for `sensitivity`.

    Raises QuantizationError where not even the float program reaches the target.
    """
    trial = _Trial(model, mapping, calibration, metric)
    if trial.value(trial.mapping) >= target:
        return trial.mapping
    worst = [(each.path, each.op) for each in trial.harm()]
    linear = [path for path, op in worst if op == "linear"]
    lifted = _least(len(linear), lambda count: trial.value(trial.lifted(linear[:count])) >= target)
    if lifted is not None:
        return trial.lifted(linear[:lifted])
    base = trial.lifted(linear)
    left = _least(len(worst), lambda count: trial.value(_left(base, worst[:count])) >= target)
    if left is None:
        raise QuantizationError(
            f"the metric is below {target} with every layer in float", fix="ask for less, or look at the metric"
        )
    return _left(base, worst[:left])


def _least(most: int, holds: Callable[[int], bool]) -> int | None:
    """The least count up to `most` for which something holds that goes on to hold; None where it never does."""
    if not holds(most):
        return None
    low, high = 0, most  # it does not hold at low, and holds at high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _left(mapping: QConfigMapping, layers: Sequence[tuple[str, str]]) -> QConfigMapping:
    made = mapping.copy()
    for path, _ in layers:
        made.set_module_name(path, None)
    return made


class _Trial:
    """Quantizes a module under several rules on one set of data."""

    def __init__(self, model: nn.Module, mapping: Any, calibration: Iterable[Any], metric: Metric) -> None:
        batches = list(calibration)
        if not batches:
            raise QuantizationError("there is no batch of calibration data", fix="give batches of inputs")
        self.calls = [call_of_batch(batch) for batch in batches]
        self.mapping = mapping_of(mapping)
        self._metric = metric if callable(metric) else _METRICS.get(metric)
        if self._metric is None:
            raise QuantizationError(f"there is no metric {metric!r}", fix=f"metrics are {', '.join(_METRICS)}")
        self.prepared = prepare(model, self.mapping, *self.calls[0])
        calibrate(self.prepared, batches)
        with torch.no_grad(), as_it_was(self.prepared, model):
            self._expected = [self._run(model, call) for call in self.calls]

    def harm(self) -> list[Sensitivity]:
        """What the metric is with each layer alone quantized in the float program, the most harmful first."""
        parts = parts_of(self.prepared)
        by_path: dict[str, list[Node]] = {}
        for node in parts.layers:
            by_path.setdefault(parts.decisions[node].site.path, []).append(node)
        found = []
        for path, nodes in by_path.items():
            functions = {node: _instead(parts, node) for node in nodes}
            with watching(parts.program.gm, functions):
                value = self._measured(parts.program.gm)
            found.append(Sensitivity(path, parts.decisions[nodes[0]].site.kind, value))
        return sorted(found, key=lambda each: each.value)

    def lifted(self, paths: Sequence[str]) -> QConfigMapping:
        """Rules under which these linear layers have ranges of each token."""
        made = self.mapping.copy()
        for path in paths:
            made.set_module_name(path, dynamic_int8("token"))
        return made

    def value(self, mapping: QConfigMapping) -> float:
        """The metric under some rules."""
        return self._measured(converted(parts_of(with_mapping(self.prepared, mapping)), is_judged=False))

    def _measured(self, made: GraphModule) -> float:
        metric = self._metric
        assert metric is not None
        with torch.no_grad(), as_it_was(made, made):
            if len(inspect.signature(metric).parameters) == 1:
                return float(metric(made))
            values = [
                float(metric(expected, self._run(made, call)))
                for expected, call in zip(self._expected, self.calls, strict=True)
            ]
        return sum(values) / len(values)

    def _run(self, module: nn.Module | GraphModule, call: Call) -> Tensor:
        args, kwargs = fresh(call)
        given = module(*args, **kwargs)
        parts = [each.flatten().float() for each in tensors_in(given) if each.is_floating_point()]
        if not parts:
            raise QuantizationError("the module gives no tensor of numbers", fix="give a metric of a module")
        return torch.cat(parts)


def _instead(parts: Parts, node: Node) -> See:
    """What a layer gives on the grid of its input, in the place of what it gave."""
    layer, grid = parts.layers[node], grid_of_input(parts.decisions[node], parts.grids)
    return lambda x, y: layer(x if grid is None else grid.rounded(x))


def _cosine(expected: Tensor, given: Tensor) -> float:
    return float(torch.nn.functional.cosine_similarity(expected.double(), given.double(), 0))


_METRICS: dict[str, Callable[..., float]] = {"cosine": _cosine, "sqnr": sqnr}
