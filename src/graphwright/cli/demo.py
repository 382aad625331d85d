"""`graphwright demo`: capture a real model, check it, show it, change it, write it, read it back.

Each step says what it found, and the table at the end says whether it held.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from graphwright.analysis import VerifyReport, format_columns, largest_difference, tensors_in, verify
from graphwright.capture import trace
from graphwright.cli.detector import detector_subject
from graphwright.cli.sentences import UnavailableError, load_sentences
from graphwright.cli.subject import Subject
from graphwright.codegen import readable_source
from graphwright.errors import GraphwrightError
from graphwright.ir import Node, qualified_name
from graphwright.runtime import GraphModule, graph_of

__all__ = ["add_demo", "demonstrate"]

_LINES = 60  # of a listing, at most
_WIDTH = 50  # characters of a table's cell, at most


def add_demo(commands: Any) -> None:
    """Add the command and its options."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "demo",
        help="capture a real model, check it, show it, change it, write it, read it back",
        description="Demonstrates the library on a sentence encoder, or on a detector of random weights where the "
        "encoder is not installed. Exits with 0 only if every check held.",
    )
    parser.add_argument(
        "--out", type=Path, metavar="FOLDER", help="where to write the transformed model (default: a temporary folder)"
    )
    parser.add_argument(
        "--model",
        choices=("auto", "sentences", "detector"),
        default="auto",
        help="which model to demonstrate on (default: auto, sentences where it is installed)",
    )
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    folder: Path = arguments.out or Path(tempfile.mkdtemp(prefix="graphwright-demo-"))
    return 0 if demonstrate(_choose(arguments.model), folder, print) else 1


def _choose(model: str) -> Subject:
    if model == "detector":
        return detector_subject()
    try:
        return load_sentences()
    except UnavailableError as error:
        if model == "sentences":
            raise
        print(f"{error}\ngoing on with a detector of random weights\n")
        return detector_subject()


@dataclass(slots=True)
class _Summary:
    """What the table at the end says: facts, and checks that held or did not."""

    facts: list[tuple[str, str]] = field(default_factory=list)
    checks: dict[str, bool] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """Write the table."""
        return format_columns(
            ("", ""), [*self.facts, *((name, "yes" if held else "NO") for name, held in self.checks.items())]
        )[1:]


def demonstrate(subject: Subject, folder: Path, say: Callable[[str], None]) -> bool:
    """Run every step on one model, telling `say` what it found; return whether every check held."""
    summary = _Summary()
    summary.facts.append(("model", f"{subject.name} ({type(subject.model).__qualname__})"))
    _title(say, f"1. The model: {subject.name}")
    for line in subject.about:
        say(line)

    _title(say, "2. Capture")
    gm, seconds = _capture(subject, say)
    nodes = len(graph_of(gm).nodes)
    summary.facts += [("nodes", str(nodes)), ("guards", str(len(gm.guards))), ("capture", f"{seconds:.2f} s")]
    for line in _head([f"guard: {guard}" for guard in gm.guards], 12):
        say(line)

    _title(say, "3. The captured module computes what the original computes")
    report = _check(subject, gm, say)
    summary.facts.append(("worst error", f"{report.worst:.3g}"))
    summary.checks["the captured module agrees with the original"] = report.ok

    _title(say, f"4. What was captured: {subject.part}")
    shown = _show(subject, gm, say)
    summary.checks["the generated Python of one part can be shown"] = shown

    _title(say, f"5. Replace {subject.change}")
    changes = subject.transform(gm)
    say(f"{changes} changes, {nodes} nodes before, {len(graph_of(gm).nodes)} after")
    summary.facts.append(("changes", str(changes)))
    summary.checks["there was something to change"] = changes > 0
    effect = subject.compare(subject.model, gm)
    for line in effect.lines:
        say(line)
    summary.checks[effect.claim] = effect.holds

    _title(say, "6. Write it as a Python package, import that in a fresh process")
    package = folder / subject.package
    gm.to_folder(package, _class_name(subject.package))
    files = [path for path in sorted(package.rglob("*")) if path.is_file()]
    for path in files:
        say(f"{path}  {path.stat().st_size / 2**20:.2f} MiB")
    error, told = _reimport(package, gm, subject)
    say(told)
    summary.facts += [("files written", f"{len(files)} in {package}"), ("error after import", f"{error:.3g}")]
    summary.checks["a fresh process computes the same from the files"] = error <= 1e-6

    _title(say, "Summary")
    for line in summary.lines():
        say(line)
    return all(summary.checks.values())


def _title(say: Callable[[str], None], text: str) -> None:
    say(f"\n{text}\n{'-' * len(text)}")


def _capture(subject: Subject, say: Callable[[str], None]) -> tuple[GraphModule, float]:
    args, kwargs = next(iter(subject.calls.values()))
    start = time.perf_counter()
    gm: GraphModule = trace(subject.model, args, kwargs, progress=_Progress())
    seconds = time.perf_counter() - start
    count = len(graph_of(gm).nodes)
    say(f"captured in {seconds:.2f} s: {count} nodes, {len(gm.guards)} guards; the result is a {_parents(gm)}")
    return gm, seconds


def _parents(gm: nn.Module) -> str:
    return " and a ".join(kind.__name__ for kind in type(gm).__mro__[1:3])


class _Progress:
    """Shows what a capture is doing on one line of a terminal that is overwritten; elsewhere says nothing."""

    def __call__(self, line: str) -> None:
        if sys.stderr.isatty():
            print(f"\r{line[:79]:<79}", end="\r", file=sys.stderr, flush=True)


def _check(subject: Subject, gm: GraphModule, say: Callable[[str], None]) -> VerifyReport:
    report = verify(subject.model, gm, list(subject.calls.values()))
    rows = [
        (name, _brief(case.inputs), case.verdict, f"{case.error:.3g}")
        for name, case in zip(subject.calls, report.cases, strict=True)
    ]
    for line in format_columns(("case", "inputs", "verdict", "worst error"), rows):
        say(line)
    for case in report.cases:
        for difference in case.differences[:3]:
            say(str(difference))
    return report


def _show(subject: Subject, gm: GraphModule, say: Callable[[str], None]) -> bool:
    text = readable_source(gm, subject.part)
    for line in _head(text.strip("\n").splitlines()):
        say(line)
    say("")
    inside = [node for node in graph_of(gm).nodes if _is_inside(node, subject.part)]
    rows = [(node.op, node.name, _brief(_target(node)), _brief(_arguments(node))) for node in inside]
    for line in _head(format_columns(("opcode", "name", "target", "arguments"), rows)):
        say(line)
    return bool(text.strip()) and bool(inside)


def _target(node: Node) -> str:
    return node.target if isinstance(node.target, str) else qualified_name(node.target)


def _arguments(node: Node) -> str:
    return ", ".join([*map(str, node.args), *(f"{name}={value}" for name, value in node.kwargs.items())])


def _brief(text: str) -> str:
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}..."


def _is_inside(node: Node, path: str) -> bool:
    return node.origin is not None and f"{node.origin.module}.".startswith(f"{path}.")


def _head(lines: list[str], most: int = _LINES) -> list[str]:
    return lines if len(lines) <= most else [*lines[:most], f"... {len(lines) - most} more lines"]


def _class_name(package: str) -> str:
    return "".join(word.capitalize() for word in package.split("_"))


# Runs in the fresh process: import the package, make the calls, save what comes out.
_CHECK = """
import importlib, json, sys
import torch
from graphwright.analysis import tensors_in
job = json.loads(sys.argv[1])
sys.modules.update(dict.fromkeys(job["hidden"]))
sys.path.insert(0, job["folder"])
module = getattr(importlib.import_module(job["package"]), job["name"])().eval()
calls = torch.load(job["calls"])
with torch.no_grad():
    torch.save([tensors_in(module(*args, **kwargs)) for args, kwargs in calls], job["results"])
print(f"{type(module).__module__}.{type(module).__name__} answered {len(calls)} calls in a process of its own")
"""


def _reimport(package: Path, gm: nn.Module, subject: Subject) -> tuple[float, str]:
    """Make the same calls here and in a fresh process that imports the package; return the largest difference."""
    calls = list(subject.calls.values())
    with tempfile.TemporaryDirectory() as scratch:
        job = {
            "hidden": subject.hidden,
            "folder": str(package.resolve().parent),
            "package": package.name,
            "name": _class_name(package.name),
            "calls": f"{scratch}/calls.pt",
            "results": f"{scratch}/results.pt",
        }
        torch.save(calls, f"{scratch}/calls.pt")
        process = subprocess.run(
            [sys.executable, "-c", _CHECK, json.dumps(job)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            capture_output=True,
            text=True,
        )
        if process.returncode != 0:
            raise GraphwrightError(f"the written package cannot be used:\n{process.stderr.strip()}")
        there = torch.load(f"{scratch}/results.pt")
    with torch.no_grad():
        here = [tensors_in(gm(*args, **kwargs)) for args, kwargs in calls]
    return largest_difference(here, there), process.stdout.strip()
