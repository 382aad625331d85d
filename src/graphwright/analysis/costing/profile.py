"""Where the time of a call goes: per node and per module, beside operations, bytes and memory."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from graphwright.analysis.costing.costs import FREE, Cost, count
from graphwright.analysis.costing.flame import flame_page
from graphwright.analysis.costing.memory import MemoryUse, memory
from graphwright.analysis.module_state import undisturbed
from graphwright.analysis.tables import Table, bytes_as_text, number_as_text
from graphwright.analysis.values import copied_inputs
from graphwright.errors import GraphError
from graphwright.ir import Node
from graphwright.ops import is_region
from graphwright.progress import shown
from graphwright.runtime import Interpreter, call_of, captured_for


@dataclass(frozen=True, slots=True)
class ProfiledNode:
    """What one node takes in a call: microseconds, operations, bytes read and written, and of memory, in bytes, how
    much is kept after it and how much more there is at most while it runs; None where that cannot be told.

    name: of the node. kind: what it calls, or the class of the module. module: the dotted path of the module whose
        `forward` it is part of. line: the user's. share: of the time of all nodes, from 0 to 1.
    """

    name: str
    kind: str
    module: str
    line: str
    time_us: float
    share: float
    flops: int
    bytes: int
    runs: int
    kept: int | None
    inside: int | None


@dataclass(frozen=True, slots=True)
class ProfiledModule:
    """What the nodes inside of one module take together; name: its dotted path, "" for the whole program."""

    name: str
    kind: str
    time_us: float
    share: float
    flops: int
    bytes: int
    parameters: int


@dataclass(frozen=True, slots=True)
class Profile:
    """Where the time of a call goes: `nodes` in the order of the graph, `modules` outer ones first.

    time_us: of a call of the generated code. peak: of its memory, in bytes; None where it cannot be told.
    Printed, it is a table of the nodes that take longest.
    """

    nodes: tuple[ProfiledNode, ...]
    modules: tuple[ProfiledModule, ...]
    time_us: float
    peak: int | None

    def __getitem__(self, name: str) -> ProfiledModule | ProfiledNode:
        every: list[ProfiledModule | ProfiledNode] = [*self.modules, *self.nodes]
        for one in every:
            if one.name == name:
                return one
        raise KeyError(f"no module and no node is called {name!r}")

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain data."""
        return asdict(self)

    def to_html(self, path: str | os.PathLike[str] = "profile.html") -> Path:
        """Write a flame picture as one HTML file, and return where it is: modules as wide as their time."""
        title = self.modules[0].kind if self.modules else "profile"
        target = Path(path)
        rows = [(node.module, node.name, node.time_us) for node in self.nodes]
        target.write_text(flame_page(title, rows), encoding="utf-8")
        return target

    def table(self, most: int = 20) -> Table:
        """A table of the nodes that take longest."""
        longest = sorted(self.nodes, key=lambda node: -node.time_us)
        rows = [
            (node.name, node.kind, node.module, f"{node.time_us:,.1f}", f"{node.share:.1%}", number_as_text(node.flops),
             bytes_as_text(node.bytes), "" if node.kept is None else bytes_as_text(node.kept), node.line)
            for node in longest[:most]
        ]  # fmt: skip
        peak = "" if self.peak is None else f", at most {bytes_as_text(self.peak)} beside weights and inputs"
        notes = [f"a call takes {self.time_us:,.1f} us{peak}"]
        if len(longest) > most:
            rest = sum(node.time_us for node in longest[most:])
            notes.insert(0, f"... {len(longest) - most} more nodes, {rest:,.1f} us")
        titles = ("node", "kind", "module", "us", "share", "flops", "bytes", "kept", "line")
        return Table(titles, rows, notes)

    def table_of_modules(self) -> Table:
        """A table of the modules."""
        rows = [
            (module.name or "(all)", module.kind, f"{module.time_us:,.1f}", f"{module.share:.1%}",
             number_as_text(module.flops), bytes_as_text(module.bytes), number_as_text(module.parameters))
            for module in self.modules
        ]  # fmt: skip
        return Table(("module", "class", "us", "share", "flops", "bytes", "parameters"), rows)

    def __str__(self) -> str:
        return str(self.table())

    def __rich__(self) -> Any:
        """What rich prints in place of this."""
        return self.table()


@shown("measuring")
def profile(
    gm_or_model: Any,
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    repeats: int = 5,
    progress: bool | None = None,
) -> Profile:
    """Measure where the time of a call goes, per node and per module, beside operations, bytes and memory.

    The nodes run one by one, without gradients, `repeats` times after one run that does not count, and the median is
    told. A node on its own takes some microseconds more than as a part of the generated code, whose time `time_us`
    is; on a GPU each one is waited for. A model that is not captured is captured for the call. Nothing is left changed.

    >>> found = profile(nn.Sequential(nn.Linear(64, 64), nn.ReLU()), torch.ones(8, 64), repeats=1)
    >>> [node.kind for node in found.nodes], found["0"].flops, found.time_us > 0
    (['Linear', 'ReLU'], 65536, True)
    """
    if repeats < 1:
        raise GraphError(f"repeats is {repeats}: nothing would be measured", fix="pass 1 or more")
    given, named = call_of(args, kwargs)
    gm = captured_for(gm_or_model, given, named)
    counter = count(gm, given, named)
    seconds = seconds_of_nodes(gm, given, named, repeats)
    uses, peak = _memory(gm, given, named)
    costs = {node: counter.cost(node) for node in counter.graph.all_nodes() if node.op not in FREE}
    total = 1e6 * sum(seconds.get(node, 0.0) for node in costs) or 1.0
    nodes = []
    for node, cost in costs.items():
        use, took = uses.get(node), 1e6 * seconds.get(node, 0.0)
        nodes.append(
            ProfiledNode(
                cost.name, cost.kind, cost.module, _line(node), took, took / total, cost.flops, cost.bytes, cost.runs,
                None if use is None else use.kept, None if use is None else use.inside,
            )
        )  # fmt: skip
    modules = [_of_module(cost, nodes, total) for cost in counter.report().modules]
    return Profile(tuple(nodes), tuple(modules), _time_of_call(gm, given, named, repeats), peak)


def _memory(
    gm: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[dict[Node | None, MemoryUse], int | None]:
    """The memory of each node, and the peak; nothing where an operation cannot do without data."""
    try:
        report = memory(gm, args, kwargs)
    except GraphError:
        return {}, None
    return {use.node: use for use in report.nodes}, report.peak


def _line(node: Node) -> str:
    return "" if node.origin is None else f"{node.origin.file.rpartition('/')[2]}:{node.origin.line}"


def _of_module(cost: Cost, nodes: list[ProfiledNode], total: float) -> ProfiledModule:
    inside = sum(node.time_us for node in nodes if not cost.name or f"{node.module}.".startswith(f"{cost.name}."))
    return ProfiledModule(cost.name, cost.kind, inside, inside / total, cost.flops, cost.bytes, cost.parameters)


# ---- measuring


def seconds_of_nodes(
    gm: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], repeats: int = 3
) -> dict[Node, float]:
    """Seconds that each node takes in a call, the median of some runs after one that does not count.

    Those of a branch or loop are without the nodes inside of it.
    """
    runs: list[dict[Node, float]] = []
    with undisturbed(gm) as put_back:
        for _ in range(repeats + 1):
            put_back()
            timer = _Timer(gm)
            given, named = copied_inputs((args, kwargs))
            timer.run(*given, **named)
            runs.append(timer.seconds)
    return {node: statistics.median(run.get(node, 0.0) for run in runs[1:]) for node in runs[-1]}


def _time_of_call(gm: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], repeats: int) -> float:
    """Microseconds that a call of the generated code takes."""
    times = []
    with undisturbed(gm) as put_back:
        for _ in range(repeats + 1):
            put_back()
            given, named = copied_inputs((args, kwargs))
            started = time.perf_counter()
            gm(*given, **named)
            _wait()
            times.append(time.perf_counter() - started)
    return 1e6 * statistics.median(times[1:])


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


class _Timer(Interpreter):
    """Runs a graph and measures each node."""

    def __init__(self, gm: nn.Module) -> None:
        super().__init__(gm)
        self.extra_traceback = False
        self.seconds: dict[Node, float] = {}
        self._inside = [0.0]  # what nodes in bodies have taken so far, for each region that is running

    def run_node(self, n: Node) -> Any:
        """Run one node, and measure."""
        self._inside.append(0.0)
        started = time.perf_counter()
        value = super().run_node(n)
        _wait()
        took = time.perf_counter() - started
        inside = self._inside.pop()
        self._inside[-1] += took
        self.seconds[n] = self.seconds.get(n, 0.0) + (took - inside if is_region(n) else took)
        return value
