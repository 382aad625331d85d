"""Passes on regions one after the other, on random programs: values, gradients, effects and draws stay."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.codegen.random_loops import random_function
from tests.passes.test_regions import PASSES, holds_at_random

import graphwright
from graphwright import Interpreter
from graphwright.runtime import graph_of


def effects_hold(passes: list[Any], seed: int) -> None:
    """Values, what is written to the input, and the state of the generator afterwards."""
    gm = graphwright.script(random_function(seed, has_effects=True))
    wanted = [outcome(Interpreter(gm).run, n, scale) for n, scale in CALLS]
    for change in passes:
        change.run(gm)
        graph_of(gm).lint()
    for (n, scale), values in zip(CALLS, wanted, strict=True):
        for run in (gm, Interpreter(gm).run):
            torch.testing.assert_close(outcome(run, n, scale), values, rtol=0, atol=0, equal_nan=True)


CALLS = [(3, 0.5), (0, 1.0), (2, -1.0)]


def outcome(run: Any, n: int, scale: float) -> Any:
    torch.manual_seed(n)
    x = torch.arange(9.0).reshape(3, 3) * scale - 1
    try:
        values = run(x, n)
    except TypeError:  # values that are not there where the random program reads them
        return []
    return [[value.clone() if isinstance(value, torch.Tensor) else value for value in values], x, torch.rand(1)]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("first", PASSES, ids=lambda change: type(change).__name__)
def test_pairs_keep_values_and_gradients(first: Any) -> None:
    for i, second in enumerate(PASSES):
        holds_at_random([first, second], 500 + i)
        holds_at_random([second, first], 520 + i)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("first", PASSES, ids=lambda change: type(change).__name__)
def test_pairs_keep_effects_and_draws(first: Any) -> None:
    for i, second in enumerate(PASSES):
        effects_hold([first, second], 600 + i)
        effects_hold([second, first], 620 + i)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(7000, 7200, 20))
def test_pairs_keep_effects_of_more_programs(start: int) -> None:
    for seed in range(start, start + 20):
        for first in PASSES:
            effects_hold([first, PASSES[seed % len(PASSES)]], seed)
