"""Rules that keep values, on random modules: whatever writes, draws, branches or is shared around a match."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.passes.random_modules import Traits, assert_same, inputs_for, random_module
from torch import nn

import graphwright
from graphwright import Lit, maybe, mod, one_of, replace_pattern, rewrite, rule
from graphwright.rewrite import replay

RULES = [
    rule(lambda x: x.neg().neg(), lambda x: x, name="double_negation"),
    rule(lambda x: F.relu(x), lambda x: torch.relu(x), name="relu"),
    rule(lambda x, y: x * y, lambda x, y: torch.mul(y, x), name="product"),
    rule(lambda x, y: x - y, lambda x, y: x + y.neg(), name="difference"),
    rule(
        lambda x, y: torch.add(x, y, alpha=Lit(int, name="n")), lambda x, y, n: x + y * n, name="scaled_sum",
        where=lambda match: match.n != 1,
    ),
    rule(lambda x: mod(nn.Identity)(x), lambda x: x, name="identity"),
    rule(
        lambda x, linear=mod(nn.Linear): linear(x), lambda x, linear: F.linear(x, linear.weight, linear.bias),
        name="linear",
    ),
    rule(lambda x: maybe(torch.tanh)(F.relu(x)).tanh(), lambda x: (F.relu(x) + 0.0).tanh(), name="inexact",
         where=lambda match: "only where nothing may be left out"),
    rule(lambda x: one_of(torch.tanh, torch.exp, name="act")(x), lambda x, act: act(x), name="respelled"),
    rule(lambda x: (x.sum(1, True), x.relu()), lambda x: (torch.sum(x, 1, True), x.relu()), name="two_values"),
    rule(lambda x, y: F.dropout(x, y, False), lambda x, y: x, name="no_dropout"),
]  # fmt: skip
TRAITS = [
    Traits(writes=True, branches=False, images=True),
    Traits(writes=True, branches=True, images=False),
    Traits(writes=False, branches=True, images=True),
]


def holds(seed: int) -> int:
    """Rewrite a random module by all rules, in both ways, and compare it with the original."""
    traits = TRAITS[seed % len(TRAITS)]
    model = random_module(seed, traits)
    inputs = inputs_for(traits)
    example = tuple(x.detach() for x in inputs[0])
    gm, again = graphwright.trace(model, example), graphwright.trace(model, example)
    result = rewrite(gm, RULES, fixpoint=seed % 2 == 0)
    grads = has_gradients(model, inputs)
    assert_same(model, gm, inputs, grads=grads, rtol=1e-4, atol=1e-4)
    replay(again, result.log)
    assert again.code == gm.code
    result.undo()
    assert_same(model, gm, inputs)
    replace_pattern(gm, lambda x, y: x * y, lambda x, y: torch.mul(y, x))
    assert_same(model, gm, inputs, grads=grads)
    return result.count


def has_gradients(model: nn.Module, inputs: Sequence[Any]) -> bool:
    """Tell whether a module's outputs have gradients: writes may destroy what the backward of others needs.

    Where the module writes to what nothing else reads and a rule leaves that write out, they have some again.
    """
    report = graphwright.verify(model, model, list(inputs), modes=("train", "eval"), grads=True)
    return not any(case.verdict == "raises" for case in report.cases)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("seed", range(18))
def test_rules_that_keep_values_keep_programs(seed: int) -> None:
    holds(seed)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(100, 250, 50))
def test_rules_that_keep_values_keep_many_programs(start: int) -> None:
    assert sum(holds(seed) for seed in range(start, start + 50)) > 100


def without_checks(gm: Any, rules: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Rewrite as if nothing were written, drawn or switched between operations."""
    from graphwright.rewrite.effects import GraphEffects

    monkeypatch.setattr(GraphEffects, "obstacle", lambda *args: None)
    monkeypatch.setattr(GraphEffects, "obstacle_of_alias", lambda *args: None)
    return rewrite(gm, rules)


def test_without_the_checks_programs_break(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(0, 60, 3):  # those that write in place
        model = random_module(seed, TRAITS[0])
        inputs = inputs_for(TRAITS[0])
        gm = graphwright.trace(model, tuple(x.detach() for x in inputs[0]))
        rules = [*RULES, rule(lambda x, y: x + y, lambda x, y: y + x), rule(lambda x: x * 1, lambda x: x)]
        without_checks(gm, rules, monkeypatch)
        if not graphwright.verify(model, gm, inputs, modes=("train",), grads=True, rtol=1e-4, atol=1e-4).ok:
            return
    pytest.fail("nothing is broken")
