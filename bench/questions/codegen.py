"""What does it cost to turn a graph into source, and the source into a function?"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

import models
from agreement import check_same_source
from implementations import BASELINE, Implementation
from programs import chain, with_names
from results import record
from timing import Case, interleave, rounds_for


def run(implementations: Sequence[Implementation], node_counts: Sequence[int]) -> None:
    """Time `python_code`, `GraphModule()` and `recompile` with the first call after it."""
    for nodes in node_counts:
        _source(implementations, f"chain of {nodes}", chain(nodes), rounds_for(nodes))
        _recompile(implementations, nodes)
    for name in ("resnet50", "gpt12"):
        _source(implementations, name, models.build(name), 15)
        _graph_module(implementations, name)


def _source(implementations: Sequence[Implementation], name: str, program: Any, rounds: int) -> None:
    """Each round's graphs are new, so that nothing remembered is handed out again."""

    def fresh(side: Implementation) -> tuple[Any]:
        return (with_names(side.Tracer().trace(program)),)

    def generate(graph: Any) -> Any:
        return graph.python_code("self")

    graphs = [fresh(side)[0] for side in implementations]
    sources = [generate(graph).src for graph in graphs]
    for source in sources[1:]:
        check_same_source(sources[0], source)
    cases = [Case(side.name, generate, partial(fresh, side)) for side in implementations]
    cases.append(Case("compile() of torch.fx's text", lambda: compile(sources[0], "generated", "exec")))
    record(f"python_code/{name}", interleave(cases, BASELINE, rounds), len(graphs[0].nodes))


def _recompile(implementations: Sequence[Implementation], nodes: int) -> None:
    """`recompile` may put its work off to the first call, so that call is timed with it."""
    x = torch.ones(4)

    def recompile_and_call(module: Any) -> None:
        module.recompile()
        module(x, x)

    modules = {side.name: side.symbolic_trace(chain(nodes)) for side in implementations}
    cases = [Case(name, partial(recompile_and_call, module)) for name, module in modules.items()]
    cases.append(Case("a later call alone", partial(modules[BASELINE], x, x)))
    record(f"recompile and call/{nodes}", interleave(cases, BASELINE, rounds_for(nodes)), nodes)


def _graph_module(implementations: Sequence[Implementation], name: str) -> None:
    model = models.build(name)
    cases = []
    for side in implementations:
        graph = side.Tracer().trace(model)
        cases.append(Case(side.name, partial(side.GraphModule, model, graph)))
    record(f"GraphModule()/{name}", interleave(cases, BASELINE, 15))
