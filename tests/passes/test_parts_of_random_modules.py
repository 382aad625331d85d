"""Stages and intermediate values of random modules, with writes, views, branches and ties."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest
import torch
from tests.passes.random_modules import Traits, assert_same, inputs_for, random_module
from torch import Tensor, nn

import graphwright
from graphwright import Interpreter, extract, split
from graphwright.errors import PassError
from graphwright.passes import node_names

SEEDS = [*range(12), *[pytest.param(seed, marks=pytest.mark.slow) for seed in range(12, 70)]]


class Chained(nn.Module):
    """Stages under the names of the whole."""

    def __init__(self, gm: nn.Module, stages: nn.Module) -> None:
        super().__init__()
        for table in ("_modules", "_parameters", "_buffers"):
            self.__dict__[table] = gm.__dict__[table]
        self.__dict__["stages"] = stages

    def train(self, mode: bool = True) -> Chained:
        self.stages.train(mode)
        return super().train(mode)

    def forward(self, *args: Any) -> Any:
        return self.stages(*args)


class Values(Interpreter):
    """Runs a graph and keeps every value as it is when it is made."""

    def __init__(self, gm: Any) -> None:
        super().__init__(gm)
        self.seen: dict[Any, Any] = {}

    def run_node(self, n: Any) -> Any:
        value = super().run_node(n)
        self.seen[n] = value.detach().clone() if isinstance(value, Tensor) else value
        return value


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", SEEDS)
def test_stages(seed: int) -> None:
    traits = Traits(images=seed % 2 == 0)
    model = random_module(seed, traits)
    inputs = inputs_for(traits)
    gm = graphwright.trace(copy.deepcopy(model), inputs[0][0].detach())
    text = str(gm.graph)
    for parts in (2, 3, 5):
        try:
            stages = split(gm, parts=parts)
        except PassError:  # there are not as many places, or an attribute that is written would be in two
            continue
        stages.module.graph.lint()
        assert_same(model, Chained(gm, stages.module), inputs)
    assert str(gm.graph) == text


@pytest.mark.parametrize("seed", SEEDS)
def test_values(seed: int) -> None:
    traits = Traits(images=seed % 2 == 0)
    model = random_module(seed, traits)
    ((x,), *_) = inputs_for(traits)
    gm = graphwright.trace(copy.deepcopy(model), x.detach())
    names = {name: node for node, name in node_names(gm.graph).items() if node.op not in ("placeholder", "get_attr")}
    picked = random.Random(seed).sample(sorted(names), min(4, len(names)))
    try:
        features = extract(gm, picked)
    except PassError:  # the whole value of a loop that is written to later
        return
    layers = any(isinstance(module, nn.modules.dropout._DropoutNd) for module in gm.modules())
    draws = layers or any("drop" in str(node.target).lower() for node in gm.graph.all_nodes())
    for mode in (False, True):
        run = Values(copy.deepcopy(gm).train(mode))
        twin = dict(zip(gm.graph.nodes, run.graph.nodes, strict=True))
        torch.manual_seed(seed)
        run.run(x.detach().clone())
        other = copy.deepcopy(features).train(mode)
        torch.manual_seed(seed)
        got = other(x.detach().clone())
        for name in picked:
            want = run.seen[twin[names[name]]]
            if isinstance(want, Tensor) and not (
                mode and draws
            ):  # draws that nothing needs are not made, and shift the rest
                torch.testing.assert_close(got[name], want, msg=lambda m, name=name, mode=mode: f"{name}, {mode}: {m}")
