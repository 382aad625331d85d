"""`graphwright demo`: capture a real model, check it, show it, change it, write it, read it back.

Each step says what it found, and the table at the end says whether it held.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import click
import torch
from torch import nn

from graphwright.analysis import format_columns, largest_difference, tensors_in, verify
from graphwright.capture import trace
from graphwright.cli.detector import detector_subject
from graphwright.cli.sentences import UnavailableError, load_sentences
from graphwright.cli.subject import Subject
from graphwright.codegen import readable_source
from graphwright.errors import GraphwrightError
from graphwright.ir import Node, qualified_name
from graphwright.runtime import GraphModule, graph_of, guards_of

_LINES = 100  # of a listing, at most
_WIDTH = 50  # characters of a table's cell, at most


@click.command("demo")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="where to write the transformed model (default: a temporary folder)",
)
@click.option(
    "--model", type=click.Choice(["auto", "sentences", "detector"]), default="auto",
    help="which model to demonstrate on (default: auto, sentences where it is installed)",
)  # fmt: skip
def demo(out: Path | None, model: str) -> int:
    """Capture a real model, check it, show it, change it, write it, read it back.

    The model is a sentence encoder, or a detector of random weights where that is not installed. The status is 0 only
    if every check held.
    """
    folder = out or Path(tempfile.mkdtemp(prefix="graphwright-demo-"))
    return 0 if demonstrate(_choose(model), folder, print) else 1


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


def demonstrate(subject: Subject, folder: Path, say: Callable[[str], None]) -> bool:
    """Run every step on one model, telling `say` what it found; return whether every check held."""
    demonstration = _Demonstration(subject, say)
    demonstration.introduce()
    gm = demonstration.capture()
    demonstration.verify(gm)
    demonstration.show(gm)
    demonstration.change(gm)
    demonstration.write(gm, folder / subject.package)
    return demonstration.conclude()


@dataclass(frozen=True, slots=True)
class _Demonstration:
    """The steps, and what they found: facts, and checks that held or did not."""

    subject: Subject
    say: Callable[[str], None]
    facts: dict[str, str] = field(default_factory=dict)
    checks: dict[str, bool] = field(default_factory=dict)

    def introduce(self) -> None:
        """Say what the model is."""
        self._title(f"1. The model: {self.subject.name}")
        self._lines(self.subject.about)
        self.facts["model"] = f"{self.subject.name} ({type(self.subject.model).__qualname__})"

    def capture(self) -> GraphModule:
        """Capture the model as it is."""
        self._title("2. Capture")
        args, kwargs = next(iter(self.subject.calls.values()))
        start = time.perf_counter()
        gm: GraphModule = trace(self.subject.model, args, kwargs, progress=self.say)
        seconds = time.perf_counter() - start
        nodes, guards = len(graph_of(gm).nodes), guards_of(graph_of(gm))
        kept = "still an instance of" if isinstance(gm, type(self.subject.model)) else "no instance of"
        self.say(f"captured in {seconds:.2f} s: {nodes} nodes, {kept} {type(self.subject.model).__qualname__}")
        self._lines(_head([f"guard: {guard}" for guard in guards], 12))
        self.facts.update({"nodes": str(nodes), "guards": str(len(guards)), "capture": f"{seconds:.2f} s"})
        return gm

    def verify(self, gm: GraphModule) -> None:
        """Compare with the original on every call."""
        self._title("3. Does the captured module compute what the original computes?")
        report = verify(self.subject.model, gm, list(self.subject.calls.values()))
        rows = [
            (name, _brief(case.inputs), case.verdict, f"{case.error:.3g}")
            for name, case in zip(self.subject.calls, report.cases, strict=True)
        ]
        self._lines(format_columns(("case", "inputs", "verdict", "worst error"), rows))
        for case in report.cases:
            self._lines(map(str, case.differences[:3]))
        self.facts["worst error"] = f"{report.worst:.3g}"
        self.checks["the captured module agrees with the original"] = report.ok

    def show(self, gm: GraphModule) -> None:
        """Print the generated Python of one part, and its nodes as a table."""
        part = self.subject.part
        self._title(f"4. What was captured: {part}")
        self._lines(_head(readable_source(gm, part).strip("\n").splitlines()))
        self.say("")
        inside = [node for node in graph_of(gm).nodes if _is_inside(node, part)]
        rows = [(node.op, node.name, _brief(_target(node)), _brief(_arguments(node))) for node in inside]
        self._lines(_head(format_columns(("opcode", "name", "target", "arguments"), rows)))

    def change(self, gm: GraphModule) -> None:
        """Transform the captured module and compare its results with the original's."""
        self._title(f"5. Replace {self.subject.change}")
        before = len(graph_of(gm).nodes)
        changes = self.subject.transform(gm)
        self.say(f"{changes} changes, {before} nodes before, {len(graph_of(gm).nodes)} after")
        effect = self.subject.compare(self.subject.model, gm)
        self._lines(effect.lines)
        self.facts["changes"] = str(changes)
        self.checks["there was something to change"] = changes > 0
        self.checks[effect.claim] = effect.holds

    def write(self, gm: GraphModule, package: Path) -> None:
        """Write the transformed module as a package, and use it in another process."""
        self._title("6. Write it as a Python package, import that in a fresh process")
        files = gm.to_folder(package, _class_name(package.name))
        self._lines(f"{path}  {path.stat().st_size / 2**10:,.1f} KiB" for path in files)
        error, told = _reimport(package, gm, self.subject)
        self.say(told)
        self.facts.update({"files written": f"{len(files)} in {package}", "error after import": f"{error:.3g}"})
        self.checks["a fresh process computes the same from the files"] = error <= 1e-6

    def conclude(self) -> bool:
        """Print the table of facts and checks."""
        self._title("Summary")
        held = {check: "yes" if holds else "NO" for check, holds in self.checks.items()}
        self._lines(format_columns(("", ""), [*self.facts.items(), *held.items()])[1:])
        return all(self.checks.values())

    def _title(self, text: str) -> None:
        self._lines(("", text, "-" * len(text)))

    def _lines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.say(line)


def _is_inside(node: Node, path: str) -> bool:
    return node.origin is not None and f"{node.origin.module}.".startswith(f"{path}.")


def _target(node: Node) -> str:
    return node.target if isinstance(node.target, str) else qualified_name(node.target)


def _arguments(node: Node) -> str:
    return ", ".join([*map(str, node.args), *(f"{name}={value}" for name, value in node.kwargs.items())])


def _brief(text: str) -> str:
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}..."


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
