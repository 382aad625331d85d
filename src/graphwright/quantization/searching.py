"""Which layers quantization costs most, and which to leave in float so that the result is as good as is asked."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from graphwright.analysis import format_columns, tensors_in
from graphwright.engines import Call
from graphwright.errors import QuantizationError
from graphwright.ir import Node
from graphwright.quantization.calibrating import calibrate
from graphwright.quantization.converting import Parts, converted, parts_of
from graphwright.quantization.grids import grid_of_input
from graphwright.quantization.improving.judging import sqnr
from graphwright.quantization.improving.watching import See, watching
from graphwright.quantization.mapping import QConfigMapping
from graphwright.quantization.preparing import mapping_of, prepare, with_mapping
from graphwright.quantization.programs.state import as_it_was, call_of_batch, examples_of, fresh
from graphwright.quantization.schemes import QConfig, dynamic_int8
from graphwright.runtime import GraphModule

Metric = str | Callable[..., float]
_ORDERED_BY = 1  # batches that say in which order layers are lifted; all say whether that is enough


@dataclasses.dataclass(frozen=True, slots=True)
class Sensitivity:
    """What the metric is if one layer alone is quantized."""

    path: str
    op: str
    value: float


class Sensitivities(list[Sensitivity]):
    """Layers, the most harmful first. Printed, it is a table."""

    def __str__(self) -> str:
        return "\n".join(format_columns(("layer", "op", "metric"), [(e.path, e.op, f"{e.value:.6g}") for e in self]))


def sensitivity(
    model: nn.Module,
    mapping: QConfigMapping | QConfig | None,
    calibration: Iterable[Any],
    metric: Metric = "cosine",
) -> Sensitivities:
    """Quantize each layer alone, and give what the metric is then, the most harmful layer first, as a list.

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

    Layers are lifted in the order of what the metric loses by them for the time that it takes: linear layers to ranges
    of each token, and, where all of that is not enough, left in float. Linear layers that read one value, which compute
    as one, are lifted together. metric: as for `sensitivity`.

    Raises QuantizationError where not even the float program reaches the target.
    """
    trial = _Trial(model, mapping, calibration, metric)
    if trial.value(trial.mapping) >= target:
        return trial.mapping
    groups = trial.groups()
    linear = sorted([each for each in groups if each.is_linear], key=_Group.loss_for_ranges, reverse=True)
    lifted = _least(len(linear), lambda count: trial.value(trial.lifted(_paths(linear[:count]))) >= target)
    if lifted is not None:
        return trial.lifted(_paths(linear[:lifted]))
    base = trial.lifted(_paths(linear))
    worst = sorted(groups, key=_Group.loss_for_floats, reverse=True)
    left = _least(len(worst), lambda count: trial.value(_left(base, _paths(worst[:count]))) >= target)
    if left is None:
        raise QuantizationError(
            f"the metric is below {target} with every layer in float", fix="ask for less, or look at the metric"
        )
    return _left(base, _paths(worst[:left]))


@dataclasses.dataclass(frozen=True, slots=True)
class _Group:
    """Layers that read one value. loss: of the metric by them alone; read, products: how many numbers and products."""

    paths: tuple[str, ...]
    is_linear: bool
    loss: float
    read: int
    products: int

    def loss_for_ranges(self) -> float:
        """What the metric loses for the time that ranges of each call take, which are found of what is read."""
        return self.loss / max(self.read, 1)

    def loss_for_floats(self) -> float:
        """What the metric loses for the time of the products that floats take longer for."""
        return self.loss / max(self.products, 1)


def _paths(groups: Sequence[_Group]) -> list[str]:
    return [path for each in groups for path in each.paths]


def _least(most: int, holds: Callable[[int], bool]) -> int | None:
    """The least count up to `most` for which something holds that goes on to hold; None where it never does."""
    if not holds(most):
        return None
    low, high = 0, most  # it does not hold at low, and holds at high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _left(mapping: QConfigMapping, paths: Sequence[str]) -> QConfigMapping:
    made = mapping.copy()
    for path in paths:
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
        first, *others = examples_of(model, self.calls)
        self.prepared = prepare(model, self.mapping, *first, examples=others)
        calibrate(self.prepared, batches)
        with torch.no_grad(), as_it_was(self.prepared, model):
            self._expected = [self._run(model, call) for call in self.calls]

    def harm(self) -> Sensitivities:
        """What the metric is with each layer alone quantized in the float program, the most harmful first."""
        parts = parts_of(self.prepared)
        by_path: dict[str, list[Node]] = {}
        for node in parts.layers:
            by_path.setdefault(parts.decisions[node].site.path, []).append(node)
        found = [
            Sensitivity(path, parts.decisions[nodes[0]].site.kind, self._with(parts, nodes))
            for path, nodes in by_path.items()
        ]
        return Sensitivities(sorted(found, key=lambda each: each.value))

    def groups(self) -> list[_Group]:
        """The layers that lifting changes, those together that read one value, with what the metric loses by them."""
        parts = parts_of(self.prepared)
        by_value: dict[Any, list[Node]] = {}
        for node in parts.layers:
            site = parts.decisions[node].site
            by_value.setdefault(site.inputs[0] if site.kind == "linear" else site.path, []).append(node)
        best = self._measured(parts.program.gm, _ORDERED_BY)
        return [_group(parts, nodes, best - self._with(parts, nodes, _ORDERED_BY)) for nodes in by_value.values()]

    def _with(self, parts: Parts, nodes: Sequence[Node], most: int | None = None) -> float:
        """The metric with some layers alone quantized in the float program, on so many batches."""
        with watching(parts.program.gm, {node: _instead(parts, node) for node in nodes}):
            return self._measured(parts.program.gm, most)

    def lifted(self, paths: Sequence[str]) -> QConfigMapping:
        """Rules under which these linear layers have ranges of each token."""
        made = self.mapping.copy()
        for path in paths:
            made.set_module_name(path, dynamic_int8("token"))
        return made

    def value(self, mapping: QConfigMapping) -> float:
        """The metric under some rules."""
        return self._measured(converted(parts_of(with_mapping(self.prepared, mapping)), is_judged=False))

    def _measured(self, made: GraphModule, most: int | None = None) -> float:
        metric = self._metric
        assert metric is not None
        with torch.no_grad(), as_it_was(made, made):
            if len(inspect.signature(metric).parameters) == 1:
                return float(metric(made))
            values = [
                float(metric(expected, self._run(made, call)))
                for expected, call in zip(self._expected[:most], self.calls[:most], strict=True)
            ]
        return sum(values) / len(values)

    def _run(self, module: nn.Module | GraphModule, call: Call) -> Tensor:
        args, kwargs = fresh(call)
        given = module(*args, **kwargs)
        parts = [each.flatten().float() for each in tensors_in(given) if each.is_floating_point()]
        if not parts:
            raise QuantizationError("the module gives no tensor of numbers", fix="give a metric of a module")
        return torch.cat(parts)


def _group(parts: Parts, nodes: Sequence[Node], loss: float) -> _Group:
    shapes, sites = parts.program.shapes, [parts.decisions[node].site for node in nodes]
    value = shapes.known_value(sites[0].inputs[0])
    given = [shapes.known_value(node) for node in nodes]
    read = value.numel() if isinstance(value, Tensor) else 0
    weights = [getattr(parts.layers[node], "weight", None) for node in nodes]
    products = sum(
        y.numel() * (weight.numel() // max(weight.shape[0], 1))
        for y, weight in zip(given, weights, strict=True)
        if isinstance(y, Tensor) and isinstance(weight, Tensor)
    )
    paths = tuple(dict.fromkeys(site.path for site in sites))
    return _Group(paths, sites[0].kind == "linear", loss, read, products)


def _instead(parts: Parts, node: Node) -> See:
    """What a layer gives on the grid of its input, in the place of what it gave."""
    layer, grid = parts.layers[node], grid_of_input(parts.decisions[node], parts.grids)
    return lambda x, y: layer(x if grid is None else grid.rounded(x))


def _cosine(expected: Tensor, given: Tensor) -> float:
    return float(torch.nn.functional.cosine_similarity(expected.double(), given.double(), 0))


_METRICS: dict[str, Callable[..., float]] = {"cosine": _cosine, "sqnr": sqnr}
