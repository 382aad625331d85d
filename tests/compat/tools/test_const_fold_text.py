"""Folded and inlined modules read as torch.fx's: graphs, code, names."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
import torch.fx
from torch import nn
from torch.fx.experimental import const_fold as torch_fx_fold

import graphwright
from graphwright.compat.tools import const_fold

SIDES = [(torch.fx, torch_fx_fold), (graphwright, const_fold)]


class Net(nn.Module):
    def __init__(self, body: Any) -> None:
        super().__init__()
        self.w, self.v, self.linear = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3)), nn.Linear(3, 3)
        self.body = body

    def forward(self, x):  # type: ignore[no-untyped-def]
        return self.body(self, x)


BODIES = {
    "one": lambda self, x: x + self.w * 2,
    "two": lambda self, x: x + self.w * 2 + self.v.sin().cos(),
    "and an attribute": lambda self, x: (x + self.w * 2, self.v.sin(), self.w),
    "twice": lambda self, x: x + (self.w + self.v) * self.w,
    "nothing": lambda self, x: x + self.w,
    "module": lambda self, x: self.linear(x) + self.linear(self.w),
    "output": lambda self, x: self.w + self.v,
    "tuple": lambda self, x: x + self.w.split(1)[0],
}


def without_inputs(package: Any) -> Any:
    graph = package.Graph()
    x, ones, drawn = (
        graph.placeholder("x"),
        graph.call_function(torch.ones, (3,)),
        graph.call_function(torch.rand, (3,)),
    )
    both = graph.call_function(torch.mul, (ones, graph.get_attr("w")))
    graph.output((graph.call_function(torch.add, (x, both)), drawn, ones))
    return package.GraphModule({"w": torch.ones(3)}, graph)


@pytest.mark.parametrize("name", [*BODIES, "without inputs"])
@pytest.mark.parametrize("skip", [None, "mul"])
def test_text_is_that_of_torch_fx(name: str, skip: str | None) -> None:
    found = []
    for package, fold in SIDES:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch.fx's, about the attributes of its own graph
            source = Net(BODIES[name]) if name in BODIES else without_inputs(package)
            module = package.symbolic_trace(source) if name in BODIES else source
            folded = fold.split_const_subgraphs(module, skip and (lambda node: node.name == skip), "meta")
        constant = folded.const_subgraph_module
        facts = [str(folded.graph), folded.code, folded.print_readable(print_output=False)]
        facts += [constant and (str(constant.graph), constant.code), folded.fx_const_folded_attrs_name]
        facts += [folded.device_for_folded_attrs, [name for name, _ in folded.named_parameters()]]
        folded.run_folding()
        facts += [folded.has_folding_been_run, [name for name, _ in folded.named_parameters()]]
        found.append(facts)
    assert found[0] == found[1]


def test_what_is_written_to_is_not_folded() -> None:
    graph = graphwright.Graph()
    x, ones = graph.placeholder("x"), graph.call_function(torch.ones, (3,))
    row = graph.call_method("view", (ones, -1))
    graph.call_method("add_", (row, x))
    graph.output(graph.call_function(torch.mul, (ones, 2)))
    folded = const_fold.split_const_subgraphs(graphwright.GraphModule({}, graph))
    for _ in range(2):
        torch.testing.assert_close(folded(torch.ones(3)), torch.full((3,), 4.0))


class Inner(nn.Module):
    def forward(self, x, y):  # type: ignore[no-untyped-def]
        total = x.sin() + y
        return total.relu(), total


class Outer(nn.Module):
    def __init__(self, inner: nn.Module, body: Any) -> None:
        super().__init__()
        self.inner, self.body = inner, body

    def forward(self, x):  # type: ignore[no-untyped-def]
        return self.body(self.inner, x)


@pytest.mark.parametrize("run_dce", [True, False])
@pytest.mark.parametrize(
    "body",
    [
        lambda inner, x: inner(x, x + 1)[0] + 1,
        lambda inner, x: (inner(x, x)[1], x.neg()),
        lambda inner, x: (lambda pair: pair[0] + pair[1])(inner(x, x)),
    ],
)
def test_inlined_modules_read_alike(body: Any, run_dce: bool) -> None:
    found = []
    for package, fold in SIDES:

        class Leaves(package.Tracer):  # type: ignore[misc, name-defined]
            def is_leaf_module(self, m: Any, module_qualified_name: str) -> bool:
                return module_qualified_name == "inner"

        model = Outer(package.symbolic_trace(Inner()), body)
        gm = package.GraphModule(model, Leaves().trace(model))
        copies = (
            fold._inline_module(gm, "inner", run_dce)
            if package is torch.fx
            else fold.inline_module(gm, "inner", run_dce)
        )
        gm.graph.lint()
        found.append([str(gm.graph), sorted((str(old), str(new)) for old, new in copies.items())])
    assert found[0] == found[1]
