"""Passes one after the other, each checked: the one that breaks a program is named, and its work taken back."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from torch import nn

from graphwright.analysis import verify
from graphwright.errors import GraphwrightError, PassError
from graphwright.hierarchy import apart
from graphwright.passes.support.pass_base import PassResult
from graphwright.runtime import (
    GraphModule,
    SharedCode,
    Snapshot,
    entry_points_of,
    graphs_of,
    is_nested,
    only_entry,
    share_graph,
    transaction,
)

Mode = Literal["train", "eval"]


@dataclass(frozen=True, slots=True)
class Step:
    """One pass of a pipeline that has run: its name, how many changes it made, and how long it took."""

    name: str
    changes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class PipelineResult:
    """What the passes of a pipeline did, in their order."""

    steps: tuple[Step, ...]

    @property
    def changes(self) -> int:
        """How many changes all passes made together."""
        return sum(step.changes for step in self.steps)

    def __str__(self) -> str:
        width = max([len(step.name) for step in self.steps], default=0)
        rows = [f"{step.name:<{width}}  {step.changes:>7}  {step.seconds * 1e3:>8.1f} ms" for step in self.steps]
        return "\n".join(rows)


class Pipeline:
    """Runs passes over a captured module, in place.

    passes: objects with `run(gm)`, or functions of the module; each answers with how many changes it made, with the
        module itself, or nothing.
    inputs: calls as `verify` takes them. With these, what the module computes is compared with what it computed before
        the first pass: after the last one, and, if that differs, after those in between.
    modes, grads, rtol, atol: how they are compared; see `verify`.
    repeat: at most so many rounds of all passes, until a round changes nothing.

    The structure of the graphs is checked before the first pass and after each. Where a pass raises or breaks
    something, `run` raises a PassError that names it, and the module is as it was before the first.

    >>> import torch
    >>> from graphwright import symbolic_trace
    >>> from graphwright.passes import FoldConditions, MergeSubexpressions
    >>> gm = symbolic_trace(lambda x: (x + 1) * (x + 1))
    >>> result = Pipeline(MergeSubexpressions(), FoldConditions(), inputs=[torch.ones(2)]).run(gm)
    >>> [(step.name, step.changes) for step in result.steps]
    [('MergeSubexpressions', 1), ('FoldConditions', 0)]
    """

    def __init__(
        self,
        *passes: Any,
        inputs: Sequence[Any] | None = None,
        modes: Sequence[Mode] = ("eval",),
        grads: bool = False,
        rtol: float | None = None,
        atol: float | None = None,
        repeat: int = 1,
    ) -> None:
        for each in passes:
            if not callable(getattr(each, "run", each)):
                raise PassError(f"{each!r} is no pass", fix="give an object with run(gm), or a function of the module")
            if isinstance(each, type) and hasattr(each, "run"):
                raise PassError(
                    f"{each.__name__} is a class of passes, and no pass yet", fix=f"make one: {each.__name__}()"
                )
        self.passes = passes
        self.inputs = inputs
        self.repeat = repeat
        self._how: dict[str, Any] = {"modes": modes, "grads": grads, "rtol": rtol, "atol": atol}

    def run(self, gm: nn.Module) -> PipelineResult:
        """Run the passes. Raises PassError, with the module as it was, where one of them breaks it."""
        _check(gm, "the module, before any pass,")
        reference = copy.deepcopy(gm) if self.inputs is not None else None
        steps: list[Step] = []
        with transaction(gm):
            for _ in range(self.repeat):
                done = [_run(each, gm) for each in self.passes]
                steps += done
                if not any(step.changes for step in done):
                    break
            if reference is not None:
                report = verify(reference, gm, self.inputs or (), **self._how)
                if not report.ok:
                    raise self._culprit(reference, len(steps), str(report))
        return PipelineResult(tuple(steps))

    def bisect(self, gm: nn.Module) -> str | None:
        """Name the first pass after which a module computes something else; None if there is none.

        The module is left alone: the passes run on copies, as many of them as halving the list takes.
        """
        if self.inputs is None:
            raise PassError("what a module computes can be compared on inputs only", fix="Pipeline(..., inputs=[x])")
        i = self._first_wrong(gm, len(self.passes) * self.repeat)
        return None if i is None else _name(self.passes[i % len(self.passes)])

    def _culprit(self, reference: nn.Module, count: int, report: str) -> PassError:
        i = self._first_wrong(reference, count)
        name = "the passes together" if i is None else _name(self.passes[i % len(self.passes)])
        place = "" if i is None else f", pass {i % len(self.passes) + 1} of {len(self.passes)},"
        return PassError(
            f"{name}{place} changed what the module computes:\n{report}",
            fix="leave the pass out, or give tolerances that it keeps: Pipeline(..., atol=1e-5)",
        )

    def _first_wrong(self, gm: nn.Module, count: int) -> int | None:
        """The number of the first pass after which the module is wrong, by halving."""

        def is_right(number: int) -> bool:
            other = copy.deepcopy(gm)
            for i in range(number):
                _run(self.passes[i % len(self.passes)], other)
            return bool(verify(gm, other, self.inputs or (), **self._how).ok)

        right, wrong = 0, count
        if is_right(wrong):
            return None
        while wrong - right > 1:
            middle = (right + wrong) // 2
            right, wrong = (middle, wrong) if is_right(middle) else (right, middle)
        return right


def _run(each: Any, gm: nn.Module) -> Step:
    """Run one pass on a module and on the captured modules in it, and check the structure of what it leaves."""
    with apart(gm) as modules:
        steps = [step for module in modules for step in _steps(each, module)]
    return Step(steps[0].name, sum(step.changes for step in steps), sum(step.seconds for step in steps))


def _steps(each: Any, gm: nn.Module) -> list[Step]:
    """Run one pass on a module, and on each graph of one that its program calls in several ways.

    What such a module holds is that of all its graphs: a pass that changes it leaves the module as it was.
    """
    if not isinstance(gm, GraphModule) or not is_nested(gm) or len(entry_points_of(gm)) == 1:
        return [_run_on(each, gm)]
    before, held = Snapshot(gm), _held(gm)
    graphs = {name: entry.graph for name, entry in entry_points_of(gm).items()}
    steps = []
    for name in graphs:
        with only_entry(gm, name):
            steps.append(_run_on(each, gm))
    if _held(gm) == held:
        return steps
    for name, graph in graphs.items():
        share_graph(gm, name, SharedCode(graph))
    before.restore()
    if _held(gm) != held:
        raise PassError(
            f"{_name(each)} changed tensors of a {type(gm).__name__}, which has a graph for each way to call it",
            fix="flatten the capture first: graphwright.flatten(gm)",
        )
    return [Step(step.name, 0, step.seconds) for step in steps]


def _held(gm: nn.Module) -> list[Any]:
    """What tells whether modules and tensors inside of a module, or their values, are others."""
    tensors = [*gm.named_parameters(remove_duplicate=False), *gm.named_buffers(remove_duplicate=False)]
    modules = [(path, id(module)) for path, module in gm.named_modules(remove_duplicate=False)]
    return [*modules, *[(path, id(tensor), tensor._version) for path, tensor in tensors]]


def _run_on(each: Any, gm: nn.Module) -> Step:
    function: Callable[[nn.Module], Any] = getattr(each, "run", each)
    name = _name(each)
    start, before = time.perf_counter(), _versions(gm)
    try:
        changes = function(gm)
    except GraphwrightError:
        raise
    except Exception as error:
        raise PassError(f"{name} failed: {type(error).__name__}: {error}") from error
    seconds = time.perf_counter() - start
    if isinstance(changes, PassResult):
        changes = int(changes.modified)
    elif changes is gm or changes is None:
        changes = int(_versions(gm) != before)
    elif not isinstance(changes, int):
        what = "another module" if isinstance(changes, nn.Module) else f"a {type(changes).__name__}"
        raise PassError(f"{name} gave {what}", fix="let it edit the module that it is given, and count its changes")
    _check(gm, f"{name} left a module that")
    return Step(name, int(changes), seconds)


def _versions(gm: nn.Module) -> list[int]:
    """What tells whether a graph was edited."""
    return [inner.version for graph in graphs_of(gm) for inner in graph.all_graphs()]


def _check(gm: nn.Module, who: str) -> None:
    for graph in graphs_of(gm):
        try:
            for inner in graph.all_graphs():
                inner.lint()
            graph.output_node()
        except Exception as error:
            raise PassError(f"{who} is not well formed: {error}") from error


def _name(each: Any) -> str:
    return getattr(each, "__name__", "") or type(each).__name__
