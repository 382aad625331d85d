"""Passes that use facts, on random modules whose dtypes and shapes are noted: values, gradients and effects stay."""

from __future__ import annotations

from typing import Any

import pytest
from tests.passes.random_modules import assert_same
from tests.passes.test_random_modules import TRAITS, captured
from torch._subclasses.fake_tensor import FakeTensorMode

from graphwright.passes import CollapseChains, FoldConstants, RemoveNoOps, ShapeProp, SimplifyAlgebra
from graphwright.runtime import graph_of

PASSES: list[Any] = [RemoveNoOps(), SimplifyAlgebra(), CollapseChains(), FoldConstants()]


def changes(seed: int, passes: list[Any]) -> int:
    """Run passes on a random module with noted facts, twice, and compare it with the original."""
    model, gm, inputs = captured(seed, TRAITS[seed % len(TRAITS)], training=True, frozen=False)
    ShapeProp(gm, FakeTensorMode()).propagate(*[x.detach() for x in inputs[0]])
    count = 0
    for each in passes * 2:
        count += each.run(gm)
        graph_of(gm).lint()
    assert_same(model, gm, inputs)
    for each in passes:
        each.run(gm)
    assert sum(each.run(gm) for each in passes) == 0
    return count


@pytest.mark.slow
def test_random_modules_with_facts() -> None:
    assert sum(changes(seed, PASSES) for seed in range(5)) > 3


@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, 40, 20))
def test_many_random_modules_with_facts(start: int) -> None:
    for seed in range(start, start + 20):
        changes(seed, PASSES)
        changes(seed, PASSES[::-1])
