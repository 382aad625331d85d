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


NEVER = "the original never computes what it gives"
EDITS = [
    pytest.param(
        lambda gm: retarget(gm, torch.sin, torch.cos),
        f"at node 'sin': {NEVER}",
        id="before the first module",
    ),
    pytest.param(
        lambda gm: retarget(gm, F.gelu, F.silu),
        f"at node 'gelu': {NEVER}",
        id="between modules",
    ),
    pytest.param(
        lambda gm: retarget(gm, "exp", "tanh"),
        f"at node 'exp': {NEVER}",
        id="after the last module",
    ),
    pytest.param(other_weights, "at module 'second': it returns what the original never computes", id="in a module"),
    pytest.param(second_call, f"at node 'neg': {NEVER}", id="the second call"),
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


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            x = self.linear(x).tanh()
            if x.shape[0] > 2:
                x = x.relu()
        else:
            x = x.cos()
        return x + 1


@pytest.mark.parametrize(
    ("old", "new", "input_of"), [("tanh", "sigmoid", X + 9), ("relu", "neg", X + 9), ("cos", "sin", -X - 9)]
)
def test_a_node_inside_a_branch_is_named(old: str, new: str, input_of: Tensor) -> None:
    model = Branches()
    gm = trace(model, X)
    (node,) = (node for node in gm.graph.all_nodes() if node.target == old)
    node.target = new
    report = verify(model, gm, [input_of], modes=("train", "eval"), grads=True)
    assert [case.where.partition(" (")[0] for case in report.cases] == [f"first at node {node.name!r}: {NEVER}"] * 2


def test_a_rewritten_step_is_not_blamed_for_a_later_one() -> None:
    model = Program()
    gm = trace(model, X)
    (gelu,) = gm.graph.find_nodes(op="call_function", target=F.gelu)
    with gm.graph.inserting_before(gelu):  # gelu(x) in two steps, of which the original knows only the last
        inner = gm.graph.call_function(torch.mul, (gelu.args[0], 0.5))
        outer = gm.graph.call_function(torch.mul, (inner, 2.0))
    gelu.args = (outer,)
    assert verify(model, gm, [X]).ok
    retarget(gm, "exp", "tanh")
    assert verify(model, gm, [X]).cases[0].where.startswith("first at node 'exp'")


class Cubed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return x * 1

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> Tensor:
        return gradient * 3


def test_gradients_that_differ_where_values_agree() -> None:
    model = Program()
    gm = trace(model, X)
    (gelu,) = gm.graph.find_nodes(op="call_function", target=F.gelu)
    with gm.graph.inserting_before(gelu):
        gelu.args = (gm.graph.call_function(Cubed.apply, gelu.args),)
    report = verify(model, gm, [X], grads=True)
    assert not report.ok and "gradient of first.weight" in str(report)
    assert report.cases[0].where.startswith("first after module 'again'")


def test_without_a_graph_only_the_difference_is_told() -> None:
    assert verify(Program(), Program(), [X]).cases[0].where == ""
