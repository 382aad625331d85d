"""Writes in place come and go exactly where nobody can tell."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.passes.checks import Program
from torch import Tensor, nn

from graphwright import symbolic_trace, trace, verify
from graphwright.ops import is_inplace
from graphwright.passes import RemoveInPlace, ShapeProp, UseInPlace
from graphwright.passes.memory import remove_in_place as removing
from graphwright.passes.memory import use_in_place as using
from graphwright.rewrite import GraphEffects

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))


def layers(run: Any) -> Program:
    """Some layers, and what is done with them."""
    parts = {"a": nn.Linear(4, 4), "b": nn.Linear(4, 4), "norm": nn.BatchNorm1d(4)}
    return Program(run, **parts, relu=nn.ReLU(), written=nn.ReLU(inplace=True))


def writes(gm: Any) -> int:
    modules = [gm.get_submodule(node.target) for node in gm.graph.nodes if node.op == "call_module"]
    return sum(map(is_inplace, gm.graph.all_nodes())) + sum(bool(getattr(m, "inplace", False)) for m in modules)


def run(each: Any, program: Any, shapes: bool = True) -> tuple[Any, int]:
    """Run a pass; check values, gradients, effects, the original, and that a second run finds nothing to do."""
    model = layers(program)
    before = repr(model)
    gm = symbolic_trace(model)
    gm.a, gm.b, gm.norm = model.a, model.b, model.norm  # those that are not used, too
    if shapes:
        ShapeProp(gm).propagate(X.clone())
    count = each.run(gm)
    gm.graph.lint()
    report = verify(model, gm, [(X.clone(),)], modes=("train", "eval"), grads=True)
    assert report.ok, f"{report}\n{gm.code}"
    assert each.run(gm) == 0
    assert repr(model) == before
    return gm, count


def assigned(x: Tensor, index: Any, value: Any) -> Tensor:
    x[index] = value
    return x


REMOVED = [
    pytest.param(lambda m, x: x.exp().mul_(2), 1, id="a method"),
    pytest.param(lambda m, x: torch.relu_(m.a(x)), 1, id="a function"),
    pytest.param(lambda m, x: F.relu(m.a(x), inplace=True), 1, id="a flag"),
    pytest.param(lambda m, x: F.hardtanh(m.a(x), -1, 1, True), 1, id="a flag by position"),
    pytest.param(lambda m, x: F.leaky_relu_(m.a(x), 0.1), 1, id="a function of torch.nn.functional"),
    pytest.param(lambda m, x: m.written(m.a(x)), 1, id="a module"),
    pytest.param(lambda m, x: m.written(m.written(m.a(x)) + 1), 2, id="a module in two places"),
    pytest.param(lambda m, x: F.dropout(m.a(x), 0.5, inplace=True), 1, id="dropout"),
    pytest.param(lambda m, x: (lambda y: (y.add_(x), y.mul_(3), y)[2])(m.a(x)), 2, id="one after the other"),
    pytest.param(lambda m, x: (lambda y: (y.sum(), y.add_(1), y.sum()))(m.a(x)), 1, id="readers before and after"),
    pytest.param(lambda m, x: (lambda y: (y.add_(x.double()), y)[1])(m.a(x)), 1, id="the dtype stays"),
    pytest.param(lambda m, x: m.a(x).zero_() + m.b(x).fill_(3), 2, id="zero and fill"),
    pytest.param(lambda m, x: m.a(x).masked_fill_(x > 0, 2.0), 1, id="masked_fill"),
    pytest.param(lambda m, x: m.a(x).clamp_(min=0.1).addcmul_(x, x), 2, id="clamp and addcmul"),
    pytest.param(lambda m, x: assigned(m.a(x), 0, 1.0), 1, id="a row"),
    pytest.param(lambda m, x: assigned(m.a(x), (slice(None), 1), x[0, 0]), 1, id="a column of a tensor"),
    pytest.param(lambda m, x: assigned(m.a(x), (slice(1, None), slice(0, 4, 2)), x[:2, :2]), 1, id="a block"),
    pytest.param(lambda m, x: assigned(m.a(x), (Ellipsis, slice(1, 3)), 5), 1, id="with dots"),
    pytest.param(lambda m, x: assigned(m.a(x), (Ellipsis, -1), x.size(0)), 1, id="a size"),
    pytest.param(lambda m, x: assigned(m.a(x), x > 0, 7.0), 1, id="a mask"),
    pytest.param(lambda m, x: assigned(m.a(x), (0, slice(2, None)), True), 1, id="a bool"),
]


@pytest.mark.parametrize(("program", "count"), REMOVED)
def test_a_write_goes(program: Any, count: int) -> None:
    gm, changes = run(RemoveInPlace(), program)
    assert changes == count
    assert writes(gm) == 0


def test_augmented_assignments_go() -> None:
    def program(m: Any, x: Tensor) -> Tensor:
        y = m.norm(m.a(x))
        y += m.b(x)
        y *= 2
        y /= x.size(0)
        return m.written(y)

    for shapes in (False, True):
        gm, changes = run(RemoveInPlace(), program, shapes)
        assert changes == 4
        assert writes(gm) == 0
        assert gm.code.count(".type_as(") == (not shapes)


KEPT = [
    pytest.param(lambda m, x: x.add_(1), id="an input"),
    pytest.param(lambda m, x: m.a.bias.detach().mul_(1.0) + x, id="a parameter"),
    pytest.param(lambda m, x: x.view(-1).clone().view(3, 4).add_(1), id="a view"),
    pytest.param(lambda m, x: (lambda y: (y[0], y.add_(1)))(m.a(x))[0], id="its view is read"),
    pytest.param(lambda m, x: (lambda y: (y.t(), y.mul_(2))[0])(m.a(x)), id="its transposition is given back"),
    pytest.param(lambda m, x: m.a(x).lt_(0.5) * x, id="a comparison"),
    pytest.param(lambda m, x: torch.empty_like(x).normal_() * 0 + x, id="random numbers"),
    pytest.param(lambda m, x: m.a(x).copy_(x), id="copy_"),
    pytest.param(lambda m, x: assigned(m.a(x), (slice(None), torch.tensor([0, 1])), 1.0), id="a list of columns"),
    pytest.param(lambda m, x: assigned(m.a(x), [0, 1], 1.0), id="a list of rows"),
    pytest.param(lambda m, x: assigned(torch.zeros_like(x, dtype=torch.cfloat), (slice(0, 2),), 1.0), id="complex"),
]


@pytest.mark.parametrize("program", KEPT)
def test_a_write_stays(program: Any) -> None:
    gm, changes = run(RemoveInPlace(), program)
    assert changes == 0
    assert writes(gm) == 1


def test_what_only_reads_like_a_method_without_its_underscore_stays() -> None:
    gm, changes = run(RemoveInPlace(), lambda m, x: torch.autograd.grad((y := x.clone().requires_grad_()).sum(), y)[0])
    assert changes == 0
    assert torch.equal(gm(torch.ones(3, 4)), torch.ones(3, 4))


def test_a_write_without_gradients_stays() -> None:
    def program(m: Any, x: Tensor) -> Tensor:
        y = m.a(x)
        with torch.no_grad():
            y.mul_(2)
        return y * m.b(x)

    assert run(RemoveInPlace(), program)[1] == 0


def test_numbers_and_lists_are_no_tensors() -> None:
    def program(x: Tensor) -> Any:
        n = x.size(0) + 1
        n += 1
        sizes = [n]
        sizes += [2]
        return x.new_zeros(sizes)

    gm = symbolic_trace(program)
    RemoveInPlace().run(gm)
    assert torch.equal(gm(X), program(X))


USED = [
    pytest.param(lambda m, x: F.relu(m.a(x)), 1, id="relu"),
    pytest.param(lambda m, x: m.relu(m.norm(m.a(x))), 1, id="a module"),
    pytest.param(lambda m, x: F.relu6(m.a(x)) + F.leaky_relu(m.b(x), 0.2), 2, id="relu6 and leaky relu"),
    pytest.param(lambda m, x: torch.sigmoid(m.a(x)).mul(2), 1, id="sigmoid, whose result is saved"),
    pytest.param(lambda m, x: 2 * (m.a(x) + 1) / 4, 3, id="numbers"),
    pytest.param(lambda m, x: m.a(x) * x.size(0), 1, id="a size"),
    pytest.param(lambda m, x: m.a(x) + m.norm(m.b(x)), 1, id="two layers"),
    pytest.param(lambda m, x: m.relu(m.a(x) - m.b(x)), 2, id="a difference, and a module"),
    pytest.param(lambda m, x: (lambda y: y + m.a(x))(m.b(x).relu()) + x.sum(), 2, id="the one that is not read again"),
]


@pytest.mark.parametrize(("program", "count"), USED)
def test_an_operation_writes_over_its_input(program: Any, count: int) -> None:
    gm, changes = run(UseInPlace(), program)
    assert changes == count
    assert writes(gm) == count


UNUSED = [
    pytest.param(lambda m, x: x.relu(), id="an input"),
    pytest.param(lambda m, x: m.a(x)[0].relu(), id="a view"),
    pytest.param(lambda m, x: (lambda y: (y.relu(), y))(m.a(x)), id="given back, too"),
    pytest.param(lambda m, x: (lambda y: y.relu() * y)(m.a(x)), id="read again"),
    pytest.param(lambda m, x: (lambda y: y + y)(m.a(x)), id="twice the same"),
    pytest.param(lambda m, x: torch.softmax(m.a(x), -1) + 1, id="saved for its derivative"),
    pytest.param(lambda m, x: torch.exp(x).sigmoid(), id="saved for its derivative, too"),
    pytest.param(lambda m, x: m.a(x) * m.b(x), id="a product"),
    pytest.param(lambda m, x: m.a(x) + x, id="perhaps another dtype under autocast"),
    pytest.param(lambda m, x: m.a(x)[:1].sum() - m.b(x), id="a larger result"),
    pytest.param(lambda m, x: 1 - m.a(x), id="turned round"),
    pytest.param(lambda m, x: F.leaky_relu(m.a(x), -0.1), id="no derivative in place"),
    pytest.param(lambda m, x: m.a.weight.relu().sum() + x, id="a parameter"),
    pytest.param(lambda m, x: (x > 0).long().mul(2).sigmoid() + x, id="integers"),
]


@pytest.mark.parametrize("program", UNUSED)
def test_an_operation_stays_as_it_is(program: Any) -> None:
    gm, changes = run(UseInPlace(), program)
    assert changes == 0
    assert writes(gm) == 0


def test_other_contexts_and_unknown_dtypes_stay() -> None:
    def program(m: Any, x: Tensor) -> Tensor:
        y = m.a(x)
        with torch.no_grad():
            y = y.relu()
        return m.b(y)

    assert run(UseInPlace(), program)[1] == 0
    assert run(UseInPlace(), lambda m, x: torch.matmul(x, x.t()).sigmoid(), shapes=False)[1] == 0
    assert run(UseInPlace(), lambda m, x: torch.matmul(x, x.t()).sigmoid())[1] == 1


def test_for_inference_more_is_written_over() -> None:
    model = layers(lambda m, x: m.a(x).exp().sigmoid())
    gm = symbolic_trace(model)
    ShapeProp(gm).propagate(X)
    assert UseInPlace(only_inference=True).run(gm) == 2
    with torch.no_grad():
        assert torch.equal(gm(X), model(X))


def test_there_and_back() -> None:
    model = layers(lambda m, x: m.relu(m.norm(m.a(x)) + m.b(x)))
    gm = symbolic_trace(model)
    ShapeProp(gm).propagate(X)
    code = gm.code
    assert UseInPlace().run(gm) == 2
    assert gm.code != code
    assert RemoveInPlace().run(gm) == 2
    assert writes(gm) == 0
    assert verify(model, gm, [(X,)], modes=("train", "eval"), grads=True).ok


TWINS = [
    pytest.param(removing, "_may_go", lambda *_: True, RemoveInPlace(), KEPT[0].values[0], id="writes to inputs"),
    pytest.param(removing, "_keeps_dtype", lambda *_: True, RemoveInPlace(), REMOVED[10].values[0], id="any dtype"),
    pytest.param(GraphEffects, "are_together", lambda *_: True, RemoveInPlace(), None, id="any context"),
    pytest.param(
        using, "gives_fresh_value", lambda *_: True, UseInPlace(True),
        lambda m, x: (lambda y: (y[0].relu(), y))(m.a(x)), id="writes to views",
    ),
    pytest.param(using, "_is_not_saved", lambda *_: True, UseInPlace(), lambda m, x: m.a(x).exp().tanh(), id="saved"),
]  # fmt: skip


@pytest.mark.parametrize(("module", "name", "wrong", "each", "program"), TWINS)
def test_a_broken_twin_is_caught(
    module: Any, name: str, wrong: Any, each: Any, program: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def halved(m: Any, x: Tensor) -> Tensor:
        y = m.a(x)
        with torch.no_grad():
            y.mul_(2)
        return y * m.b(x)

    monkeypatch.setattr(module, name, wrong)
    with pytest.raises((AssertionError, RuntimeError)):
        run(each, program or halved)


@pytest.mark.parametrize("a_pass", [RemoveInPlace(), UseInPlace()], ids=lambda each: type(each).__name__)
def test_versions_that_the_program_reads_stay(a_pass: Any) -> None:
    def written(x: torch.Tensor) -> tuple[torch.Tensor, int]:
        y = x.exp()
        y.add_(1)
        return y, y._version

    def new(x: torch.Tensor) -> tuple[torch.Tensor, int]:
        y = (x + 1).relu()
        return y, y._version

    for program in written, new:
        gm = trace(program, (torch.ones(2),))
        a_pass.run(gm)
        assert gm(torch.ones(2))[1] == program(torch.ones(2))[1]
