"""Arithmetic goes where not one number changes, and stays where dtypes, zeros or owners would."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.passes.checks import body, check_pass, noted
from torch import Tensor, nn

from graphwright import Lit, rewrite, rule, symbolic_trace, trace
from graphwright.passes import SimplifyAlgebra

X = torch.tensor([[-2.0, -0.0, 0.0, 3.5], [math.inf, -math.inf, math.nan, 1e-40]])
WHOLE = torch.tensor([[-128, 127, 0], [5, -7, 1]])

ALWAYS: list[Any] = [
    pytest.param(lambda x: (-x.neg()).exp(), ["exp = x.exp()", "return exp"], 1, id="double negation"),
    pytest.param(lambda x: torch.neg(x.neg()) + x, ["add = x + x", "return add"], 1, id="in other spellings"),
    pytest.param(lambda x: (-x.neg()).neg().neg().exp(), ["exp = x.exp()", "return exp"], 2, id="one feeds another"),
    pytest.param(lambda x: (x > 0).logical_not().sum() + 0, None, 0, id="of unknown dtype"),
    pytest.param(
        lambda x: torch.relu(x.relu()) + 1, ["relu = x.relu()", "add = relu + 1", "return add"], 1, id="relu twice"
    ),
    pytest.param(lambda x: x.abs().abs().abs().sum(1), None, 2, id="abs three times"),
    pytest.param(lambda x: x.floor().floor() + x.round().round(), None, 2, id="floor and round twice"),
    pytest.param(
        lambda x: x * (x.size(0) * 1 + 0 + 1 + 2),
        ["size = x.size(0)", "add_3 = size + 3", "mul_1 = x * add_3", "return mul_1"],
        3,
        id="sizes",
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("program", "code", "count"), ALWAYS)
def test_what_needs_no_dtype(program: Any, code: Any, count: int) -> None:
    gm = check_pass(SimplifyAlgebra(), program, [X], count)
    assert code is None or body(gm) == code


FLOATING: list[Any] = [
    pytest.param(lambda x: (x * 1).exp(), 1, id="times 1"),
    pytest.param(lambda x: (1.0 * x).exp(), 1, id="1.0 times"),
    pytest.param(lambda x: (x / 1).exp(), 1, id="over 1"),
    pytest.param(lambda x: (x**1).exp(), 1, id="to the power of 1"),
    pytest.param(lambda x: torch.pow(x, 1.0).exp(), 1, id="torch.pow"),
    pytest.param(lambda x: 1 / (x - 0), 1, id="minus 0"),
    pytest.param(lambda x: 1 / (x + -0.0), 1, id="plus -0.0"),
    pytest.param(lambda x: ((x * 2) * 1 - 0).exp(), 2, id="after what keeps the dtype"),
    pytest.param(lambda x: 1 / (x + 0), 0, id="plus 0"),
    pytest.param(lambda x: 1 / (x - -0.0), 0, id="minus -0.0"),
    pytest.param(lambda x: (x // 1).exp(), 0, id="rounded down"),
    pytest.param(lambda x: torch.div(x, 1, rounding_mode="trunc").exp(), 0, id="rounded"),
    pytest.param(lambda x: torch.sub(x, 1, alpha=0).exp(), 0, id="with a factor"),
    pytest.param(lambda x: (1 / x).exp() + (0 - x), 0, id="the other way round"),
    pytest.param(lambda x: (x + 0.1 + 0.2).exp(), 0, id="constants that round"),
    pytest.param(lambda x: x.log().exp() + 1, 0, id="exp of log"),
    pytest.param(lambda x: x * 1, 0, id="an input would be given back"),
    pytest.param(lambda x: (lambda y: (y * 1, y))(x.exp()), 0, id="one value would be given back twice"),
    pytest.param(lambda x: x.exp() * 1, 1, id="a fresh value is given back"),
    pytest.param(lambda x: (lambda y: (y * 1).add_(1) + y)(x.exp()), 0, id="the copy is written to"),
    pytest.param(lambda x: (lambda y: (y * 1, y.add_(1))[0] + 1)(x.exp()), 0, id="the source is written to"),
    pytest.param(lambda x: (x.expand(2, 2, 4) * 1).view(-1) + 1, 0, id="the copy lies otherwise in memory"),
    pytest.param(lambda x: (x.expand(2, 2, 4) * 1) @ torch.ones(4, 1) + 1, 0, id="and may be seen"),
    pytest.param(lambda x: torch.bmm(x.expand(2, 2, 4) * 1, torch.ones(2, 4, 1)) + 1, 1, id="and nobody looks"),
    pytest.param(lambda x: (x * 1.5).abs(), 0, id="another number"),
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("program", "count"), FLOATING)
def test_floating_point(program: Any, count: int) -> None:
    check_pass(SimplifyAlgebra(), program, [X], count, example=X)


@pytest.mark.parametrize(("program", "count"), FLOATING)
def test_signs_of_zeros_stay(program: Any, count: int) -> None:
    gm = noted(symbolic_trace(program), X)
    SimplifyAlgebra().run(gm)
    for one, other in zip(_tensors(gm(X.clone())), _tensors(program(X.clone())), strict=True):
        assert torch.equal(torch.signbit(one), torch.signbit(other))


def _tensors(value: Any) -> list[Tensor]:
    return list(value) if isinstance(value, tuple) else [value]


NUMBERS: list[Any] = [
    pytest.param(lambda x: (x + 0) * 1 - 0 + x // 1, 4, id="neutral numbers"),
    pytest.param(lambda x: ~(~x) + 1, 1, id="double inversion"),
    pytest.param(lambda x: x + 1 + 2, 1, id="constants"),
    pytest.param(lambda x: 2 * (x * 3), 1, id="factors"),
    pytest.param(lambda x: (x - 1) + 4, 1, id="a difference and a sum"),
    pytest.param(lambda x: (x + 4) - 1 - 2, 2, id="a sum and differences"),
    pytest.param(lambda x: x / 1, 0, id="a fraction"),
    pytest.param(lambda x: x * 1.0, 0, id="a number that changes the dtype"),
    pytest.param(lambda x: (x + 0.5) + 1, 0, id="constants that round"),
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("program", "count"), NUMBERS)
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8])
def test_whole_numbers(program: Any, count: int, dtype: torch.dtype) -> None:
    x = WHOLE.to(dtype)
    check_pass(SimplifyAlgebra(), program, [x], count, example=x)


def test_constants_that_the_dtype_does_not_have_stay() -> None:
    x = WHOLE.to(torch.int8)
    check_pass(SimplifyAlgebra(), lambda x: x + 100 + 100, [x], 0, example=x)
    check_pass(SimplifyAlgebra(), lambda x: x + 100 + -90, [x], 1, example=x)


@pytest.mark.slow
@pytest.mark.parametrize("program", [lambda x: x * 1 + 1, lambda x: x**1 + 1, lambda x: x + 0 + 1])
def test_booleans_become_numbers(program: Any) -> None:
    check_pass(SimplifyAlgebra(), program, [WHOLE > 0], 0, example=WHOLE > 0)
    check_pass(SimplifyAlgebra(), program, [X], 0)  # of unknown dtype


def test_complex_numbers_stay() -> None:
    z = torch.complex(X, X)
    gm = noted(symbolic_trace(lambda x: x * 1 + 1), z)
    assert SimplifyAlgebra().run(gm) == 0


def test_guards_say_the_dtype() -> None:
    gm = trace(lambda x: (x * 1).exp() if x.dtype == torch.float32 else x, (X,))
    assert SimplifyAlgebra().run(gm) == 1
    assert torch.equal(gm(X).nan_to_num(9), X.exp().nan_to_num(9))


def test_no_gradient_comes_out_of_a_block() -> None:
    def program(x: Tensor) -> Tensor:
        with torch.no_grad():
            y = -x.neg()
        return y * x

    check_pass(SimplifyAlgebra(), program, [X[:1]], 0, example=X[:1])


INEXACT: list[Any] = [
    pytest.param(lambda x: x.log().exp() + 1, ["add = x + 1", "return add"], 1, id="exp of log"),
    pytest.param(lambda x: torch.log(torch.exp(x)) + 1, ["add = x + 1", "return add"], 1, id="log of exp"),
    pytest.param(lambda x: (x + 0).exp(), ["exp = x.exp()", "return exp"], 1, id="plus 0"),
    pytest.param(lambda x: (x * 0.5) * 3, ["mul_2 = x * 1.5", "return mul_2"], 1, id="factors"),
    pytest.param(lambda x: (x + 0.5) - 3, ["add_1 = x + -2.5", "return add_1"], 1, id="a sum and a difference"),
    pytest.param(lambda x: (x * 1e308) * 1e308, None, 0, id="a factor that no number is"),
]


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize(("program", "code", "count"), INEXACT)
def test_on_request_what_rounds_otherwise(program: Any, code: Any, count: int) -> None:
    x = torch.linspace(0.5, 3.0, 6)
    check_pass(SimplifyAlgebra(), program, [x], 0, example=x)
    gm = check_pass(SimplifyAlgebra(inexact=True), program, [x], count, example=x)
    assert code is None or body(gm) == code


n: Any = Lit(int, float)


@pytest.mark.parametrize(
    ("broken", "program", "x"),
    [
        pytest.param(
            rule(lambda x, n=n: x * n, lambda x: x, where=lambda m: m.n == 1), lambda x: x * 1 + True, WHOLE > 0,
            id="whatever the dtype",
        ),
        pytest.param(
            rule(lambda x, n=n: x * n, lambda x: x, where=lambda m: m.n == 1), lambda x: x * 1, X, id="whoever owns it"
        ),
        pytest.param(
            rule(lambda x, a=n, b=n: (x - a) + b, lambda x, a, b: x + (a + b)), lambda x: x - 1 + 2, WHOLE,
            id="with a wrong sign",
        ),
    ],
)  # fmt: skip
def test_a_broken_twin_is_caught(broken: Any, program: Callable[..., Any], x: Tensor) -> None:
    class Twin:
        def run(self, gm: nn.Module) -> int:
            return rewrite(gm, [broken], fixpoint=False).count

    with pytest.raises(AssertionError):
        check_pass(Twin(), program, [x], 1)
