"""Traced, scripted and symbolically traced modules call each other; scripted ones are saved, copied and edited."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from tests.script import test_conformance, test_functions, test_modules
from tests.script.checking import assert_same, outcome
from torch import nn

import graphwright
from graphwright import load, save, script, symbolic_trace, trace, verify


def relax(x, n: int = 3):
    for i in range(n):
        if x.sum() > 2:
            x = x - 1
        else:
            x = x + 2
    return x


class Outer(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.linear = inner, nn.Linear(3, 3)

    def forward(self, x):
        return self.linear(self.inner(x)) + x


INPUTS = [torch.ones(3), -torch.ones(3)]


@pytest.mark.parametrize(
    "inner", [lambda m: trace(m, torch.ones(3)), script, symbolic_trace], ids=["trace", "script", "symbolic"]
)
@pytest.mark.parametrize(
    "outer", [lambda m: trace(m, torch.ones(3)), script, symbolic_trace], ids=["trace", "script", "symbolic"]
)
def test_each_takes_what_each_made(inner, outer) -> None:
    class Gate(nn.Module):
        def forward(self, x):
            if x.sum() > 0:
                return x * 2
            return x

    model = Outer(Gate())
    mixed = copy.deepcopy(model)
    mixed.inner = inner(mixed.inner)
    gm = outer(mixed)
    for x in INPUTS:
        assert torch.equal(gm(x), model(x))


def test_functions_that_reach_modules() -> None:
    scripted, traced = script(relax), trace(nn.ReLU(), torch.ones(3))

    def calls_scripted(x):
        return scripted(x) * 2

    def calls_traced(x):
        if x.sum() > 0:
            return traced(x - 1)
        return scripted(x, 2)

    for x in INPUTS:
        assert torch.equal(trace(calls_scripted, x)(x), relax(x) * 2)
        assert torch.equal(script(calls_traced)(x), torch.relu(x - 1) if x.sum() > 0 else relax(x, 2))
    assert script(calls_traced).traced is not traced


def test_what_was_scripted_is_scripted_again() -> None:
    again = script(script(relax))
    assert torch.equal(again(torch.ones(3), 5), relax(torch.ones(3), 5))


PROGRAMS = {
    **{function.__name__: (function, inputs) for function, inputs in test_functions.PROGRAMS},
    **{function.__name__: (function, inputs) for function, inputs in test_conformance.PROGRAMS},
    **{kind.__name__: (kind(), inputs) for kind, inputs in test_modules.MODULES if kind.__name__ != "Subs"},
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", PROGRAMS)
def test_saved_copied_and_cleaned_programs_do_the_same(name: str, tmp_path) -> None:
    program, inputs = PROGRAMS[name]
    gm, args = script(program), inputs[-1]
    wanted = outcome(copy.deepcopy(gm), args, with_gradients=False)
    save(gm, tmp_path / "program.gw")
    allow = [module.__name__ for module in (test_functions, test_conformance, test_modules)]
    cleaned = copy.deepcopy(gm)
    for graph in cleaned.graphs:
        graph.eliminate_dead_code()
        graph.lint()
    for other in (load(tmp_path / "program.gw", allow=allow), pickle.loads(pickle.dumps(gm)), cleaned):
        assert_same(outcome(other, args, with_gradients=False), wanted)


def test_the_report_says_that_it_was_scripted() -> None:
    gm = script(relax)
    assert gm.report.facts.attempt == "scripted" and gm.coverage == 1.0
    assert [entry.text for entry in gm.report.regions] == ["for_loop on range_1", "cond on gt"]
    assert verify(relax, gm, [(x, n) for x in INPUTS for n in (0, 4)], grads=True).ok


def test_the_original_stays_as_it_was() -> None:
    model = Outer(nn.ReLU()).train()
    before = {name: dict(module.__dict__) for name, module in model.named_modules()}
    gm = script(model)
    gm.eval()
    assert all(dict(module.__dict__) == before[name] for name, module in model.named_modules())
    assert model.training and gm.linear.weight is model.linear.weight
    assert script(model, copy=True).linear.weight is not model.linear.weight


def test_how_deep_it_goes() -> None:
    model = Outer(nn.Sequential(Outer(nn.ReLU()), nn.Tanh()))
    for leaf_modules, called in (
        ((), ["inner.0.inner", "inner.0.linear", "inner.1", "linear"]),
        ("Outer", ["inner.0", "inner.1", "linear"]),
        (None, []),
    ):
        gm = script(model, leaf_modules=leaf_modules)
        assert [node.target for node in gm.graph.nodes if node.op == "call_module"] == called
        assert torch.equal(gm(INPUTS[0]), model(INPUTS[0]))


def test_what_a_function_becomes_for_trace() -> None:
    assert "runtime.branch" in graphwright.converted_source(relax)
