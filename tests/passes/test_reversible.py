"""Transformations change code and weights, keep values, and are undone without a trace."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from tests.passes.checks import Program, settled
from torch import Tensor, nn

from graphwright import symbolic_trace, trace, verify
from graphwright.errors import GuardError, PassError
from graphwright.passes import (
    ChangeTrueDivToMulByInverse,
    FuseBatchNorm1dInLinear,
    FuseBatchNorm2dInConv2d,
    FuseBiasInLinear,
    MergeLinears,
    ReversibleTransformation,
    Transformation,
    compose,
)
from graphwright.passes.forms import reversible_batch_norms, reversible_linears

CLOSE = {"rtol": 1e-4, "atol": 1e-5}  # the same sums in another order, in single precision
RANDOM = torch.Generator().manual_seed(0)
ROWS, IMAGE, LINES = (torch.randn(*shape, generator=RANDOM) for shape in ((5, 4), (2, 3, 6, 6), (2, 5, 4)))


def linears(*names: str, bias: bool = True) -> dict[str, nn.Module]:
    return {name: nn.Linear(4, 3, bias=bias) for name in names}


def heads(m: Any, x: Tensor) -> Tensor:
    q, k, v = (layer(x).view(2, 5, 3, 1).transpose(1, 2) for layer in (m.q, m.k, m.v))
    return (q @ k.mT).softmax(-1) @ v


CASES = [
    pytest.param(ChangeTrueDivToMulByInverse(), Program(lambda m, x: x / 3 + 1), ROWS, 1, id="division"),
    pytest.param(
        ChangeTrueDivToMulByInverse(),
        Program(lambda m, x: torch.div(x, other=7.0) - x.div(4).true_divide(-3)),
        ROWS,
        3,
        id="divisions of all spellings",
    ),
    pytest.param(
        MergeLinears(),
        Program(lambda m, x: m.a(x).sum() + m.b(x).exp(), **linears("a", "b")),
        ROWS,
        1,
        id="two linears",
    ),
    pytest.param(MergeLinears(), Program(heads, **linears("q", "k", "v", bias=False)), LINES, 1, id="q, k and v"),
    pytest.param(
        MergeLinears(),
        Program(lambda m, x: [layer(x) for layer in m.layers], layers=nn.ModuleList(linears("a", "b").values())),
        ROWS,
        1,
        id="in a list, given back",
    ),
    pytest.param(
        MergeLinears(),
        Program(lambda m, x: (lambda y: (m.c(x), m.b(y), m.a(x), m.d(y)))(x.exp()), **linears(*"abcd")),
        ROWS,
        2,
        id="of two inputs",
    ),
    pytest.param(FuseBiasInLinear(), nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)), ROWS, 2, id="biases"),
    pytest.param(
        FuseBiasInLinear(), Program(lambda m, x: m.a(x) + m.a(x.exp()), **linears("a")), LINES, 2, id="a bias, twice"
    ),
    pytest.param(
        FuseBatchNorm2dInConv2d(), nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()), IMAGE, 1, id="conv"
    ),
    pytest.param(
        FuseBatchNorm2dInConv2d(),
        Program(
            lambda m, x: (lambda y, z: m.norm(y) * z)(m.conv(x), x.sum()),
            norm=nn.BatchNorm2d(4),
            conv=nn.Conv2d(3, 4, 3, bias=False, padding=1),
            last=nn.Identity(),
        ),
        IMAGE,
        1,
        id="conv without bias, something between",
    ),
    pytest.param(FuseBatchNorm1dInLinear(), nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)), ROWS, 1, id="linear"),
    pytest.param(FuseBatchNorm1dInLinear(), nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 3)), ROWS, 1, id="before it"),
    pytest.param(
        FuseBatchNorm1dInLinear(),
        nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 3, bias=False), nn.BatchNorm1d(3)),
        ROWS,
        1,
        id="on both sides: one",
    ),
    pytest.param(
        compose(ChangeTrueDivToMulByInverse(), MergeLinears(), FuseBiasInLinear()),
        Program(lambda m, x: m.a(x / 5) + m.b(x) * m.c(x), **linears(*"abc")),
        ROWS,
        None,
        id="several",
    ),
]


def state(gm: nn.Module) -> list[tuple[str, Tensor]]:
    return list(gm.state_dict(keep_vars=True).items())


@pytest.mark.parametrize(
    "capture", [symbolic_trace, lambda model: trace(model, model.example)], ids=["symbolic", "trace"]
)
@pytest.mark.parametrize(("transformation", "model", "x", "count"), CASES)
def test_there_and_back(transformation: Any, model: Any, x: Tensor, count: Any, capture: Any) -> None:
    model = settled(copy.deepcopy(model))
    model.__dict__["example"] = x
    before = repr(model), copy.deepcopy(model.state_dict())
    gm = capture(model)
    code, held, original = gm.code, state(gm), copy.deepcopy(gm)

    assert transformation(gm) is gm
    assert gm.code != code
    if count is not None:
        assert len(transformation.get_transformed_nodes(gm)) == count
    report = verify(original, gm, [x], **CLOSE)
    assert report.ok, f"{report}\n{gm.code}"
    changed = gm.code
    assert transformation(copy.deepcopy(gm)).code == changed

    assert transformation(gm, reverse=True) is gm
    assert gm.code == code
    assert [name for name, _ in state(gm)] == [name for name, _ in held]
    assert all(now is then for (_, now), (_, then) in zip(state(gm), held, strict=True))
    assert torch.equal(sum_of(gm(x)), sum_of(original(x)))
    assert transformation(gm, reverse=True).code == code
    assert (repr(model), list(model.state_dict())) == (before[0], list(before[1]))
    assert all(torch.equal(model.state_dict()[name], value) for name, value in before[1].items())


def sum_of(value: Any) -> Tensor:
    return sum(map(sum_of, value)) if isinstance(value, list | tuple) else value.sum()


TIED = nn.Linear(4, 4)
UNTOUCHED = [
    pytest.param(
        ChangeTrueDivToMulByInverse(), Program(lambda m, x: 2 / x + x / x + x / 0), ROWS, id="other divisions"
    ),
    pytest.param(
        ChangeTrueDivToMulByInverse(), Program(lambda m, x: x.view(int(x.size(0) / 5), -1) + x // 2), ROWS, id="sizes"
    ),
    pytest.param(MergeLinears(), Program(lambda m, x: m.a(m.b(x)), a=TIED, b=nn.Linear(4, 4)), ROWS, id="one by one"),
    pytest.param(MergeLinears(), Program(lambda m, x: m.a(x) + m.b(x), a=TIED, b=TIED), ROWS, id="one layer twice"),
    pytest.param(
        MergeLinears(),
        Program(lambda m, x: m.a(x) + m.b(x), a=TIED, b=nn.Linear(4, 4, bias=False)),
        ROWS,
        id="one bias",
    ),
    pytest.param(
        MergeLinears(),
        Program(lambda m, x: (lambda y: (m.a(y), y.add_(1), m.b(y)))(x.exp()), **linears("a", "b")),
        ROWS,
        id="a write between",
    ),
    pytest.param(
        MergeLinears(), Program(lambda m, x: m.a(x) + m.b(x) + m.a.weight.sum(), **linears("a", "b")), ROWS, id="read"
    ),
    pytest.param(FuseBiasInLinear(), nn.Sequential(nn.Linear(4, 3, bias=False)), ROWS, id="no bias"),
    pytest.param(
        FuseBatchNorm2dInConv2d(),
        Program(lambda m, x: (lambda y: m.norm(y) + y)(m.conv(x)), norm=nn.BatchNorm2d(4), conv=nn.Conv2d(3, 4, 1)),
        IMAGE,
        id="another reader",
    ),
    pytest.param(
        FuseBatchNorm2dInConv2d(),
        Program(lambda m, x: m.norm(m.conv(x)) + m.norm(x[:, :1]), norm=nn.BatchNorm2d(1), conv=nn.Conv2d(3, 1, 1)),
        IMAGE,
        id="a norm that is called twice",
    ),
    pytest.param(
        FuseBatchNorm1dInLinear(),
        Program(
            lambda m, x: (lambda z: (lambda y: (z.add_(1), m.norm(y)))(m.linear(z)))(x.exp()),
            norm=nn.BatchNorm1d(3),
            linear=nn.Linear(4, 3),
        ),
        ROWS,
        id="its input is written to in between",
    ),
    pytest.param(
        FuseBatchNorm1dInLinear(), nn.Sequential(nn.Linear(4, 3), nn.Identity(), nn.BatchNorm1d(3)), ROWS, id="not next"
    ),
]


@pytest.mark.parametrize(("transformation", "model", "x"), UNTOUCHED)
def test_other_programs_stay(transformation: Any, model: Any, x: Tensor) -> None:
    gm = symbolic_trace(settled(copy.deepcopy(model)))
    code = gm.code
    assert transformation(gm).code == code
    assert transformation.get_transformed_nodes(gm) == []


def test_what_was_learned_is_kept() -> None:
    for transformation, model in (
        (MergeLinears(), Program(lambda m, x: m.a(x) * m.b(x), **linears("a", "b"))),
        (FuseBiasInLinear(), nn.Sequential(nn.Linear(4, 3))),
    ):
        gm = transformation(symbolic_trace(model))
        gm(ROWS).sum().backward()
        with torch.no_grad():
            for parameter in gm.parameters():
                parameter -= 0.1 * parameter.grad
        trained = gm(ROWS)
        kept = copy.deepcopy(model.state_dict())
        transformation(gm, reverse=True)
        torch.testing.assert_close(gm(ROWS), trained)
        assert not torch.equal(gm(ROWS), model(ROWS))
        assert all(torch.equal(model.state_dict()[name], value) for name, value in kept.items())


def test_a_trained_fold_is_not_undone() -> None:
    fold = FuseBatchNorm2dInConv2d()
    gm = fold(symbolic_trace(settled(nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)))))
    with torch.no_grad():
        gm.get_parameter("0.weight").mul_(2)
    with pytest.raises(PassError, match="trained after the batch norm was folded"):
        fold(gm, reverse=True)


def test_folding_wants_evaluation_mode_and_two_dimensions() -> None:
    gm = symbolic_trace(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))
    with pytest.raises(PassError, match="in training mode"):
        FuseBatchNorm1dInLinear()(gm)
    gm = FuseBatchNorm1dInLinear()(gm.eval())
    with pytest.raises(GuardError, match="2 dimensions"):
        gm(torch.randn(2, 4, 4))


def test_dtype_and_training_flag_of_the_moment_come_back() -> None:
    for transformation in (MergeLinears(), FuseBiasInLinear()):
        gm = transformation(trace(Program(lambda m, x: m.a(x) * m.b(x), **linears("a", "b")), ROWS))
        transformation(gm.double().eval(), reverse=True)
        assert {parameter.dtype for parameter in gm.parameters()} == {torch.float64}
        assert not gm.a.training and not gm.b.training


def test_compositions_may_work_on_a_copy() -> None:
    model = Program(lambda m, x: m.a(x / 2) * m.b(x / 4), **linears("a", "b"))
    gm = symbolic_trace(model)
    code = gm.code
    both = compose(ChangeTrueDivToMulByInverse(), FuseBiasInLinear(), inplace=False)
    assert isinstance(both, ReversibleTransformation)
    made = both(gm)
    assert made is not gm and gm.code == code
    assert both(made, reverse=True).code == code
    torch.testing.assert_close(made(ROWS), model(ROWS), **CLOSE)
    with pytest.raises(PassError, match="is no transformation"):
        compose(nn.ReLU())


class Rename(Transformation):
    """Cannot be undone."""

    def transform(self, graph_module: Any) -> Any:
        for node in graph_module.graph.find_nodes(op="call_function", target=torch.mul):
            node.target = torch.add
            self.mark_as_transformed(node)
        return graph_module


def test_transformations_of_ones_own() -> None:
    gm = symbolic_trace(lambda x: torch.mul(x, x) / 2)
    mixed = compose(Rename(), ChangeTrueDivToMulByInverse())
    assert not isinstance(mixed, ReversibleTransformation)
    mixed(gm)
    assert torch.equal(gm(ROWS), ROWS)
    assert [node.name for node in Rename().get_transformed_nodes(gm)] == ["mul"]


TWINS = [
    pytest.param(
        reversible_linears, "_with_bias_inside", lambda layer: nn.Linear(5, 3, bias=False), 6, id="no weights"
    ),
    pytest.param(reversible_linears, "like_now", lambda module, now: copy.deepcopy(module), 2, id="copies come back"),
    pytest.param(
        reversible_batch_norms, "fold_batch_norm", lambda weight, bias, norm: (weight, norm.bias), 8, id="no scale"
    ),
    pytest.param(reversible_batch_norms, "_node_between", lambda node, name: node, 9, id="another place"),
]


@pytest.mark.parametrize(("module", "name", "wrong", "case"), TWINS)
def test_a_broken_twin_is_caught(
    module: Any, name: str, wrong: Any, case: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, name, wrong)
    transformation, model, x, count = CASES[case].values
    with pytest.raises((AssertionError, RuntimeError)):
        test_there_and_back(transformation, model, x, count, symbolic_trace)
