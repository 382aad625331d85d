"""Measure what the library costs against torch.fx, from a program to a callable module: each ratio with its goal.

    python bench/bench_first_path.py [--check] [--margin 1.25] [--impl graphwright]

Takes some ten minutes. Both sides are first checked to make the same nodes, names, code and results.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
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
from questions.edit import EDITS
from questions.memory import bytes_per_node
from results import duration, versions
from timing import Case, interleave, rounds_for

ROUNDS = 21
CREATED_NODES = (1_000, 10_000)
CHAINS = (10_000, 95_000)  # more than 20 000 operations of one line are taken for a loop without an end
IMPORTS = 5  # processes
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


def trace_chains(theirs: Implementation, ours: Implementation) -> Iterator[Row]:
    """Capture long chains, without code."""
    for nodes in CHAINS:
        yield _timed(f"chain of {nodes}", _tracing(nodes, theirs, ours), nodes, rounds_for(nodes))


def grow(theirs: Implementation, ours: Implementation) -> Iterator[Row]:
    """Compare the time per node of a long chain with that of a shorter one."""
    few, many = (
        statistics.median([interleave(_tracing(n, ours), ours.name, 1)[0].median_s for _ in range(3)]) / n
        for n in CHAINS
    )
    yield Row(
        f"{CHAINS[1]} against {CHAINS[0]}", f"{few * 1e6:.2f} us/node", f"{many * 1e6:.2f} us/node", many / few, ""
    )


def _tracing(nodes: int, *sides: Implementation) -> list[Case]:
    program = chain(nodes)
    return [Case(side.name, lambda s=side: s.Tracer().trace(program)) for side in sides]


def edit(theirs: Implementation, ours: Implementation) -> Iterator[Row]:
    """Do at every node of a chain what torch.fx does in C++."""
    for name in ("replace_all_uses_with", "replace_input_with"):
        prepare, change = EDITS[name]
        cases = [Case(side.name, change, partial(prepare, side, CHAINS[0]), collector=False) for side in (theirs, ours)]
        yield _timed(f"{name}, {CHAINS[0]} nodes", cases, CHAINS[0], 7)


def recompile(theirs: Implementation, ours: Implementation) -> Iterator[Row]:
    """Compile a module anew and call it once: the compilation may wait for the call."""
    x = torch.ones(4)

    def compile_and_call(module: Any) -> None:
        module.recompile()
        module(x, x)

    for nodes in CREATED_NODES:
        modules = [side.symbolic_trace(chain(nodes)) for side in (theirs, ours)]
        cases = [Case(side.name, partial(compile_and_call, m)) for side, m in zip((theirs, ours), modules, strict=True)]
        yield _timed(f"chain of {nodes}", cases, nodes, rounds_for(nodes))


def interpret(theirs: Implementation, ours: Implementation) -> Iterator[Row]:
    """Run a graph node by node."""
    x = torch.ones(4)
    for nodes in CREATED_NODES:
        modules = [side.symbolic_trace(chain(nodes)) for side in (theirs, ours)]
        cases = [
            Case(side.name, lambda s=side, m=module: s.Interpreter(m).run(x, x))
            for side, module in zip((theirs, ours), modules, strict=True)
        ]
        yield _timed(f"chain of {nodes}", cases, nodes, rounds_for(nodes))


def load_library(theirs: Implementation, ours: Implementation) -> Iterator[Row]:
    """Import the library after torch: seconds, not a ratio; each import is a fresh process."""
    code = (
        "import time, torch; start = time.process_time(); import sys, importlib; "
        "importlib.import_module(sys.argv[1]); print(time.process_time() - start)"
    )
    command = [sys.executable, "-c", code, ours.package]
    times = [float(subprocess.run(command, capture_output=True, text=True, check=True).stdout) for _ in range(IMPORTS)]
    seconds = statistics.median(times)
    yield Row("seconds on top of torch", "", duration(seconds), seconds, f"{min(times):.3f}..{max(times):.3f}")


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
    Question("create_node", 0.12, create_nodes),
    Question("create_node, then names", None, create_named_nodes),
    Question("memory, names made", 0.55, hold_nodes),
    Question("python_code", 0.14, generate_code),
    Question("Tracer.trace", 0.125, trace),
    Question("Tracer.trace", 0.06, trace_chains),
    Question("time per node", 1.3, grow),
    Question("symbolic_trace(m).code", 0.20, capture_text),
    Question("the same, and forward compiled", 0.36, capture),
    Question("edits", 1.1, edit),
    Question("recompile and call", 0.50, recompile),
    Question("Interpreter.run", 0.45, interpret),
    Question("import", 0.25, load_library),
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
    goal, verdict = ("", "") if question.goal is None else (f"<= {question.goal:g}", "pass" if passed else "miss")
    cells = (question.name, row.program, row.theirs, row.ours, f"{row.ratio:.3f}", row.spread, goal, verdict)
    print(f"| {' | '.join(cells)} |", flush=True)
    return passed


def _timed(program: str, cases: list[Case], nodes: int, rounds: int = ROUNDS) -> Row:
    theirs, ours = interleave(cases, baseline=cases[0].name, rounds=rounds)
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
