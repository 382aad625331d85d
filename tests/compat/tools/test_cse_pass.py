"""Common subexpressions under torch.fx's name."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
import torch.fx
from torch import nn
from torch.fx.passes.dialect.common import cse_pass as torch_fx_cse

import graphwright
from graphwright.compat.tools import cse_pass

SIDES = [(torch.fx, torch_fx_cse), (graphwright, cse_pass)]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", range(60))
def test_random_modules_are_merged_as_in_torch_fx(seed: int) -> None:
    found = []
    for package, module in SIDES:
        pick = random.Random(seed)
        graph = package.Graph()
        values = [graph.placeholder("x"), graph.placeholder("y")]
        w = graph.get_attr("w")
        for _ in range(pick.randint(2, 25)):
            value, other = pick.choice(values), pick.choice(values)
            kind = pick.choice(["relu", "neg", "linear", "w", "cat"])
            if kind == "linear":
                values.append(graph.call_module(kind, (value,)))
            elif kind == "w":
                values.append(graph.call_function(torch.add, (value,), {"other": w}))
            elif kind == "cat":
                values.append(graph.call_function(torch.add, (value, other), {"alpha": pick.choice([1, 2])}))
            else:
                values.append(graph.call_function(getattr(torch, kind), (value,)))
        total = values[0]
        for value in values[1:]:
            total = graph.call_function(torch.add, (total, value), {"alpha": 0.1})
        graph.output(total)
        torch.manual_seed(0)
        gm = package.GraphModule({"linear": nn.Linear(2, 2), "w": torch.ones(2)}, graph)
        nodes = len(gm.graph.nodes)
        result = module.CSEPass()(gm)
        assert len(gm.graph.nodes) == nodes and (result.graph_module is gm) is not result.modified
        torch.testing.assert_close(result.graph_module(torch.ones(2), torch.ones(2)), gm(torch.ones(2), torch.ones(2)))
        assert all(one is other for one, other in zip(gm.parameters(), result.graph_module.parameters(), strict=True))
        found.append((result.modified, str(result.graph_module.graph)))
    assert found[0] == found[1]


def test_banned_operators_are_left_alone() -> None:
    def twice(x):  # type: ignore[no-untyped-def]
        add = torch.ops.aten.add.Tensor
        return add(x, x) * add(x, x) + torch.relu(x) * torch.relu(x)

    for banned in ([], [torch.ops.aten.add], [torch.relu], [torch.ops.aten.add, torch.relu]):
        found = []
        for package, module in SIDES:
            result = module.CSEPass(set(banned))(package.symbolic_trace(twice))
            found.append((result.modified, result.graph_module.code.split()))
        assert found[0] == found[1]


def test_the_banned_operators_are_those_of_torch_fx() -> None:
    assert cse_pass.get_CSE_banned_ops() == torch_fx_cse.get_CSE_banned_ops()
    assert cse_pass.rand_ops == torch_fx_cse.rand_ops and cse_pass.inplace_ops == torch_fx_cse.inplace_ops


def add_in_place(x: Any) -> Any:
    y = x * 2
    x.add_(1)
    return y + x * 2


def two_tensors(x: Any) -> Any:
    return x + 1, x + 1


def two_dtypes(x: Any) -> Any:
    return x * (x + 1), x * (x + 1.0)


def slices(x: Any) -> Any:
    return x[0:1] + x[0:1]


@pytest.mark.parametrize("program", [add_in_place, two_tensors, two_dtypes, slices], ids=lambda f: f.__name__)
def test_what_torch_fx_merges_wrongly(program: Any) -> None:
    """A value before and after a write, two results that are one, dtypes that come of numbers; it fails for slices."""
    x = torch.arange(3)
    result = cse_pass.CSEPass()(graphwright.symbolic_trace(program))
    assert result.modified is (program is slices)
    expected, found = program(x.clone()), result.graph_module(x.clone())
    assert torch.equal(*[torch.stack(tuple(value)) for value in (expected, found)])
