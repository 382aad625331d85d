"""Guards go when asked to, with what computed only what they checked; the program stays."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import graphwright
from graphwright import GuardError, trace
from graphwright.passes import remove_guards


def program(x: torch.Tensor, mask: Any = None, causal: bool = False) -> torch.Tensor:
    for i, _ in enumerate((0,) * (x.shape[0] + 1)):
        x = x + i
    if x.sum() > 0 and not causal:
        for i, _ in enumerate((0,) * x.shape[1]):
            x = x * (i + 1)
    return x if mask is None else x * mask


def captured() -> Any:
    return trace(program, torch.ones(2, 3))


def test_all_guards_go_with_what_only_they_read() -> None:
    gm = captured()
    count = len(gm.guards)
    assert count >= 4 and "size" in gm.code
    assert remove_guards(gm) == count
    gm.graph.lint()
    assert not gm.guards and "expect" not in gm.code and "size" not in gm.code
    assert remove_guards(gm) == 0
    for x in (torch.ones(2, 3), -9 * torch.ones(2, 3)):
        assert torch.equal(gm(x), program(x))
    gm(torch.ones(5, 5))  # nobody notices


def test_only_the_wanted_ones_go() -> None:
    gm = captured()
    before = len(gm.guards)
    assert remove_guards(gm, lambda guard: guard.name == "mask") == 1
    gm.graph.lint()
    assert len(gm.guards) == before - 1
    assert torch.equal(gm(torch.ones(2, 3), mask=3), program(torch.ones(2, 3)))
    with pytest.raises(GuardError, match="causal"):
        gm(torch.ones(2, 3), causal=True)
    assert remove_guards(gm, lambda guard: "enumerate" in guard.at) == 2
    with pytest.raises(GuardError, match="causal"):
        gm(torch.ones(4, 3), causal=True)
    gm(torch.ones(4, 3))


def test_what_chooses_between_captures_stays() -> None:
    def either(x: torch.Tensor, mask: Any = None) -> torch.Tensor:
        return x if mask is None else x * mask

    x = torch.ones(2)
    gm = graphwright.trace(either, examples=[((x,), {}), ((x, x), {})])
    assert remove_guards(gm) == 0
    assert torch.equal(gm(x, 3 * x), 3 * x) and torch.equal(gm(x), x)


def test_a_module_without_guards_stays() -> None:
    gm = graphwright.symbolic_trace(lambda x: x + 1)
    assert remove_guards(gm) == 0
