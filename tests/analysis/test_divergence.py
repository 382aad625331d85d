"""`verify` says where in the captured graph the two sides part."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphwright import GraphModule, symbolic_trace, trace
from graphwright.analysis import verify

X = torch.linspace(-1, 1, 12).reshape(3, 4)


class Program(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.again = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.second(F.gelu(self.first(torch.sin(x))))
        return self.again(self.again(hidden)).exp()


def retarget(gm: GraphModule, old: object, new: object) -> None:
    (node,) = (node for node in gm.graph.nodes if node.target == old)
    node.target = new


def other_weights(gm: GraphModule) -> None:
    gm.second = nn.Linear(4, 4)


def second_call(gm: GraphModule) -> None:
    last = gm.graph.find_nodes(op="call_module")[-1]
    with gm.graph.inserting_before(last):
        last.args = (gm.graph.call_function(torch.neg, last.args),)


EDITS = [
    pytest.param(
        lambda gm: retarget(gm, torch.sin, torch.cos),
        "from the start, in what module 'first' reads: look at sin",
        id="before the first module",
    ),
    pytest.param(
        lambda gm: retarget(gm, F.gelu, F.silu),
        "after module 'first', in what module 'second' reads: look at gelu",
        id="between modules",
    ),
    pytest.param(
        lambda gm: retarget(gm, "exp", "tanh"),
        "after module 'again', in what is returned: look at exp",
        id="after the last module",
    ),
    pytest.param(other_weights, "at module 'second': it reads the same and returns something else", id="in a module"),
    pytest.param(second_call, "after module 'again', in what module 'again' reads: look at neg", id="the second call"),
]


@pytest.mark.parametrize(("edit", "place"), EDITS)
@pytest.mark.parametrize("capture", [lambda model: symbolic_trace(model), lambda model: trace(model, X)])
def test_the_place_is_named(
    edit: Callable[[GraphModule], None], place: str, capture: Callable[..., GraphModule]
) -> None:
    model = Program()
    gm = capture(model)
    edit(gm)
    report = verify(model, gm, [X, X[:1]])
    assert [case.where.partition(" (")[0] for case in report.cases] == [f"first {place}"] * 2, str(report)
    assert "they part first " in str(report)
    for module in (*model.modules(), *gm.modules()):
        assert not module._forward_hooks and not module._forward_pre_hooks


def test_the_user_s_line_is_named() -> None:
    model = Program()
    gm = trace(model, X)
    retarget(gm, F.gelu, F.silu)
    where = verify(model, gm, [X]).cases[0].where
    assert "in Program.forward: hidden = self.second(F.gelu(self.first(torch.sin(x))))" in where


def test_without_a_graph_only_the_difference_is_told() -> None:
    assert verify(Program(), Program(), [X]).cases[0].where == ""
