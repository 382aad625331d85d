"""Measure the tools that use a captured module against torch.fx: eight ratios, each with its goal.

    python bench/bench_fx.py [--check] [--margin 1.25] [--impl graphwright]

Takes about a minute. The program is a chain of 1 000 small operations, so that tensor work hardly counts.
"""

from __future__ import annotations

import argparse
import copy
import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from agreement import check_same_results
from implementations import BASELINE, Implementation, load
from programs import captured, chain
from results import duration, versions
from timing import Case, interleave

NODES = 1_000
ROUNDS = 11
PARTS = 100
INPUTS = (torch.ones(4), torch.ones(4))


def _split(side: Implementation, module: Any) -> Any:
    """Cut the module into runs of equally many nodes."""
    positions = {node: position for position, node in enumerate(module.graph.nodes)}
    return side.split_module(module, None, lambda node: positions[node] * PARTS // len(positions))


@dataclass(frozen=True, slots=True)
class Question:
    """One kind of work on a captured module, and the ratio that it has to stay below."""

    name: str
    goal: float
    work: Callable[[Implementation, Any], Any]


QUESTIONS = (
    Question("Interpreter.run", 0.55, lambda side, module: side.Interpreter(module).run(*INPUTS)),
    Question("Graph.lint", 0.60, lambda side, module: module.graph.lint()),
    Question("deepcopy of a GraphModule", 0.15, lambda side, module: copy.deepcopy(module)),
    Question("split_module, 100 parts", 0.50, _split),
    Question("Transformer.transform", 0.50, lambda side, module: side.Transformer(module).transform()),
    Question("ShapeProp.propagate", 0.50, lambda side, module: side.ShapeProp(module).propagate(*INPUTS)),
    Question("pickle.dumps", 0.50, lambda side, module: pickle.dumps(module)),
    Question("pickle.dumps and loads", 0.50, lambda side, module: pickle.loads(pickle.dumps(module))),
)


def main() -> int:
    """Print the table; return 1 if `--check` is given and a goal is missed."""
    options = _parse()
    torch.set_num_threads(1)
    sys.setrecursionlimit(100_000)  # torch.fx copies and pickles long graphs by recursion
    sides = load([BASELINE, options.impl])
    if len(sides) < 2:
        return int(options.check)
    modules = [captured(side, chain(NODES)) for side in sides]
    check_same_results(*modules, INPUTS)
    print(f"{versions()}; {NODES} nodes, CPU time on one thread, median over {ROUNDS} rounds\n")
    print(f"| | {sides[0].name} | {sides[1].name} | ratio | rounds | goal | |\n|---|---|---|---|---|---|---|")
    good = True
    with torch.no_grad():
        for question in QUESTIONS:
            cases = [
                Case(side.name, lambda s=side, m=module, q=question: q.work(s, m))
                for side, module in zip(sides, modules, strict=True)
            ]
            theirs, ours = interleave(cases, baseline=cases[0].name, rounds=ROUNDS)
            passed = ours.ratio <= question.goal * options.margin
            good &= passed
            spread = f"{ours.lowest_ratio:.3f}..{ours.highest_ratio:.3f}"
            cells = [question.name, duration(theirs.median_s), duration(ours.median_s), f"{ours.ratio:.3f}", spread]
            print(f"| {' | '.join(cells)} | <= {question.goal:.2f} | {'pass' if passed else 'FAIL'} |", flush=True)
    return int(options.check and not good)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="exit with 1 if a goal is missed")
    parser.add_argument("--margin", type=float, default=1.0, help="let a ratio be this many times its goal (noise)")
    parser.add_argument("--impl", default="graphwright", help="the package to compare with torch.fx")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
