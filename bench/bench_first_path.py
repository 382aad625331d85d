"""Measure the path from a program to a callable module against torch.fx: five ratios, each with its goal.

    python bench/bench_first_path.py [--check] [--margin 1.25] [--impl graphwright]

Takes a few minutes. Both sides are first checked to make the same nodes, names, code and results.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch

import models
from agreement import DisagreementError, check_compiled, check_same_nodes, check_same_results, check_same_source
from implementations import BASELINE, AbsentError, Implementation, load
from programs import captured, chain, created_graph, with_names
from questions.memory import bytes_per_node
from results import duration, versions
from timing import Case, interleave

ROUNDS = 21
CREATED_NODES = (1_000, 10_000)
MODELS = ("vit_b_16", "gpt12")  # 236 and 296 nodes


@dataclass(frozen=True, slots=True)
class Row:
    """What one program cost both sides, and how the ratios of the rounds were spread."""

    program: str
    theirs: str
    ours: str
    ratio: float
    spread: str


@dataclass(frozen=True, slots=True)
class Question:
    """One kind of work, and the ratio that it has to stay below; without a goal it only informs."""

    name: str
    goal: float | None
    answer: Callable[[Implementation, Implementation], Iterator[Row]]


def create_nodes(theirs: Implementation, ours: Implementation) -> Iterator[Row]:
    """Build a graph with `create_node` alone."""
    for nodes in CREATED_NODES:
        check_same_nodes(created_graph(theirs, nodes), created_graph(ours, nodes))
        cases = [Case(side.name, partial(created_graph, side, nodes)) for side in (theirs, ours)]
        yield _timed(f"{nodes} nodes", cases, nodes)


def create_named_nodes(theirs: Implementation, ours: Implementation) -> Iterator[Row]:
    """Build a graph with `create_node` and ask every node for its name."""
    for nodes in CREATED_NODES:
        cases = [Case(side.name, lambda s=side, n=nodes: with_names(created_graph(s, n))) for side in (theirs, ours)]
        yield _timed(f"{nodes} nodes", cases, nodes)


def hold_nodes(theirs: Implementation, ours: Implementation) -> Iterator[Row]:
    """Measure the bytes that a node takes, its name included."""
    for nodes in CREATED_NODES:
        before, after = (bytes_per_node(side, nodes) for side in (theirs, ours))
        yield Row(f"{nodes} nodes", f"{before:.0f} B/node", f"{after:.0f} B/node", after / before, "")


def generate_code(theirs: Implementation, ours: Implementation) -> Iterator[Row]:
    """Generate the source of a graph that is new each time, so that nothing remembered is handed out again."""
    programs = {f"chain of {nodes}": chain(nodes) for nodes in CREATED_NODES}
    programs |= {name: _model(name) for name in MODELS}
    for name, program in programs.items():

        def fresh(side: Implementation, program: Any = program) -> tuple[Any]:
            return (with_names(side.Tracer().trace(program)),)

        graphs = [fresh(side)[0] for side in (theirs, ours)]
        check_same_source(*(graph.python_code("self").src for graph in graphs))
        cases = [Case(side.name, _python_code, partial(fresh, side)) for side in (theirs, ours)]
        yield _timed(name, cases, len(graphs[0].nodes))


def trace(theirs: Implementation, ours: Implementation) -> Iterator[Row]:
    """Capture a model as a graph, without code."""
    for name in MODELS:
        model = _model(name)
        graphs = [side.Tracer().trace(model) for side in (theirs, ours)]
        check_same_nodes(*graphs)
        cases = [Case(side.name, lambda s=side, m=model: s.Tracer().trace(m)) for side in (theirs, ours)]
        yield _timed(name, cases, len(graphs[0].nodes))


def capture(theirs: Implementation, ours: Implementation) -> Iterator[Row]:
    """Capture a model up to a compiled forward."""
    for name in MODELS:
        model = _model(name)
        modules = [captured(side, model) for side in (theirs, ours)]
        check_same_source(*(module.code for module in modules))
        for module in modules:
            check_compiled(module)
        check_same_results(*modules, models.inputs(name))
        cases = [Case(side.name, partial(captured, side, model)) for side in (theirs, ours)]
        yield _timed(name, cases, len(modules[0].graph.nodes))


def capture_text(theirs: Implementation, ours: Implementation) -> Iterator[Row]:
    """Capture a model up to the text of its code; torch.fx compiles that at once, others may when it is called."""
    for name in MODELS:
        model = _model(name)
        check_same_source(*(side.symbolic_trace(model).code for side in (theirs, ours)))
        cases = [Case(side.name, partial(_captured_text, side, model)) for side in (theirs, ours)]
        yield _timed(name, cases, len(theirs.symbolic_trace(model).graph.nodes))


def _captured_text(side: Implementation, model: torch.nn.Module) -> Any:
    module = side.symbolic_trace(model)
    return module, module.code


QUESTIONS = (
    Question("create_node", 0.20, create_nodes),
    Question("create_node, then names", None, create_named_nodes),
    Question("memory, names made", 0.60, hold_nodes),
    Question("python_code", 0.20, generate_code),
    Question("Tracer.trace", 0.20, trace),
    Question("symbolic_trace(m).code", 0.30, capture_text),
    Question("the same, and forward compiled", None, capture),
)


def main() -> int:
    """Print the table; return 1 if `--check` is given and a goal is missed or not measured."""
    options = _parse()
    torch.set_num_threads(1)
    sides = load([BASELINE, options.impl])
    if len(sides) < 2:
        return int(options.check)
    theirs, ours = sides
    print(f"{versions()}; CPU time on one thread, median over {ROUNDS} rounds\n")
    print(f"| | program | {theirs.name} | {ours.name} | ratio | rounds | goal | |\n|---|---|---|---|---|---|---|---|")
    good = True
    for question in QUESTIONS:
        try:
            for row in question.answer(theirs, ours):
                good &= _print(question, row, options.margin)
        except (AbsentError, DisagreementError, ImportError) as error:
            print(f"| {question.name} | | | | | | | not measured: {error} |", flush=True)
            good = False
    return int(options.check and not good)


def _print(question: Question, row: Row, margin: float) -> bool:
    passed = question.goal is None or row.ratio <= question.goal * margin
    goal, verdict = ("", "") if question.goal is None else (f"<= {question.goal:.2f}", "pass" if passed else "FAIL")
    cells = (question.name, row.program, row.theirs, row.ours, f"{row.ratio:.3f}", row.spread, goal, verdict)
    print(f"| {' | '.join(cells)} |", flush=True)
    return passed


def _timed(program: str, cases: list[Case], nodes: int) -> Row:
    theirs, ours = interleave(cases, baseline=cases[0].name, rounds=ROUNDS)
    before, after = (f"{duration(side.median_s)}, {side.median_s / nodes * 1e6:.2f} us/node" for side in (theirs, ours))
    return Row(program, before, after, ours.ratio, f"{ours.lowest_ratio:.3f}..{ours.highest_ratio:.3f}")


def _python_code(graph: Any) -> Any:
    return graph.python_code("self")


@cache
def _model(name: str) -> torch.nn.Module:
    return models.build(name)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="exit with 1 if a goal is missed or not measured")
    parser.add_argument("--margin", type=float, default=1.0, help="let a ratio be this many times its goal (noise)")
    parser.add_argument("--impl", default="graphwright", help="the package to compare with torch.fx")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
