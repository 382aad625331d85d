"""Tensors as text: evaluated, it makes the same tensor, to each bit."""

from __future__ import annotations

import math
import random

import pytest
import torch

from graphwright.runtime.packaging.modules import render
from graphwright.runtime.packaging.tensor_values import tensor_with_values

SEEDS = 40
LARGEST, SMALLEST = torch.finfo(torch.float32).max, 1e-45
SPECIAL = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, LARGEST, -LARGEST, SMALLEST, 0.1, 1e9, 123456.0]
DTYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
]


def assert_is_written(tensor: torch.Tensor) -> str:
    expression = tensor_with_values(tensor)
    assert expression is not None
    text = render(expression, 0, "")
    made: torch.Tensor = eval(text, {"torch": torch})
    assert (made.shape, made.dtype) == (tensor.shape, tensor.dtype)
    torch.testing.assert_close(made, tensor, rtol=0, atol=0, equal_nan=True)
    if tensor.is_floating_point():
        assert torch.equal(made.signbit() | made.isnan(), tensor.signbit() | tensor.isnan())
    return text


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_random_tensors(dtype: torch.dtype) -> None:
    for seed in range(SEEDS):
        draw = random.Random(seed)
        shape = [draw.randint(1, 4) for _ in range(draw.randint(0, 3))]
        values = draw.choice([SPECIAL, [draw.gauss(0, 9) for _ in range(5)], [float(draw.randint(0, 4))], [1.0, 0.0]])
        if not dtype.is_floating_point:
            values = [abs(round(each)) % 200 if math.isfinite(each) else 1 for each in values]
        flat = [draw.choice(values) for _ in range(math.prod(shape))]
        assert_is_written(torch.tensor(flat, dtype=torch.float64).to(dtype).reshape(shape))


FORMULAS = {
    "torch.zeros(1, 512, dtype=torch.int64)": torch.zeros(1, 512, dtype=torch.int64),
    "torch.arange(512).reshape(1, 512)": torch.arange(512).expand(1, -1),
    "torch.arange(10, 0, -1)": torch.arange(10, 0, -1),
    "torch.ones(64, 64, dtype=torch.bool).tril().reshape(1, 1, 64, 64)": torch.ones(64, 64).tril().bool()[None, None],
    "torch.full((64, 64), -torch.inf).triu(1)": torch.full((64, 64), -torch.inf).triu(1),
    "1.0 / 500000.0 ** (torch.arange(0, 128, 2) / 128)": 1.0 / 5e5 ** (torch.arange(0, 128, 2).float() / 128),
    "torch.full((300,), 7, dtype=torch.int32)": torch.full((300,), 7, dtype=torch.int32),
    "torch.empty(0, 3)": torch.zeros(0, 3),
}


@pytest.mark.parametrize("text", FORMULAS)
def test_what_one_would_write_as_a_formula_is_one(text: str) -> None:
    assert assert_is_written(FORMULAS[text]) == text


def test_what_takes_too_many_numbers_or_has_none_is_not_written() -> None:
    assert tensor_with_values(torch.randn(1000)) is None
    assert tensor_with_values(torch.zeros(3, device="meta")) is None
    assert tensor_with_values(torch.zeros(3, dtype=torch.complex64)) is None
    almost = torch.arange(1000)
    almost[500] = 0
    assert tensor_with_values(almost) is None
