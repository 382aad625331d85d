"""What nothing needs goes; what acts stays."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.passes.checks import Program, check_pass
from torch import Tensor, nn

from graphwright import symbolic_trace, trace
from graphwright.passes import RemoveDeadCode

X = torch.linspace(-2.0, 2.0, 12).view(3, 4)


def write(x: Tensor) -> Tensor:
    y = x + 1
    y.view(-1).add_(2)
    return y


CASES: list[Any] = [
    pytest.param(lambda x: (x.exp().sum(), x + 1)[1], 2, id="nothing reads it"),
    pytest.param(lambda x: (torch.relu_(x * 2), x + 1)[1], 2, id="a write that nobody sees"),
    pytest.param(write, 0, id="a write"),
    pytest.param(lambda x: (torch.rand(3), x + 1)[1], 0, id="random numbers"),
    pytest.param(lambda x: (F.dropout(x), x + 1)[1], 0, id="dropout"),
    pytest.param(lambda x: x + 1, 0, id="nothing"),
]


@pytest.mark.parametrize(("program", "count"), CASES)
def test_dead_code(program: Any, count: int) -> None:
    check_pass(RemoveDeadCode(), program, [X], count)


def test_in_branches() -> None:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            x.exp()
            return x + 1
        return x * 2

    gm = trace(program, (X,))
    assert RemoveDeadCode().run(gm) == 1
    for x in (X.abs(), -X.abs()):
        assert torch.equal(gm(x), program(x))
    assert RemoveDeadCode().run(gm) == 0


@pytest.mark.parametrize("capture", [symbolic_trace, lambda model: trace(model, (X,))])
def test_submodules_that_nothing_calls(capture: Any) -> None:
    model = Program(
        lambda m, x: (m.one(x), m.two(x), m.block[0](x))[1], one=nn.Linear(4, 4), two=nn.Linear(4, 4),
        block=nn.Sequential(nn.ReLU(), nn.ReLU()),
    )  # fmt: skip
    gm = capture(model)
    assert RemoveDeadCode().run(gm) == 2
    assert {"one", "two"} <= {name for name, _ in gm.named_children()}
    assert RemoveDeadCode(submodules=True).run(gm) >= 1
    assert [name for name, _ in gm.named_children()] == ["two"]
    assert len(list(model.children())) == 3
    assert torch.equal(gm(X), model(X))
    assert RemoveDeadCode(submodules=True).run(gm) == 0


def test_a_broken_twin_is_caught() -> None:
    class Twin:
        """Takes everything for pure."""

        def run(self, gm: Any) -> int:
            return int(gm.graph.eliminate_dead_code(lambda node: node.op == "placeholder"))

    with pytest.raises(AssertionError):
        check_pass(Twin(), write, [X], 1)
