"""Grids of weights, against brute force over the ratios of each range."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from torch import Tensor

from graphwright.errors import QuantizationError
from graphwright.quantization import (
    Granularity,
    Grid,
    PerAxis,
    PerGroup,
    PerTensor,
    PerToken,
    Scheme,
    fake_quantize_by,
    grid_of_range,
)
from graphwright.quantization.observers.weight_grid import weight_grid


def randn(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def loss(weight: Tensor, grid: Grid, importance: Tensor | float = 1.0) -> float:
    return float(((fake_quantize_by(weight, grid) - weight).flatten(1) ** 2 * importance).sum())


CASES = [
    pytest.param(randn(8, 24), PerTensor(), (), id="one scale"),
    pytest.param(randn(8, 24), PerAxis(0), (8,), id="channels"),
    pytest.param(randn(8, 4, 3, 3), PerAxis(0), (8,), id="channels of a convolution"),
    pytest.param(randn(8, 4, 3, 3), PerAxis(1), (4,), id="channels of a transposed convolution"),
    pytest.param(randn(8, 24), PerGroup(12), (8, 2), id="groups"),
    pytest.param(randn(8, 4, 3, 3), PerGroup(9), (8, 4), id="groups of a convolution"),
    pytest.param(randn(8, 24) ** 3, PerAxis(0), (8,), id="heavy tails"),
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("is_symmetric", [True, False])
@pytest.mark.parametrize(("weight", "granularity", "shape"), CASES)
def test_no_ratio_of_the_range_has_a_smaller_error(
    weight: Tensor, granularity: Granularity, shape: tuple[int, ...], is_symmetric: bool, bits: int
) -> None:
    scheme = Scheme(torch.int8, granularity, is_symmetric, bits=bits)
    grid = weight_grid(weight, scheme)
    assert grid.scale.shape == grid.zero_point.shape == shape
    full = weight_grid(weight, dataclasses.replace(scheme, observer="minmax"))
    assert loss(weight, grid) <= loss(weight, full) * 1.0001
    rows = rows_of(weight, granularity)
    per_row = dataclasses.replace(scheme, granularity=PerAxis(0))
    least = torch.full((len(rows),), float("inf"))
    for ratio in torch.linspace(0.4, 1.0, 151):
        tried = grid_of_range(rows.amin(1) * ratio, rows.amax(1) * ratio, per_row)
        least = torch.minimum(least, (fake_quantize_by(rows, tried) - rows).square().sum(1))
    assert loss(weight, grid) <= 1.06 * float(least.sum())  # 31 ratios are tried, and not 151


def rows_of(weight: Tensor, granularity: Granularity) -> Tensor:
    if isinstance(granularity, PerGroup):
        return weight.reshape(-1, granularity.size)
    return weight.transpose(0, granularity.axis).flatten(1) if isinstance(granularity, PerAxis) else weight.view(1, -1)


@pytest.mark.parametrize("shape", [pytest.param((24,), id="of inputs"), pytest.param((8, 24), id="of values")])
def test_errors_count_by_their_importance(shape: tuple[int, ...]) -> None:
    scheme = Scheme(torch.int8, PerGroup(12), True, bits=3)
    weight, importance = randn(8, 24), randn(*shape).exp() ** 2
    even, weighted = weight_grid(weight, scheme), weight_grid(weight, scheme, importance)
    assert loss(weight, weighted, importance) < 0.98 * loss(weight, even, importance)
    assert loss(weight, weighted) > loss(weight, even)


def test_min_and_max_clip_nothing() -> None:
    weight = randn(8, 24) ** 3
    grid = weight_grid(weight, Scheme(torch.int8, PerAxis(0), True, "minmax"))
    assert bool(((fake_quantize_by(weight, grid) - weight).abs() <= 0.501 * grid.scale[:, None]).all())


@pytest.mark.parametrize("granularity", [PerTensor(), PerAxis(0), PerGroup(4)])
@pytest.mark.parametrize(
    "weight",
    [
        pytest.param(torch.zeros(3, 8), id="zeros"),
        pytest.param(torch.cat([torch.zeros(1, 8), torch.ones(2, 8)]), id="a channel of zeros"),
        pytest.param(torch.full((3, 8), -0.5), id="constant"),
    ],
)
def test_channels_without_a_range(weight: Tensor, granularity: Granularity) -> None:
    grid = weight_grid(weight, Scheme(torch.int8, granularity, True))
    assert bool((grid.scale > 0).all())
    assert fake_quantize_by(weight, grid).sub(weight).abs().max() <= 0.005


@pytest.mark.parametrize(
    ("weight", "granularity", "message"),
    [
        pytest.param(torch.tensor([[1.0, math.nan]]), PerAxis(0), "a weight with NaN or inf", id="NaN"),
        pytest.param(torch.tensor([[1.0, math.inf]]), PerAxis(0), "a weight with NaN or inf", id="inf"),
        pytest.param(torch.ones(2, 6), PerGroup(4), "6 inputs of a weight are no whole number of groups of 4", id="4"),
        pytest.param(torch.ones(2, 6), PerToken(), "a weight has no tokens", id="tokens"),
        pytest.param(torch.ones(2, 6, dtype=torch.int8), PerAxis(0), "a weight of torch.int8", id="integers"),
        pytest.param(torch.ones(6), PerAxis(0), r"a weight of torch.float32 and shape \(6,\)", id="a vector"),
    ],
)
def test_weights_without_a_grid(weight: Tensor, granularity: Granularity, message: str) -> None:
    with pytest.raises(QuantizationError, match=message) as caught:
        weight_grid(weight, Scheme(torch.int8, granularity, True))
    assert caught.value.fix


def test_half_precision_weights_have_float32_scales() -> None:
    assert weight_grid(randn(4, 8).bfloat16(), Scheme(torch.int8, PerAxis(0), True)).scale.dtype is torch.float32
