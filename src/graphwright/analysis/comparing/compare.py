"""Numbers of two modules beside each other, layer by layer: a model and its fused, quantized or cast twin."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from graphwright.analysis.comparing.counterparts import counterparts
from graphwright.analysis.module_state import undisturbed
from graphwright.analysis.report import format_columns
from graphwright.analysis.values import tensors_in
from graphwright.errors import GraphError, MissingAttributeError
from graphwright.ir import Node
from graphwright.runtime import Interpreter, captured_for, graphs_of


@dataclass(frozen=True, slots=True)
class LayerComparison:
    """How far what a layer gives in one module is from what its counterpart gives in the other one.

    name, other: of the nodes, or the paths of the modules. kind: what it calls, or the class of the module.
    sqnr: the signal-to-noise ratio in dB, infinite where nothing differs: 10 log10(sum of a^2 / sum of (a - b)^2).
    max_error: the largest absolute difference. cosine: of the angle between the two, as vectors.
    note: what keeps them from being compared, such as other shapes; then sqnr is minus infinity.
    """

    name: str
    other: str
    kind: str
    sqnr: float
    max_error: float
    cosine: float
    note: str = ""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two modules compared: `layers` with the worst first, `in_order` as they run. Printed, it is a table.

    unmatched: what of either module has no counterpart.
    """

    in_order: tuple[LayerComparison, ...]
    unmatched: tuple[str, ...]

    @property
    def layers(self) -> tuple[LayerComparison, ...]:
        """The layers, the one with the smallest signal-to-noise ratio first."""
        return tuple(sorted(self.in_order, key=lambda layer: (layer.sqnr, -layer.max_error)))

    @property
    def worst(self) -> LayerComparison:
        """The layer with the smallest signal-to-noise ratio."""
        return self.layers[0]

    def __getitem__(self, name: str) -> LayerComparison:
        for layer in self.in_order:
            if name in (layer.name, layer.other):
                return layer
        raise KeyError(f"no layer that was compared is called {name!r}")

    def __str__(self) -> str:
        header = ("layer", "other", "kind", "SQNR (dB)", "max error", "cosine", "")
        rows = [
            (layer.name, layer.other, layer.kind, f"{layer.sqnr:.1f}", f"{layer.max_error:.3g}", f"{layer.cosine:.6f}",
             layer.note)
            for layer in self.layers
        ]  # fmt: skip
        return "\n".join(format_columns(header, rows))


def compare(
    original: nn.Module, changed: nn.Module, args: Any = (), kwargs: Mapping[str, Any] | None = None
) -> Comparison:
    """Run two modules on the same inputs and compare what their layers give.

    Of two captured modules, nodes are compared. They belong together by their names, and where rewriting has put one in
    the place of several, it belongs to the last of these; where names are others, by what was put in the place of what
    (`node.replace_with` and rules note that), else by their places in the user's program. A model beside a captured one
    is captured for these inputs. Of two others, the submodules that have the same path are compared. Both run in the
    modes that they are in, without gradients and with the same random numbers; nothing is left changed. The values of
    both are kept meanwhile. Raises GraphError where nothing belongs together.

    >>> from graphwright import trace
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).eval()
    >>> x = torch.ones(1, 4)
    >>> twin = copy.deepcopy(model)
    >>> _ = twin[2].weight.data.mul_(1.01)
    >>> report = compare(trace(model, (x,)), trace(twin, (x,)), x)
    >>> [layer.sqnr < 100 for layer in report.in_order], report.worst.other == report.in_order[-1].other
    ([False, False, True], True)
    """
    given = args if isinstance(args, tuple) else (args,), dict(kwargs or {})
    if _is_captured(original) != _is_captured(changed):
        original, changed = (captured_for(each, *given) for each in (original, changed))
    both_captured = _is_captured(original)
    run = _run_graph if both_captured else _run_modules
    values, others = run(original, given), run(changed, given)
    if both_captured:
        pairs = counterparts(original, changed, (_kinds(values), _kinds(others)))
    else:
        pairs = {name: name for name in values if name in others}
    pairs = {name: other for name, other in pairs.items() if name in values and other in others}
    if not pairs:
        raise GraphError("the two modules have no layers that belong together", fix="compare a model with its own twin")
    compared = tuple(_compare(name, other, values[name], others[other]) for name, other in pairs.items())
    left = [name for name in values if name not in pairs]
    left += [other for other in others if other not in set(pairs.values())]
    return Comparison(compared, tuple(dict.fromkeys(left)))


def _kinds(seen: dict[str, _Seen]) -> dict[str, list[bool]]:
    """Whether what nodes give are fractions or whole numbers."""
    return {
        name: [tensor.is_floating_point() or tensor.is_complex() for tensor in each.tensors]
        for name, each in seen.items()
    }


def _is_captured(module: nn.Module) -> bool:
    try:
        return bool(graphs_of(module))
    except MissingAttributeError:
        return False


# ---- running


@dataclass(slots=True)
class _Seen:
    """What a layer gave, in all its runs."""

    kind: str
    tensors: list[Tensor]


def _run_graph(gm: nn.Module, given: Any) -> dict[str, _Seen]:
    runner = _Recorder(gm)
    with undisturbed(gm):
        args, kwargs = copy.deepcopy(given)
        runner.run(*args, **kwargs)
    return runner.seen


class _Recorder(Interpreter):
    """Keeps copies of what nodes give, by name."""

    def __init__(self, gm: nn.Module) -> None:
        super().__init__(gm)
        self.extra_traceback = False
        self.seen: dict[str, _Seen] = {}

    def run_node(self, n: Node) -> Any:
        """Run one node and keep what it gives."""
        value = super().run_node(n)
        if n.op.startswith("call"):
            tensors = _copies(value)
            if tensors:
                kind = getattr(n.target, "__name__", str(n.target))
                kind = type(self.submodules[kind]).__name__ if n.op == "call_module" else kind
                self.seen.setdefault(n.name, _Seen(kind, [])).tensors.extend(tensors)
        return value


def _run_modules(module: nn.Module, given: Any) -> dict[str, _Seen]:
    seen: dict[str, _Seen] = {}
    handles = []
    for path, child in module.named_modules():

        def keep(called: nn.Module, args: Any, output: Any, path: str = path) -> None:
            seen.setdefault(path, _Seen(type(called).__name__, [])).tensors.extend(_copies(output))

        if path:
            handles.append(child.register_forward_hook(keep))
    try:
        with undisturbed(module):
            args, kwargs = copy.deepcopy(given)
            module(*args, **kwargs)
    finally:
        for handle in handles:
            handle.remove()
    return {path: found for path, found in seen.items() if found.tensors}


def _copies(value: Any) -> list[Tensor]:
    return [tensor.detach().clone() for tensor in tensors_in(value)]


# ---- comparing


def _compare(name: str, other: str, one: _Seen, two: _Seen) -> LayerComparison:
    kind = one.kind if one.kind == two.kind else f"{one.kind} / {two.kind}"
    shapes, shapes_of_other = ([tuple(tensor.shape) for tensor in side.tensors] for side in (one, two))
    if shapes != shapes_of_other:
        different = [pair for pair in zip(shapes, shapes_of_other, strict=False) if pair[0] != pair[1]]
        note = (
            f"shape {different[0][0]} against {different[0][1]}" if different else "another number of runs or tensors"
        )
        return LayerComparison(name, other, kind, -math.inf, math.inf, 0.0, note)
    a, b = _numbers(one.tensors), _numbers(two.tensors)
    same = (a == b) | (a.isnan() & b.isnan())
    noise = torch.where(same, torch.zeros_like(a), a - b)
    signal, power = float((a * a).sum()), float((noise * noise).sum())
    largest = float(noise.abs().max()) if noise.numel() else 0.0
    if bool(noise.isnan().any()) or math.isnan(signal) or math.isinf(power):
        return LayerComparison(name, other, kind, -math.inf, math.inf, 0.0, "not finite in one of them")
    lengths = math.sqrt(signal) * math.sqrt(float((b * b).sum()))
    cosine = float((a * b).sum()) / lengths if lengths else float(power == 0)
    return LayerComparison(name, other, kind, _decibel(signal, power), largest, cosine)


def _decibel(signal: float, noise: float) -> float:
    if noise == 0:
        return math.inf
    return 10 * math.log10(signal / noise) if signal else -math.inf


def _numbers(tensors: list[Tensor]) -> Tensor:
    """All elements of tensors as one vector of float64."""
    flat = []
    for tensor in tensors:
        tensor = tensor.dequantize() if tensor.is_quantized else tensor
        tensor = tensor.to_dense() if tensor.layout is not torch.strided else tensor
        flat.append(torch.view_as_real(tensor).flatten() if tensor.is_complex() else tensor.flatten())
    return torch.cat([tensor.to(torch.float64) for tensor in flat]) if flat else torch.zeros(0, dtype=torch.float64)
