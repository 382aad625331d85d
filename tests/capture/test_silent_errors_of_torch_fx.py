"""What torch.fx loses without a word, one test for each: it is lost there, and kept by both ways to capture here."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
import torch.fx
from torch import Tensor, nn
from torch.nn import functional as F

from graphwright import symbolic_trace, trace

Capture = Callable[[Any, Tensor], Any]

CAPTURES = [
    pytest.param(lambda program, x: symbolic_trace(program), id="symbolic_trace"),
    pytest.param(lambda program, x: trace(program, (x,)), id="trace"),
]
each_capture = pytest.mark.parametrize("capture", CAPTURES)


class Drops(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x, 0.5, self.training)


@each_capture
def test_the_training_flag(capture: Capture) -> None:
    x = torch.ones(100)
    assert (torch.fx.symbolic_trace(Drops()).eval()(x) == 0).any()
    gm = capture(Drops(), x)
    assert torch.equal(gm.eval()(x), x)
    assert (gm.train()(x) == 0).any()


def shifted(x: Tensor) -> Tensor:
    with torch.no_grad():
        mean = x * 2
    return x + mean


def gradient(program: Any, x: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    program(x).sum().backward()
    assert x.grad is not None
    return x.grad


@each_capture
def test_no_grad(capture: Capture) -> None:
    x = torch.ones(3)
    assert gradient(shifted, x).tolist() == [1, 1, 1]
    assert gradient(torch.fx.symbolic_trace(shifted), x).tolist() == [3, 3, 3]
    assert gradient(capture(shifted, x), x).tolist() == [1, 1, 1]


def narrowed(x: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return x @ x


@each_capture
def test_autocast(capture: Capture) -> None:
    x = torch.randn(3, 3)
    assert torch.fx.symbolic_trace(narrowed)(x).dtype is torch.float32
    assert capture(narrowed, x)(x).dtype is torch.bfloat16
    assert torch.equal(capture(narrowed, x)(x), narrowed(x))


class Doubled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2


@each_capture
def test_hooks_of_the_root(capture: Capture) -> None:
    model, x = Doubled(), torch.ones(3)
    model.register_forward_hook(lambda module, args, output: output + 1)
    model.register_forward_pre_hook(lambda module, args: (args[0] * 10,))
    assert model(x).tolist() == [21, 21, 21]
    assert torch.fx.symbolic_trace(model)(x).tolist() == [2, 2, 2]
    assert capture(model, x)(x).tolist() == [21, 21, 21]


class Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Doubled()

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


@pytest.mark.filterwarnings("ignore:the program changes what is outside")
@each_capture
def test_hooks_of_modules_that_are_traced_through(capture: Capture) -> None:
    calls: list[int] = []
    model, x = Counts(), torch.ones(3)
    model.inner.register_forward_hook(lambda module, args, output: output + torch.full((3,), 1.0))
    model.inner.register_forward_hook(lambda module, args, output: calls.append(1))
    gm = capture(model, x)
    assert gm(torch.ones(3)).tolist() == [3, 3, 3]


@each_capture
def test_spectral_norm_of_the_root(capture: Capture) -> None:
    torch.manual_seed(0)
    model, x = nn.utils.spectral_norm(nn.Linear(4, 4)), torch.randn(2, 4)
    lost, eager = torch.fx.symbolic_trace(copy.deepcopy(model)), copy.deepcopy(model)
    gm = capture(model, x)
    for module in (eager, gm):
        with torch.no_grad():
            module.weight_orig.mul_(3.0)  # the weight follows, by the hook
    torch.testing.assert_close(gm(x), eager(x))
    assert "weight_orig" not in dict(lost.named_parameters())


class Exponential(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.exp()


@each_capture
def test_parametrizations_of_the_root(capture: Capture) -> None:
    torch.manual_seed(0)
    model, x = nn.Linear(4, 4), torch.randn(2, 4)
    nn.utils.parametrize.register_parametrization(model, "weight", Exponential())
    gm = capture(model, x)
    torch.testing.assert_close(gm(x), model(x))
    with torch.no_grad():
        model.parametrizations.weight.original.mul_(2.0)
    torch.testing.assert_close(gm(x), model(x))


def noisy(x: Tensor) -> Tensor:
    return x + torch.randn(3)


@each_capture
def test_random_draws(capture: Capture) -> None:
    x = torch.zeros(3)
    lost, gm = torch.fx.symbolic_trace(noisy), capture(noisy, x)
    assert torch.equal(lost(x), lost(x))
    assert not torch.equal(gm(x), gm(x))
    torch.manual_seed(1)
    drawn = gm(x)
    torch.manual_seed(1)
    assert torch.equal(drawn, noisy(x))


def counted(x: Tensor) -> Tensor:
    total = torch.zeros(2)
    total += 1
    return x + total


@each_capture
def test_tensors_that_are_made_of_numbers(capture: Capture) -> None:
    gm = capture(counted, torch.ones(2))
    assert [gm(torch.zeros(2)).tolist() for _ in range(3)] == [[1, 1]] * 3


def written(x: Tensor) -> Tensor:
    y = x * 1
    y.mul_(0)
    F.relu(x, inplace=True)
    return y + x


@each_capture
def test_writes_in_place_under_dead_code_removal(capture: Capture) -> None:
    x = torch.tensor([-1.0, 2.0])
    lost, gm = torch.fx.symbolic_trace(written), capture(written, x)
    for module in (lost, gm):
        module.graph.eliminate_dead_code()
        module.recompile()
    assert lost(x.clone()).tolist() != [0, 2]
    assert gm(x.clone()).tolist() == written(x.clone()).tolist() == [0, 2]


class Result(dict):  # type: ignore[type-arg]
    pass


class Named(NamedTuple):
    first: Any
    rest: Any


@each_capture
def test_the_class_of_the_output(capture: Capture) -> None:
    def program(x: Tensor) -> Any:
        return Result(value=x * 2, named=Named(x, [x]))

    x = torch.ones(2)
    assert type(torch.fx.symbolic_trace(program)(x)) is dict
    output = capture(program, x)(x)
    assert type(output) is Result and type(output["named"]) is Named


class Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0] * 100


def straight(x: Tensor) -> Tensor:
    return Straight.apply(x)  # type: ignore[no-any-return]


@each_capture
def test_the_backward_of_an_autograd_function(capture: Capture) -> None:
    x = torch.ones(2)
    assert gradient(torch.fx.symbolic_trace(straight), x).tolist() == [2, 2]
    assert gradient(capture(straight, x), x).tolist() == [100, 100]
