"""Constants are computed once where no call, no training and no caller could make them something else."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.passes.checks import Program, body, check_pass
from torch import Tensor, nn

from graphwright import Graph, GraphModule, trace
from graphwright.passes import FoldConstants
from graphwright.runtime import assign_attribute

X = torch.linspace(-2.0, 2.0, 12).view(3, 4)


def with_scale(run: Any, **members: Any) -> Program:
    return Program(run, scale=torch.linspace(1.0, 2.0, 4), weight=nn.Parameter(torch.linspace(0.0, 1.0, 4)), **members)


def traced(model: nn.Module) -> Any:
    return trace(model, (X,))


def in_a_block(m: Any, x: Tensor) -> Tensor:
    with torch.no_grad():
        y = m.scale.exp()
    return x * y


def in_a_branch(m: Any, x: Tensor) -> Tensor:
    if x.sum() > 0:
        return x * m.scale.exp()
    return x * 2


def written_in_a_branch(m: Any, x: Tensor) -> Tensor:
    if x.sum() > 0:
        m.scale.add_(1)
    return x * m.scale.exp()


FOLDED: list[Any] = [
    pytest.param(lambda m, x: x * (m.scale * 2).exp(), ["exp_1 = self.exp", "return x * exp_1"], 1,
                 id="of a buffer"),
    pytest.param(lambda m, x: x + m.scale.exp() + m.scale.exp().sum(), None, 2, id="two values"),
    pytest.param(lambda m, x: x * m.act(m.scale), None, 1, id="a module without parameters"),
    pytest.param(lambda m, x: x * (m.scale * 2).view(2, 2).t().reshape(4), None, 1, id="views of what is computed"),
    pytest.param(lambda m, x: x * m.scale.exp().chunk(2)[0].sum(), None, 1, id="items"),
]  # fmt: skip
LEFT: list[Any] = [
    pytest.param(lambda m, x: x * m.weight.exp(), id="a parameter"),
    pytest.param(lambda m, x: x * m.scale, id="nothing is computed"),
    pytest.param(lambda m, x: x.view(1, 3, 4) * m.scale.view(1, 4), id="a view of a buffer"),
    pytest.param(lambda m, x: (x, m.scale.exp()), id="a value that is given back"),
    pytest.param(lambda m, x: (x, m.scale.exp().view(2, 2)), id="a view of it is given back"),
    pytest.param(lambda m, x: m.scale.exp().add_(x.sum()) * 2, id="a value that is written to"),
    pytest.param(lambda m, x: x * (m.scale.exp().add_(x.sum()) * 2), id="what is made of a value that is written to"),
    pytest.param(lambda m, x: x * F.dropout(m.scale, 0.5, m.training), id="dropout"),
    pytest.param(lambda m, x: x * torch.poisson(m.scale), id="random numbers"),
    pytest.param(lambda m, x: m.scale.add_(1) * x + m.scale.exp(), id="a buffer that is written to"),
    pytest.param(lambda m, x: m.norm(x) + m.norm.running_mean.exp(), id="a buffer of a module that is called"),
    pytest.param(lambda m, x: x * m.drop(m.scale), id="a module that asks for the flag"),
    pytest.param(in_a_block, id="inside a block"),
]


@pytest.mark.parametrize(("run", "code", "count"), FOLDED)
def test_constants_are_folded(run: Any, code: Any, count: int) -> None:
    gm = check(with_scale(run, act=nn.Sigmoid()), count)
    assert code is None or body(gm) == code


def check(program: nn.Module, count: int, **options: Any) -> Any:
    """As `check_pass`; the new buffers are the pass's, and no difference."""
    return check_pass(FoldConstants(**options), program, [X], count, traced=True)


@pytest.mark.parametrize("run", LEFT)
def test_what_may_change_is_left_alone(run: Any) -> None:
    gm = traced(with_scale(run, norm=nn.BatchNorm1d(4), drop=nn.Dropout(0.5)))
    assert FoldConstants().run(gm) == 0
    model = with_scale(run, norm=nn.BatchNorm1d(4), drop=nn.Dropout(0.5))
    for mode in (True, False):
        torch.manual_seed(0)
        expected = model.train(mode)(X)
        torch.manual_seed(0)
        actual = gm.train(mode)(X)
        torch.testing.assert_close(actual, expected)
    (actual[1] if isinstance(actual, tuple) else actual).zero_()
    torch.manual_seed(0)
    expected = model(X)
    torch.manual_seed(0)
    torch.testing.assert_close(gm(X), expected)


def test_parameters_on_request() -> None:
    program = with_scale(lambda m, x: x * (m.weight.exp() + m.scale))
    gm = traced(program)
    assert FoldConstants(parameters=True).run(gm) == 1
    assert body(gm) == ["add_1 = self.add", "return x * add_1"]
    assert torch.equal(gm(X), program(X)) and not gm.add.requires_grad and not isinstance(gm.add, nn.Parameter)
    assert FoldConstants(parameters=True).run(gm) == 0


def test_large_values_are_computed_anew() -> None:
    program = with_scale(lambda m, x: x * m.scale.exp().repeat(1000, 1).sum(0))
    gm = traced(program)
    assert FoldConstants(max_bytes=15).run(gm) == 0
    gm = traced(with_scale(lambda m, x: x.repeat(1000, 1)[:1000] * m.scale.exp().repeat(1000, 1)))
    assert FoldConstants(max_bytes=4 * 4).run(gm) == 1
    assert "exp" not in [node.target for node in gm.graph.nodes if node.op == "call_method"]
    assert sum(buffer.nbytes for buffer in gm.buffers()) == 4 * 4 * 2
    assert FoldConstants(max_bytes=4 * 4 * 1000).run(gm) == 1


def test_literals_and_numbers() -> None:
    gm = trace(lambda x: x * torch.arange(4).add(1).sqrt() + torch.ones(3, 4).sum(0), (X,))
    expected = gm(X)
    assert FoldConstants().run(gm) == 2
    assert torch.equal(gm(X), expected)


def test_numbers_become_literals() -> None:
    graph = Graph()
    x, scale = graph.placeholder("x"), graph.get_attr("scale")
    graph.output(graph.call_method("mul", (x, graph.call_method("size", (scale, 0)))))
    root = nn.Module()
    assign_attribute(torch.ones(5), root, "scale")
    gm = GraphModule(root, graph)
    assert FoldConstants().run(gm) == 1
    assert body(gm) == ["mul = x.mul(5)", "return mul"]


@pytest.mark.parametrize(("run", "count"), [(in_a_branch, 1), (written_in_a_branch, 0)])
def test_branches(run: Any, count: int) -> None:
    model = with_scale(run)
    gm = trace(model, (X,))
    reference = with_scale(run)
    assert FoldConstants().run(gm) == count
    for x in (X.abs(), -X.abs(), X.abs()):
        torch.testing.assert_close(gm(x), reference(x))


def test_what_fails_is_left_to_fail() -> None:
    graph = Graph()
    x, scale = graph.placeholder("x"), graph.get_attr("scale")
    view = graph.call_method("view", (scale, 3, 3))
    graph.output(graph.call_method("mul", (x, graph.call_method("exp", (view,)))))
    root = nn.Module()
    assign_attribute(torch.ones(5), root, "scale")
    gm = GraphModule(root, graph)
    assert FoldConstants().run(gm) == 0
    with pytest.raises(RuntimeError, match="invalid for input of size"):
        gm(X)


def test_the_original_keeps_its_buffers() -> None:
    model = with_scale(lambda m, x: x * m.scale.exp())
    before = set(model.state_dict())
    gm = traced(model)
    FoldConstants().run(gm)
    assert set(model.state_dict()) == before and "exp" in dict(gm.named_buffers())


def test_a_broken_twin_is_caught() -> None:
    class Twin(FoldConstants):
        """Forgets that a value may be written to or given back."""

        def run(self, gm: nn.Module) -> int:
            from graphwright.passes.support.ownership import Ownership

            kept, Ownership.may_be_kept = Ownership.may_be_kept, lambda self, value: True  # type: ignore[method-assign]
            try:
                return super().run(gm)
            finally:
                Ownership.may_be_kept = kept  # type: ignore[method-assign]

    with pytest.raises(AssertionError):
        check_pass(Twin(), with_scale(lambda m, x: (x, m.scale.exp())), [X], 1, traced=True)


def test_what_is_folded_is_no_state() -> None:
    model = with_scale(lambda self, x: x + self.weight + torch.ones(4) * 3)
    gm = traced(model)
    FoldConstants().run(gm)
    assert not any(node.op == "call_function" and node.target is torch.ones for node in gm.graph.nodes)
    gm.load_state_dict(model.state_dict())
    assert torch.equal(copy.deepcopy(gm)(X), model(X))
