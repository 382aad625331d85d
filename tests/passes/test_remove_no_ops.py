"""What changes nothing goes, and what only seems to stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.passes.checks import Program, body, check_pass, noted
from torch import Tensor, nn

import graphwright as gw
from graphwright import rewrite, rule, symbolic_trace, trace
from graphwright.passes import RemoveNoOps

X = torch.linspace(-2.0, 2.0, 12).view(3, 4)


class Half(nn.Module):
    """A module that reads its own flag."""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.p, self.training) + 1


CERTAIN: list[Any] = [
    pytest.param(Program(lambda m, x: m.a(m.b(x)) + 1, a=nn.Identity(), b=nn.Identity(4, 5)), 2, id="identities"),
    pytest.param(Program(lambda m, x: m.drop(x) + 1, drop=nn.Dropout(0.0)), 1, id="dropout of nothing"),
    pytest.param(Program(lambda m, x: m.drop(x) + 1, drop=nn.AlphaDropout(0.0)), 1, id="alpha dropout of nothing"),
    pytest.param(Program(lambda m, x: m.drop(x) + 1, drop=nn.FeatureAlphaDropout(0.0)), 1, id="of features"),
    pytest.param(Half(0.0), 1, id="F.dropout of nothing, with a flag"),
    pytest.param(lambda x: F.dropout(x, 0.5, False) + 1, 1, id="F.dropout switched off"),
    pytest.param(lambda x: F.dropout(x, training=False, p=0.1) + 1, 1, id="by name"),
    pytest.param(lambda x: torch.dropout(x, 0.5, False) + 1, 1, id="torch.dropout"),
    pytest.param(lambda x: F.alpha_dropout(x, 0.5) + 1, 1, id="F.alpha_dropout"),
    pytest.param(lambda x: F.dropout((x * 2), 0.5, False, True).mul_(3) + 1, 1, id="in place, written to"),
    pytest.param(lambda x: F.dropout(x, 0.5, False), 1, id="an input is given back in both"),
    pytest.param(lambda x: x.exp().contiguous().contiguous() + 1, 1, id="contiguous twice"),
    pytest.param(lambda x: x.float().to(torch.float32) + 1, 1, id="a cast twice"),
    pytest.param(lambda x: x.double().t().type(torch.float64) + 1, 1, id="a cast after what keeps the dtype"),
    pytest.param(lambda x: x.double().to(x.double().dtype) + 1, 1, id="a cast to a dtype that is read"),
    pytest.param(lambda x: x.view(x.shape) + 1, 1, id="view to the own shape"),
    pytest.param(lambda x: x.reshape(x.size()) + 1, 1, id="reshape to the own size"),
    pytest.param(lambda x: x.permute(1, 0).view(x.size(1), -1) + 1, 0, id="a view of another"),
    pytest.param(lambda x: x.permute(0, 1) + 1, 1, id="a permutation of nothing"),
    pytest.param(lambda x: x.transpose(-1, -1) + 1, 1, id="a transposition of nothing"),
    pytest.param(lambda x: x.expand(-1, -1) + 1, 1, id="expand to the own shape"),
    pytest.param(lambda x: torch.flatten(x, 1, 1) + 1, 1, id="flatten one dimension"),
    pytest.param(lambda x: x.double()[...] + 1, 1, id="all items"),
    pytest.param(lambda x: F.linear(torch.cat([x.exp()], 1), torch.eye(x.size(1))) + 1, 1, id="cat of one tensor"),
    pytest.param(lambda x: torch.cat([x.exp()], 1) + 1, 0, id="cat of one tensor that may lie otherwise"),
]
STAY: list[Any] = [
    pytest.param(Program(lambda m, x: m.drop(x), drop=nn.Dropout(0.5)), id="dropout may be switched on again"),
    pytest.param(Half(), id="a flag"),
    pytest.param(Program(lambda m, x: m.a(x), a=nn.Identity().requires_grad_()), id="hooked", marks=[]),
    pytest.param(lambda x: F.dropout(x, 0.5, True), id="dropout"),
    pytest.param(lambda x: x.contiguous() + 1, id="contiguous once"),
    pytest.param(lambda x: x.double().to(torch.float32) + 1, id="a cast"),
    pytest.param(lambda x: x.float().to(torch.float32, copy=True) + 1, id="a copy"),
    pytest.param(lambda x: x.view(4, 3) + 1, id="another shape"),
    pytest.param(lambda x: x.view(-1) + 1, id="another rank"),
    pytest.param(lambda x: x.reshape(x.t().shape) + 1, id="the shape of another"),
    pytest.param(lambda x: x.permute(1, 0) + 1, id="a permutation"),
    pytest.param(lambda x: torch.flatten(x, 0, 0) + 1, id="what has no dimensions would get one"),
    pytest.param(lambda x: torch.flatten(x, 0, 1) + 1, id="flatten"),
    pytest.param(lambda x: x[:1] + 1, id="some items"),
    pytest.param(lambda x: (x.view(x.shape), 1), id="a view of an input is given back"),
    pytest.param(lambda x: torch.cat([x]), id="a copy of an input is given back"),
    pytest.param(lambda x: torch.cat([x.exp()]).view(-1) + 1, id="a copy may lie otherwise in memory"),
    pytest.param(lambda x: (lambda y: (torch.cat([y]), y))(x.exp()), id="a copy is given back beside its source"),
    pytest.param(lambda x: (lambda y: (torch.cat([y]).add_(1), y + 1))(x.exp()), id="a copy is written to"),
    pytest.param(lambda x: x.requires_grad_(True).view(x.shape).is_leaf, id="somebody asks who it is"),
]  # fmt: skip


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("program", "count"), CERTAIN)
def test_what_changes_nothing_goes(program: Any, count: int) -> None:
    check_pass(RemoveNoOps(), program, [X, X.t()], count)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("program", STAY)
def test_what_changes_something_stays(program: Any) -> None:
    if isinstance(program, nn.Module) and hasattr(program, "a"):
        program.a.register_forward_hook(lambda module, args, output: output * 2)
    check_pass(RemoveNoOps(), program, [X], 0)


def test_subclasses_stay() -> None:
    class Twice(nn.Identity):
        def forward(self, x: Tensor) -> Tensor:
            return x * 2

    class Tracer(gw.Tracer):
        def is_leaf_module(self, module: nn.Module, path: str) -> bool:
            return True

    model = nn.Sequential(Twice())
    gm = gw.GraphModule(model, Tracer().trace(model))
    assert RemoveNoOps().run(gm) == 0


NOTED: list[Any] = [
    pytest.param(lambda x: x.float() + 1, 1, id="a cast to the dtype of the input"),
    pytest.param(lambda x: x.contiguous() + 1, 1, id="contiguous of what is"),
    pytest.param(lambda x: x.view(3, 4) + 1, 1, id="numbers"),
    pytest.param(lambda x: x.view(3, -1) + 1, 1, id="one number open"),
    pytest.param(lambda x: x.view(x.size(0), x.shape[1]) + 1, 1, id="sizes"),
    pytest.param(lambda x: x.expand(3, -1) + 1, 1, id="expand"),
    pytest.param(lambda x: x.view(x.size(1), -1) + 1, 0, id="the size of another dimension"),
    pytest.param(lambda x: x.expand(2, 3, 4) + 1, 0, id="expand by a dimension"),
    pytest.param(lambda x: x.t().contiguous() + 1, 0, id="contiguous of what is not"),
    pytest.param(lambda x: x[:] + 1, 1, id="all items of a tensor"),
]


@pytest.mark.parametrize(("program", "count"), NOTED)
def test_what_shape_propagation_has_noted_counts(program: Any, count: int) -> None:
    assert RemoveNoOps().run(noted(symbolic_trace(program))) == 0 or count
    gm = noted(symbolic_trace(program), X)
    assert RemoveNoOps().run(gm) == count
    torch.testing.assert_close(gm(X), program(X))
    assert RemoveNoOps().run(gm) == 0


def test_what_guards_check_counts() -> None:
    def program(x: Tensor) -> Tensor:
        return x.to(torch.float32).view(x.size(0), -1) + 1

    gm = trace(program, (X,))
    if not gm.guards:  # nothing was asked: nothing is known
        assert RemoveNoOps().run(gm) == 0
    gm = trace(lambda x: program(x) if x.dim() == 2 and x.dtype == torch.float32 else x, (X,))
    assert gm.guards and RemoveNoOps().run(gm) == 2
    assert torch.equal(gm(X[:2]), program(X[:2]))


def test_for_inference_dropout_that_is_off_goes() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), Half(), nn.Dropout2d(0.5, inplace=True)).eval()
    for capture in (symbolic_trace, lambda model: trace(model, (X[None, None],))):
        gm = capture(model)
        assert RemoveNoOps().run(gm) == 0
        assert RemoveNoOps(inference=True).run(gm.train()) == 0
        assert RemoveNoOps(inference=True).run(gm.eval()) == 3
        assert torch.equal(gm(X[None, None]), model(X[None, None]))
        assert not [node for node in gm.graph.nodes if "dropout" in node.name or node.op == "get_attr"]


def test_branches_are_seen_to() -> None:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            return F.dropout(x, 0.5, False) * 2
        return x * 3

    gm = trace(program, (X,))
    assert RemoveNoOps().run(gm) == 1
    for x in (X.abs(), -X.abs()):
        assert torch.equal(gm(x), program(x))


@pytest.mark.parametrize(
    ("broken", "program"),
    [
        pytest.param(
            rule(lambda x, p, t: F.dropout(x, p, t), lambda x: x, same_value=True), Half(), id="whatever the flag says"
        ),
        pytest.param(
            rule(lambda x, dtype: x.to(dtype=dtype), lambda x: x), lambda x: x.double() + 1, id="whatever the dtype"
        ),
        pytest.param(
            rule(lambda x, d: torch.cat([x], d), lambda x: x), lambda x: torch.cat([x.t()]).view(-1),
            id="however it lies in memory",
        ),
    ],
)  # fmt: skip
def test_a_broken_twin_is_caught(broken: Any, program: Callable[..., Any]) -> None:
    class Twin:
        def run(self, gm: nn.Module) -> int:
            return rewrite(gm, [broken]).count

    with pytest.raises((AssertionError, RuntimeError)):
        check_pass(Twin(), program, [X], 1)
    assert "return" in body(symbolic_trace(program))[-1]
