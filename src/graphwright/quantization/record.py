"""What became of each layer, and why: what `gm.quantization` says of a quantized module."""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from graphwright.engines import Call, OptimizedReport, RunsOn
from graphwright.errors import QuantizationError
from graphwright.ir import Node
from graphwright.quantization.backends import Backend
from graphwright.quantization.decide import Decision
from graphwright.quantization.drawing import bars_as_svg
from graphwright.quantization.grids import Range, ValueGrid
from graphwright.quantization.layers import KINDS
from graphwright.quantization.sites import QUANTIZED, quantized_parts
from graphwright.runtime import GraphModule


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """What became of one layer, product or sum.

    path: of the module, or of the value. decision: "static", "dynamic", "weight" or "float". scheme: in words. kernel:
    what runs it, empty before `lower`. reason, rule: why, and by which rule of the mapping. scale, zero_point, range:
    of its input, where it is static. sqnr: in dB, of this layer alone. time: against the float layer, as a ratio.
    """

    path: str
    op: str
    decision: str
    scheme: str = "float"
    kernel: str = ""
    reason: str = ""
    rule: str = ""
    scale: float | None = None
    zero_point: int | None = None
    range: tuple[float, float] | None = None
    sqnr: float | None = None
    time: float | None = None


def quantization_of(module: nn.Module) -> Quantization:
    """What became of each layer of a quantized module.

    Of one that is not quantized it raises QuantizationError when it is asked, not before: tools look at attributes that
    they do not use. A module of the user's of that name is given as it is.
    """
    for table in (module._modules, module._parameters, module._buffers, module.__dict__):
        if "quantization" in table:
            own: Any = table["quantization"]
            return own  # type: ignore[no-any-return]
    record = module.meta.get(QUANTIZED) if isinstance(module, GraphModule) else None
    if record is not None:
        report = module.report
        rows, notes = _with_kernels(record["rows"], report), [*_notes(report)]
        for path, part in quantized_parts(module).items():
            found = quantization_of(part).explain()
            rows += [{**dataclasses.asdict(row), "path": f"{path}.{row.path}"} for row in found.rows]
            notes += [f"{path} {note}" for note in found.notes]
        record = {**record, "rows": rows, "notes": notes}
    return Quantization(record, type(module).__name__)


def record_in(module: nn.Module) -> Mapping[str, Any]:
    """The record that a quantized module carries. Raises QuantizationError for one that is not quantized."""
    record = module.meta.get(QUANTIZED) if isinstance(module, GraphModule) else None
    return _asked(record, type(module).__name__)


def _asked(record: Mapping[str, Any] | None, owner: str) -> Mapping[str, Any]:
    if record is None:
        raise QuantizationError(
            f"{owner} is not quantized", fix="quantize it: graphwright.quantize(model, config, batches)"
        )
    return record


def say(module: GraphModule, reasons: Mapping[str, str], others: Sequence[Mapping[str, Any]] = ()) -> None:
    """Give reasons for layers that a module leaves in float, by their paths; the rules are those of other rows."""
    rules = {row["path"]: row["rule"] for row in others}
    rows = [
        {**row, "reason": reasons[row["path"]], "rule": rules.get(row["path"], row["rule"])}
        if row["path"] in reasons
        else row
        for row in module.meta[QUANTIZED]["rows"]
    ]
    module.meta[QUANTIZED] = {**module.meta[QUANTIZED], "rows": rows}


def slower_layers(module: GraphModule, paths: Collection[str]) -> dict[str, str]:
    """Of some layers of a lowered module, those that floats compute though their inputs are rounded, and why."""
    report = module.report
    found: dict[str, str] = {}
    if not isinstance(report, OptimizedReport):
        return found
    for part in report.parts:
        if not _is_float(part.runs_on):
            continue
        times = dict(part.times_us)
        floats = [time for name, time in times.items() if _is_float(name)]
        integers = [time for name, time in times.items() if not _is_float(name)]
        reason = "there is no kernel of integers for it here"
        if floats and integers:
            reason = f"integers took {min(integers) / min(floats):.2f} of the time of floats"
        found |= {_owner(weight): reason for weight in part.weights}
    faster = [part for part in report.parts if not _is_float(part.runs_on)]
    for weight in (weight for part in faster for weight in part.weights):  # at other sizes
        found.pop(_owner(weight), None)
    rounded = {row["path"] for row in module.meta[QUANTIZED]["rows"] if row["decision"] in ("static", "dynamic")}
    return {path: reason for path, reason in found.items() if path in rounded and path in paths}


def _owner(weight: str) -> str:
    """The path of the layer that has a weight; of a weight of the module itself, its name."""
    return weight.rpartition(".")[0] or weight


def _is_float(kernel: str) -> bool:
    return kernel == "torch" or "float weight" in kernel


def _with_kernels(rows: Sequence[Mapping[str, Any]], report: Any) -> list[dict[str, Any]]:
    """Rows with what runs each layer, as far as a lowered module says so."""
    if not isinstance(report, OptimizedReport):
        return [dict(row) for row in rows]
    parts = {_owner(weight): part for part in report.parts for weight in part.weights}
    whole = report.program.runs_on
    noted = []
    for row in rows:
        part = parts.get(row["path"])
        kernel = "" if row["decision"] == "float" and part is None else whole if part is None else part.runs_on
        noted.append({**row, "kernel": kernel, "time": None if part is None else _ratio(part)})
    return noted


def _notes(report: Any) -> tuple[str, ...]:
    """What a lowered module says of what else could have run it."""
    if not isinstance(report, OptimizedReport):
        return ()
    program = report.program
    times = ", ".join(f"{name} {time / 1000:.3g} ms" for name, time in program.times_us)
    return (f"runs on {program.runs_on}, of {times}", *program.why)


def _ratio(part: RunsOn) -> float | None:
    """The time of a kernel to that of the fastest one with weights in float; None where that is not known."""
    times = dict(part.times_us)
    floats = [time for name, time in times.items() if "float weight" in name]
    return times[part.runs_on] / min(floats) if floats and part.runs_on in times else None


class Quantization:
    """Reads the record that a quantized module carries.

    Raises QuantizationError, whatever it is asked, for a module that carries none.
    """

    def __init__(self, record: Mapping[str, Any] | None, owner: str = "the module") -> None:
        self._record, self._owner = record, owner

    def _read(self) -> Mapping[str, Any]:
        return _asked(self._record, self._owner)

    @property
    def rows(self) -> list[Row]:
        """A row for each layer, product and sum, in their order."""
        return [Row(**_row(each)) for each in self._read()["rows"]]

    @property
    def backend(self) -> str:
        """The name of the backend that it was quantized for."""
        return str(self._read()["backend"])

    def __getitem__(self, path: str) -> Row:
        for row in self.rows:
            if row.path == path:
                return row
        paths = [row.path for row in self.rows]
        near = difflib.get_close_matches(path, paths, 3) or paths[:3]
        raise QuantizationError(f"no layer has the path {path!r}", fix=f"layers are {', '.join(map(repr, near))}")

    def __len__(self) -> int:
        return len(self.rows)

    def explain(self) -> Explanation:
        """A table of all layers."""
        return Explanation(tuple(self.rows), tuple(self._read().get("notes", ())))


def _row(record: Mapping[str, Any]) -> dict[str, Any]:
    found = record.get("range")
    return {**record, "range": None if found is None else (float(found[0]), float(found[1]))}


@dataclasses.dataclass(frozen=True, slots=True)
class Explanation:
    """A table: as text, as a picture, or as `rows`; and notes on the whole, such as which engine was passed over.

    The text says once what holds of a layer in several captures or calls, and of how many.
    """

    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        head = ("layer", "op", "calls", "decision", "scheme", "kernel", "SQNR", "time", "why", "rule")
        counts = Counter(map(_cells, self.rows))
        lines = [(*cells[:2], str(count) if count > 1 else "", *cells[2:]) for cells, count in counts.items()]
        return "\n".join([_table([head, *lines]), *self.notes])

    def worst(self, count: int) -> Explanation:
        """A table of the layers that lose most alone, the worst first; of those whose loss is known."""
        known = [(row.sqnr, i) for i, row in enumerate(self.rows) if row.sqnr is not None]
        return Explanation(tuple([self.rows[i] for _, i in sorted(known)[:count]]))

    def to_svg(self, title: str = "signal to noise ratio of each layer alone") -> str:
        """Draw the SQNR of each layer as the text of an SVG file; what stays in float without a loss has no bar.

        Sums and concatenations, which have no weights, are left out.
        """
        layers = [row for row in self.rows if row.sqnr is not None or row.op in KINDS.values()]
        return bars_as_svg([(row.path, row.decision, row.sqnr) for row in layers], title)


def _cells(row: Row) -> tuple[str, ...]:
    sqnr = "" if row.sqnr is None else f"{row.sqnr:.1f} dB"
    time = "" if row.time is None else f"{row.time:.2f}"
    return row.path, row.op, row.decision, row.scheme, row.kernel, sqnr, time, row.reason, row.rule


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    shown = [i for i in range(len(rows[0])) if any(row[i] for row in rows[1:])]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(row[i].ljust(widths[i]) for i in shown).rstrip() for row in rows]
    return "\n".join([lines[0], "  ".join("-" * widths[i] for i in shown), *lines[1:]])


def record_of(
    decisions: Mapping[Node, Decision],
    ranges: Mapping[Node, Range],
    grids: Mapping[Node, ValueGrid],
    sqnr: Mapping[Node, float],
    paths: Mapping[Node, str],
    backend: Backend,
    calls: Sequence[Call],
) -> dict[str, Any]:
    """Plain data that a module carries, and a file keeps: a row for each site, and the ranges of values by name.

    calls: with which the program was captured; tensors are kept by their shapes, dtypes and bounds, and nothing of
    several calls, and of those with objects of other kinds.
    """
    return {
        "inputs": _described(calls[0]) if len(calls) == 1 and _is_plain(calls[0]) else None,
        "backend": backend.name,
        "rows": [_recorded(each, ranges, grids, sqnr, paths) for each in decisions.values()],
        "ranges": {node.name: [each.low, each.high, each.mean_square] for node, each in ranges.items()},
    }


def _recorded(
    decision: Decision,
    ranges: Mapping[Node, Range],
    grids: Mapping[Node, ValueGrid],
    sqnr: Mapping[Node, float],
    paths: Mapping[Node, str],
) -> dict[str, Any]:
    node = decision.site.node
    row: dict[str, Any] = {
        "path": paths.get(node, decision.site.path),
        "op": decision.site.kind,
        "decision": decision.mode,
        "scheme": "float" if decision.config is None else decision.config.summary,
        "reason": decision.reason,
        "rule": "" if decision.rule is None else str(decision.rule),
        "sqnr": sqnr.get(node),
    }
    edge = decision.edges[0] if decision.edges else None
    if edge is not None and edge in grids:
        row |= {"scale": grids[edge].scale, "zero_point": grids[edge].zero_point}
    if edge is not None and edge in ranges:
        row["range"] = [ranges[edge].low, ranges[edge].high]
    return row


def _is_plain(value: Any) -> bool:
    """Tell whether values are tensors, numbers and the like, in lists, tuples and dicts."""
    if type(value) in (list, tuple, dict):
        return all(map(_is_plain, value.values() if type(value) is dict else value))
    return isinstance(value, torch.Tensor | int | float | complex | str | type(None) | torch.dtype | torch.device)


def _described(call: Call) -> Any:
    """A call as plain data: tensors by their shapes, dtypes and bounds."""
    return pytree.tree_map(_leaf, [list(call[0]), dict(call[1])])


def _leaf(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        leaf = {"shape": list(value.shape), "dtype": str(value.dtype).removeprefix("torch.")}
        bounds = _bounds(value)
        return leaf if bounds is None else {**leaf, "bounds": bounds}
    return value


def _bounds(value: torch.Tensor) -> list[float] | None:
    """The least and the greatest number of a tensor, where it has some and can be read."""
    if value.is_meta or value.layout is not torch.strided or not value.numel() or value.is_complex():
        return None
    numbers = value.detach().float() if value.is_floating_point() else value
    low, high = (bound.item() for bound in numbers.aminmax())
    return [low, high] if math.isfinite(low) and math.isfinite(high) else None
