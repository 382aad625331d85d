"""Judge `graphwright.onnx.export` on whole models: each in ONNX Runtime on all of its inputs, beside the model itself.

    python -m tests.onnx.zoo [--sampled] [--only NAME] [--torch] [--if-there]

The hand-written models have other values, another batch size, another length and the other sides of their branches as
inputs; `--sampled` takes 40 models of torchvision, timm and transformers at other batch sizes and sizes. `--torch` adds
torch.onnx.export of the original. A model is right where it agrees on all inputs, wrong where it gives other values or
shapes without an error, and refused where the export says no or ONNX Runtime fails loudly on an input.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import random
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
from tests.zoo.judging import JUDGE
from torch.utils import _pytree as pytree

import graphwright
import graphwright.onnx

SAMPLE = 40


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What came out for one model: "right", "wrong" or "refused", and why."""

    model: str
    verdict: str
    why: str
    seconds: float

    def __str__(self) -> str:
        return f"{self.model:34} {self.verdict:8} {self.seconds:6.1f} s  {self.why}"


def examples_of(entry: Any) -> dict[str, tuple[tuple[Any, ...], dict[str, Any]]]:
    """The inputs of a model of the zoo, the one to capture with first."""
    first = entry.sizes[0] if entry.sizes else None
    examples = {"base": entry.inputs(entry.batch, first, 1), "values": entry.inputs(entry.batch, first, 2)}
    if entry.batch2:
        examples["batch"] = entry.inputs(entry.batch2, first, 3)
    if entry.sizes and len(entry.sizes) > 1:
        examples["size"] = entry.inputs(entry.batch, entry.sizes[1], 4)
    return {**examples, **{name: make() for name, make in entry.alts.items() if not name.startswith("raise")}}


def judge_model(entry: Any, judge: Any, export: Callable[[Any, Any, Any], Callable[..., Any]]) -> Verdict:
    """Export one model and compare it on all inputs that it takes itself."""
    torch.manual_seed(0)
    model, start = entry.build().eval(), time.perf_counter()
    judge.perturb(model)
    examples = examples_of(entry)

    def verdict(name: str, why: str) -> Verdict:
        return Verdict(entry.name, name, " ".join(why.split())[:200], time.perf_counter() - start)

    try:
        args, kwargs = copy.deepcopy(examples["base"])
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

    shapes = pytree.tree_map(sizes, (args, kwargs)) if not kwargs else None
    with torch.no_grad():
        program = torch.onnx.export(
            model, args, kwargs=kwargs, dynamo=True, verbose=False, dynamic_shapes=shapes[0] if shapes else None
        )
    return run


def entries(is_sampled: bool, only: str) -> Iterator[Any]:
    """The models to judge."""
    sys.path.insert(0, str(JUDGE.parent))
    import zoo

    zoo.preload({"torchvision", "timm", "transformers"} if is_sampled else {"classic"})
    chosen = [entry for entry in zoo.ZOO.values() if (entry.set != "classic") == is_sampled and only in entry.name]
    if is_sampled and not only:
        chosen = random.Random(0).sample([entry for entry in chosen if not entry.heavy], SAMPLE)
    yield from chosen


def main() -> int:
    """Judge and print: 1 where a model is wrong, 2 where there is no zoo."""
    parser = argparse.ArgumentParser(prog="python -m tests.onnx.zoo", description="Judge ONNX models of whole models.")
    parser.add_argument("--sampled", action="store_true", help="40 models of torchvision, timm and transformers")
    parser.add_argument("--only", default="", help="models whose names hold this")
    parser.add_argument("--torch", action="store_true", help="torch.onnx.export of the original, too")
    parser.add_argument("--if-there", action="store_true", help="without the models, say so and judge none")
    options = parser.parse_args()
    if not JUDGE.exists():
        print(f"there is no {JUDGE}: the models and their judge are not in this repository; ZOO= names their folder")
        return 0 if options.if_there else 2
    sys.path.insert(0, str(JUDGE.parent))
    import judge

    tools = {"graphwright": by_graphwright, **({"torch.onnx": by_torch} if options.torch else {})}
    counts = {tool: Counter[str]() for tool in tools}
    for entry in entries(options.sampled, options.only):
        for tool, export in tools.items():
            verdict = judge_model(entry, judge, export)
            counts[tool][verdict.verdict] += 1
            print(f"{tool:12} {verdict}", flush=True)
    print("| exported by | right | refused | wrong |\n| --- | --- | --- | --- |")
    for tool, found in counts.items():
        print(f"| {tool} | {found['right']} | {found['refused']} | {found['wrong']} |")
    return 1 if counts["graphwright"]["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
