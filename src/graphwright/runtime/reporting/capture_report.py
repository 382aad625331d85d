"""What a capture did: its facts, kept with the graph, and what the graph itself says, read when asked."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable
from typing import Any

from graphwright.errors import on_screen
from graphwright.ir import Graph, Node, Origin
from graphwright.ops import is_region
from graphwright.runtime.guards import CAPTURE, Guard, guards_of, summed_up

_FACTS = "capture"  # the key in the meta of a graph; plain data, so that copies, pickles and files keep it
_TOLD = {
    "restarts": "restart",
    "left_out": "left out",
    "said": "said",
}  # fields of the facts with entries, and their kind
_FORK, _OPAQUE = "fork", "opaque_calls"  # in the meta of nodes
_TITLES = {
    "restart": "started again",
    "guard": "taken for granted",
    "said": "taken for granted, and not checked",
    "region": "branches",
    "fork": "forks",
    "opaque": "not looked into",
    "left out": "told once, and not part of the graph",
}


@dataclasses.dataclass(frozen=True, slots=True)
class ReportEntry:
    """One thing that a capture did, and the user's line, as "file.py:3: source", where there is one.

    `kind` is "restart", "guard", "said", "region", "fork", "opaque" or "left out".
    """

    kind: str
    text: str
    at: str = ""

    def __str__(self) -> str:
        return on_screen(f"{self.kind}: {self.text}" + (f"\n  at {self.at}" if self.at else ""))


@dataclasses.dataclass(frozen=True, slots=True)
class CaptureFacts:
    """What only the capture knew: how it went, in how many passes, paths and seconds, and how much it recorded.

    `attempt` is the way that held: "captured", "captured as for export", "captured on real values", "traced
    symbolically", ... A pass is one
    run of the program on stand-ins, for whatever reason; `restarts` has the reasons. `recorded` counts the torch
    calls of the program that became nodes, `hidden` those inside calls that were not looked into. `place` is where the
    program is defined. `left_out` has the lines that log or warn, which the graph does not, `said` what the program
    read of the clock, the environment and their like, whose values are the capture's for ever.
    """

    attempt: str
    passes: int
    paths: int
    seconds: float
    recorded: int | None  # None: nobody counted, as nothing is hidden
    hidden: int
    restarts: tuple[ReportEntry, ...] = ()
    place: str = ""
    left_out: tuple[ReportEntry, ...] = ()
    said: tuple[ReportEntry, ...] = ()


_NO_FACTS = CaptureFacts("not captured: the graph was put together otherwise", 0, 0, 0.0, None, 0)


@dataclasses.dataclass(frozen=True, slots=True)
class CaptureReport:
    """What a capture did, as data and, printed, as text.

    `facts` are those of the capture; guards, branches, forks and opaque calls are those of the graph as it is now, so
    an edit that removes a guard removes it here.

    >>> import graphwright, torch
    >>> report = graphwright.trace(lambda x, y=None: x if y is None else x + y, torch.ones(2)).report
    >>> report.facts.passes, [entry.text for entry in report.guards], report.coverage
    (1, ['x is a tensor', 'y is None'], 1.0)
    """

    facts: CaptureFacts
    nodes: int
    entries: tuple[ReportEntry, ...]

    @property
    def coverage(self) -> float:
        """The fraction, from 0 to 1, of the program's torch calls outside leaf modules that the capture recorded."""
        recorded, hidden = self.facts.recorded, self.facts.hidden
        return recorded / (recorded + hidden) if recorded else 1.0 - bool(hidden)

    @property
    def restarts(self) -> list[ReportEntry]:
        """Why the capture started again, in order."""
        return self._of_kind("restart")

    @property
    def guards(self) -> list[ReportEntry]:
        """What the program takes for granted about its inputs."""
        return self._of_kind("guard")

    @property
    def regions(self) -> list[ReportEntry]:
        """The branches and loops in the graph."""
        return self._of_kind("region")

    @property
    def forks(self) -> list[ReportEntry]:
        """The branches from which on the program has two ends."""
        return self._of_kind("fork")

    @property
    def opaque(self) -> list[ReportEntry]:
        """The calls that are one node and were not looked into."""
        return self._of_kind("opaque")

    @property
    def left_out(self) -> list[ReportEntry]:
        """The lines that logged or warned while the program was captured; the graph does not."""
        return self._of_kind("left out")

    @property
    def said(self) -> list[ReportEntry]:
        """What the program read of the clock, the environment and their like: no guard can check it."""
        return self._of_kind("said")

    def _of_kind(self, kind: str) -> list[ReportEntry]:
        return [entry for entry in self.entries if entry.kind == kind]

    def __str__(self) -> str:
        facts = self.facts
        lines = [facts.attempt]
        if facts.passes:
            counts = f"{_count(facts.passes, 'pass')}, {_count(facts.paths, 'path')}, {_count(self.nodes, 'node')}"
            lines = [f"{facts.attempt} in {facts.seconds:.2f} s: {counts}, coverage {self.coverage:.0%}"]
        for kind, title in _TITLES.items():
            entries = self._of_kind(kind)
            if entries:
                lines.append(f"{title}:")
                lines += [f"  {entry.text}" + (f"\n    at {entry.at}" if entry.at else "") for entry in entries]
        return on_screen("\n".join(lines))


def report_of(graph: Graph) -> CaptureReport:
    """Return the report of a graph, whatever names the program has: `report_of(graph(gm))`.

    Of a graph that was put together by hand, or by a tracer of one's own, there is only what the graph itself says.

    >>> print(report_of(Graph()))
    not captured: the graph was put together otherwise
    """
    kept = graph._meta and graph._meta.get(_FACTS)
    if not kept:
        return CaptureReport(_NO_FACTS, sum(1 for _ in graph.all_nodes()), tuple(entries_of(graph)))
    told = {name: tuple([ReportEntry(kind, *entry) for entry in kept.get(name, ())]) for name, kind in _TOLD.items()}
    facts = CaptureFacts(**{**kept, **told})
    entries = (*facts.restarts, *entries_of(graph, facts.place), *facts.said, *facts.left_out)
    return CaptureReport(facts, sum(1 for _ in graph.all_nodes()), entries)


def entries_of(graph: Graph, place: str = "") -> list[ReportEntry]:
    """List the guards of a graph, then its branches, forks and opaque calls in their order.

    Guards on inputs are `place`d where the program is defined.
    """

    def at(guard: Guard) -> str:
        has_line = ":" in guard.at or (guard.node is not None and CAPTURE in (guard.node._meta or {}))
        return guard.at if has_line else place or guard.at

    guards = [ReportEntry("guard", guard.what, at(guard)) for guard in summed_up(guards_of(graph))]
    return [*guards, *[entry for node in graph.all_nodes() if (entry := _entry(node)) is not None]]


def report_of_all(graphs: Iterable[Graph]) -> CaptureReport:
    """Return the report of several captures in one: those of all entry points of a module."""
    several = list(graphs)
    reports = [report_of(graph) for graph in several if graph._meta and _FACTS in graph._meta]
    if len(reports) == 1 or not reports:
        return reports[0] if reports else report_of(several[0])
    facts = _joined([report.facts for report in reports])
    entries = [entry for kind in _TITLES for report in reports for entry in report._of_kind(kind)]
    return CaptureReport(facts, sum(report.nodes for report in reports), tuple(entries))


def join_facts(graph: Graph, captures: Iterable[Graph]) -> None:
    """Keep, with a graph that was made of several captures, the facts of all of them."""
    keep_facts(graph, _joined([report_of(capture).facts for capture in captures]))


def _joined(facts: list[CaptureFacts]) -> CaptureFacts:
    attempts = ", ".join(dict.fromkeys(each.attempt for each in facts))
    restarts = tuple([entry for each in facts for entry in each.restarts])
    return CaptureFacts(
        attempts,
        sum(each.passes for each in facts),
        sum(each.paths for each in facts),
        sum(each.seconds for each in facts),
        sum(each.recorded or 0 for each in facts),
        sum(each.hidden for each in facts),
        restarts,
        facts[0].place,
        tuple(dict.fromkeys(entry for each in facts for entry in each.left_out)),
        tuple(dict.fromkeys(entry for each in facts for entry in each.said)),
    )


def keep_facts(graph: Graph, facts: CaptureFacts) -> None:
    """Keep the facts of a capture with its graph."""
    fields: dict[str, Any] = {field.name: getattr(facts, field.name) for field in dataclasses.fields(facts)}
    told = {name: tuple([(entry.text, entry.at) for entry in fields[name]]) for name in _TOLD}
    graph.meta[_FACTS] = {**fields, **told}


def mark_opaque(node: Node, calls: int) -> None:
    """Note that a node is a call which was not looked into, with this many torch calls inside."""
    node.meta[_OPAQUE] = calls


def mark_fork(node: Node) -> None:
    """Note that a branch is one from which on the program has two ends."""
    node.meta[_FORK] = True


def is_fork(node: Node) -> bool:
    """Tell whether a branch is one from which on the program has two ends."""
    return _FORK in (node._meta or {})


def _entry(node: Node) -> ReportEntry | None:
    meta = node._meta or {}
    if is_region(node) and CAPTURE not in meta:  # else it chooses among captures
        kind = "fork" if is_fork(node) else "region"
        return ReportEntry(kind, f"{node.target.__name__} on {_decider(node.args[0])}", _place(node.origin))
    if _OPAQUE in meta:
        calls = _count(meta[_OPAQUE], "torch call")
        return ReportEntry("opaque", f"{_called(node)}, with {calls} inside", _place(node.origin))
    return None


def _decider(subject: Any) -> Any:
    """What decides a branch, or what a loop goes over; of a `while` loop, what its test gives."""
    return subject.output_node().args[0] if isinstance(subject, Graph) else subject


def _called(node: Node) -> str:
    if not isinstance(node.target, str):
        return getattr(node.target, "__qualname__", None) or type(node.target).__name__
    owner = node.args[0] if node.args else None
    path = owner.target if isinstance(owner, Node) and owner.op == "get_attr" else ""
    return str(path) if node.target == "__call__" else f"{path}.{node.target}".lstrip(".")


def _place(origin: Origin | None) -> str:
    return "" if origin is None else f"{os.path.basename(origin.file)}:{origin.line}: {origin.source}"


def _count(number: int, what: str) -> str:
    plural = f"{what}es" if what.endswith("s") else f"{what}s"
    return f"{number} {what if number == 1 else plural}"
