"""Judge `graphwright.onnx.export` on whole models: each in ONNX Runtime on all of its inputs, beside the model itself.

    python -m tests.onnx.zoo [--sampled] [--only NAME] [--torch] [--jobs N] [--if-there]

The hand-written models are those of the zoo, with other values, another batch size, another length and the other sides
of their branches as inputs, and the programs of the tests here and of interop, with sizes that take other ways through
them. `--sampled` takes 40 models of torchvision, timm and transformers at other batch sizes and sizes. `--torch` adds
torch.onnx.export of the original. A model is right where it agrees on all inputs, wrong where it gives other values or
shapes without an error, and refused where the export says no or ONNX Runtime fails loudly on an input.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import dataclasses
import functools
import gc
import inspect
import io
import logging
import math
import multiprocessing
import random
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

import torch
from tests.interop.judge import own_programs
from tests.onnx.programs import PROGRAMS
from tests.zoo.judging import JUDGE
from torch import nn
from torch.utils import _pytree as pytree

import graphwright
import graphwright.onnx

SAMPLE = 40
Call = tuple[tuple[Any, ...], dict[str, Any]]


class Goal(NamedTuple):
    """How many models at least, which share of them is right at least; none may be wrong."""

    models: int
    share: float


GOALS = {"hand-written": Goal(51, 44 / 51), "sampled": Goal(SAMPLE, 37 / 40)}


class Model(NamedTuple):
    """A model, where it is from, and calls of it by name, the one to capture with first."""

    name: str
    source: str
    make: Callable[[], Any]
    calls: Callable[[], dict[str, Call]]


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What came out for one model: "right", "wrong" or "refused", and why."""

    model: str
    verdict: str
    why: str
    seconds: float

    def __str__(self) -> str:
        return f"{self.model:34} {self.verdict:8} {self.seconds:6.1f} s  {self.why}"


def calls_of(entry: Any) -> dict[str, Call]:
    """The inputs of a model of the zoo."""
    first = entry.sizes[0] if entry.sizes else None
    calls = {"base": entry.inputs(entry.batch, first, 1), "values": entry.inputs(entry.batch, first, 2)}
    if entry.batch2:
        calls["batch"] = entry.inputs(entry.batch2, first, 3)
    if entry.sizes and len(entry.sizes) > 1:
        calls["size"] = entry.inputs(entry.batch, entry.sizes[1], 4)
    return {**calls, **{name: make() for name, make in entry.alts.items() if not name.startswith("raise")}}


def zoo_models(kinds: set[str]) -> list[Model]:
    """The models of these sets of the zoo that are not large."""
    sys.path.insert(0, str(JUDGE.parent))
    import zoo

    zoo.preload(kinds)
    return [
        Model(entry.name, entry.set, entry.build, functools.partial(calls_of, entry))
        for entry in zoo.ZOO.values()
        if entry.set in kinds and not (entry.heavy and entry.set != "classic")
    ]


def test_programs() -> Iterator[Model]:
    """The programs of the tests with branches and loops, at each of their sizes."""
    for name, (kind, make) in PROGRAMS.items():
        calls = {f"input {i}": (args, {}) for i, args in enumerate(make())}
        yield Model(name, "tests/onnx", kind, functools.partial(dict, calls))
    for program in own_programs():
        calls = {f"input {i}": call for i, call in enumerate(program.calls)}
        yield Model(program.name, "tests/interop", functools.partial(copy.deepcopy, program.module), calls.copy)


def judge_model(each: Model, judge: Any, export: Callable[[Any, Any, Any], Callable[..., Any]]) -> Verdict:
    """Export one model and compare it on all inputs that it takes itself."""
    torch.manual_seed(0)
    model, start = each.make(), time.perf_counter()
    if isinstance(model, nn.Module):
        judge.perturb(model.eval())
    examples = each.calls()
    _, example = next(iter(examples.items()))

    def verdict(name: str, why: str) -> Verdict:
        return Verdict(each.name, name, " ".join(why.split())[:200], time.perf_counter() - start)

    try:
        args, kwargs = copy.deepcopy(example)
        program = export(copy.deepcopy(model), args, kwargs)
    except Exception as error:
        return verdict("refused", f"{type(error).__name__}: {error}")
    failed = ""
    for name, (args, kwargs) in examples.items():
        try:
            with torch.no_grad():
                wanted = copy.deepcopy(model)(*copy.deepcopy(args), **copy.deepcopy(kwargs))
        except Exception:
            continue  # the model itself does not take this input
        try:
            given = program(*copy.deepcopy(args), **copy.deepcopy(kwargs))
        except Exception as error:
            failed = f"on {name}: {error}"
            continue
        try:
            judge.same(given, wanted)
        except judge.Differs as error:
            return verdict("wrong", f"on {name}: {error}")
    return verdict("refused", failed) if failed else verdict("right", "")


def by_graphwright(model: Any, args: Any, kwargs: Any) -> Callable[..., Any]:
    """Capture a model and export it."""
    captured = graphwright.trace(model, args, kwargs=kwargs, target="export")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return graphwright.onnx.export(captured, args, kwargs)


def by_torch(model: Any, args: Any, kwargs: Any) -> Callable[..., Any]:
    """Export a model by torch.onnx alone, every size open where torch can keep it so."""

    def sizes(leaf: Any) -> Any:
        return dict.fromkeys(range(leaf.dim()), torch.export.Dim.AUTO) if isinstance(leaf, torch.Tensor) else None

    def run(*args: Any, **kwargs: Any) -> Any:
        leaves = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        return program(*leaves)

    if not isinstance(model, nn.Module):
        function, model = model, nn.Module()
        model.forward = function
    bound = inspect.signature(model.forward).bind(*args, **kwargs).arguments
    shapes = pytree.tree_map(sizes, dict(bound))
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(model, args, kwargs=kwargs, dynamo=True, verbose=False, dynamic_shapes=shapes)
    return run


TOOLS: dict[str, Callable[[Any, Any, Any], Callable[..., Any]]] = {
    "graphwright": by_graphwright,
    "torch.onnx": by_torch,
}
Task = tuple[bool, str, tuple[str, str], str]  # sampled or hand-written, the names asked for, the model, the tool


def models(is_sampled: bool, only: str) -> list[Model]:
    """The models to judge, those of the zoo first."""
    if not is_sampled:
        return [each for each in (*zoo_models({"classic"}), *test_programs()) if only in each.name]
    chosen = [each for each in zoo_models({"torchvision", "timm", "transformers"}) if only in each.name]
    return chosen if only else random.Random(0).sample(chosen, SAMPLE)


def verdicts(tasks: Sequence[Task], jobs: int) -> Iterator[Verdict]:
    """Judge in this process, or in several."""
    if jobs == 1:
        yield from map(verdict_of, tasks)
        return
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(verdict_of, tasks)


def verdict_of(task: Task) -> Verdict:
    """Judge one model, whatever is printed meanwhile left out."""
    is_sampled, only, key, tool = task
    gc.collect()
    logging.disable(logging.CRITICAL)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return judge_model(known(is_sampled, only)[key], judge_of_the_zoo(), TOOLS[tool])


@functools.cache
def known(is_sampled: bool, only: str) -> dict[tuple[str, str], Model]:
    """The models to judge, by where they are from and their names."""
    return {(each.source, each.name): each for each in models(is_sampled, only)}


def judge_of_the_zoo() -> Any:
    """The module that compares results."""
    sys.path.insert(0, str(JUDGE.parent))
    import judge

    return judge


def meets(goal: Goal, found: Counter[str]) -> bool:
    """Print whether what came out meets the goal."""
    count = sum(found.values())
    wanted = math.ceil(goal.share * count - 1e-9)
    holds = count >= goal.models and found["right"] >= wanted and not found["wrong"]
    value = f"{found['right']} of {count}, {found['wrong']} wrong"
    print(f"{'ONNX models in ONNX Runtime':<44} {f'{wanted} of {count} right, none wrong':<32} {value:<24} "
          f"{'pass' if holds else 'MISS'}", flush=True)  # fmt: skip
    return holds


def main() -> int:
    """Judge and print: 1 where the goal is missed, 2 where there is no zoo."""
    parser = argparse.ArgumentParser(prog="python -m tests.onnx.zoo", description="Judge ONNX models of whole models.")
    parser.add_argument("--sampled", action="store_true", help="40 models of torchvision, timm and transformers")
    parser.add_argument("--only", default="", help="models whose names hold this")
    parser.add_argument("--torch", action="store_true", help="torch.onnx.export of the original, too")
    parser.add_argument("--jobs", type=int, default=1, help="so many processes")
    parser.add_argument("--if-there", action="store_true", help="without the models, say so and judge none")
    options = parser.parse_args()
    if not JUDGE.exists():
        print(f"there is no {JUDGE}: the models and their judge are not in this repository; ZOO= names their folder")
        return 0 if options.if_there else 2
    keys = [(each.source, each.name) for each in models(options.sampled, options.only)]
    tasks = [(options.sampled, options.only, key, tool) for key in keys for tool in [*TOOLS][: 1 + options.torch]]
    counts: dict[tuple[str, str], Counter[str]] = {}
    for (*_, (source, _), tool), verdict in zip(tasks, verdicts(tasks, options.jobs), strict=True):
        counts.setdefault((source, tool), Counter())[verdict.verdict] += 1
        if verdict.verdict != "right" or options.only:
            print(f"    {tool:12} {verdict}", flush=True)
    print("| models | exported by | right | refused | wrong |\n| --- | --- | --- | --- | --- |")
    for (source, tool), found in counts.items():
        print(f"| {source} | {tool} | {found['right']} | {found['refused']} | {found['wrong']} |")
    ours = sum((found for (_, tool), found in counts.items() if tool == "graphwright"), Counter[str]())
    if options.only:
        return 1 if ours["wrong"] else 0
    return 0 if meets(GOALS["sampled" if options.sampled else "hand-written"], ours) else 1


if __name__ == "__main__":
    sys.exit(main())
