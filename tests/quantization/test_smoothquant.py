"""Smoothing: the error of layers that read one value, and that folding changes nothing."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from graphwright.quantization import PerAxis, PerGroup, PerToken, Scheme, fake_quantize_by, grid_of_range
from graphwright.quantization.algorithms.input_factors import divide_norm, scale_inputs
from graphwright.quantization.algorithms.smoothquant import smooth
from graphwright.quantization.observers.by_name import observer_of
from graphwright.quantization.observers.weight_grid import weight_grid

WEIGHTS = Scheme(torch.int8, PerAxis(0), True)
PER_TOKEN = Scheme(granularity=PerToken(), is_dynamic=True)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def outliers(rows: int = 256) -> Tensor:
    """Inputs a few of which are large, as those behind layer norms are."""
    return normal(rows, 32) * torch.where(torch.arange(32) % 11 == 5, 30.0, 1.0)


def quantized_error(weights: list[Tensor], inputs: Tensor, factors: Tensor, activation: Scheme, by: Scheme) -> float:
    """Of all outputs, measured as the layers would compute them."""
    divided = inputs / factors
    if activation is PER_TOKEN:
        seen = torch.stack([fake_quantize_by(x, grid_of_range(x.min(), x.max(), Scheme())) for x in divided])
    else:
        observer = observer_of(activation)
        observer.observe(divided)
        seen = fake_quantize_by(divided, grid_of_range(*observer.range(activation), activation))
    errors = []
    for weight in weights:
        scaled = scale_inputs(weight, factors)
        errors.append(seen @ fake_quantize_by(scaled, weight_grid(scaled, by)).T - inputs @ weight.T)
    return float(torch.cat(errors, 1).square().mean())


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("activation", "by"),
    [
        pytest.param(Scheme(observer="minmax"), WEIGHTS, id="static"),
        pytest.param(Scheme(), WEIGHTS, id="static, squared error"),
        pytest.param(Scheme(torch.int8, is_symmetric=True), WEIGHTS, id="int8"),
        pytest.param(PER_TOKEN, WEIGHTS, id="per token"),
        pytest.param(Scheme(), Scheme(torch.int8, PerGroup(8), True, bits=4), id="weights of 4 bits"),
    ],
)
@pytest.mark.parametrize("count", [1, 3])
def test_the_error_of_all_readers_is_the_least_of_what_was_tried(activation: Scheme, by: Scheme, count: int) -> None:
    inputs, weights = outliers(), [normal(8, 32, seed=i) for i in range(1, 1 + count)]
    found = smooth(weights, inputs, activation, by)
    assert found.errors[found.alpha] == min(found.errors.values())
    plain = quantized_error(weights, inputs, torch.ones(32), activation, by)
    measured = quantized_error(weights, inputs, found.factors, activation, by)
    assert found.errors[None] == pytest.approx(plain, rel=1e-3)
    assert found.errors[found.alpha] == pytest.approx(measured, rel=1e-3)
    assert measured <= plain
    if by is WEIGHTS:
        assert (
            found.alpha is not None and measured < 0.5 * plain and found.gain == pytest.approx(plain / measured, 1e-3)
        )


def test_nothing_is_moved_where_it_would_hurt() -> None:
    """A weight of 2 bits has no room for what the inputs of 8 bits lose."""
    found = smooth([normal(8, 32)], normal(256, 32), Scheme(), Scheme(torch.int8, PerAxis(0), True, bits=2), [0.9])
    assert found.alpha is None and found.gain == 1.0 and bool((found.factors == 1).all())
    assert found.errors[0.9] > found.errors[None]


@pytest.mark.parametrize(
    "inputs",
    [
        pytest.param(torch.zeros(10, 32), id="zeros"),
        pytest.param(outliers(10) * (torch.arange(32) % 4 > 0), id="some inputs 0"),
        pytest.param(outliers(1), id="a single row"),
        pytest.param(1e8 * outliers(10), id="large"),
    ],
)
def test_odd_inputs(inputs: Tensor) -> None:
    weight = normal(8, 32)
    weight[:, 7] = 0.0
    found = smooth([weight], inputs, Scheme(), WEIGHTS)
    assert bool(torch.isfinite(found.factors).all()) and bool((found.factors > 0).all())
    assert float(found.factors[7]) == 1.0


@pytest.mark.parametrize("norm", [nn.LayerNorm(32), nn.RMSNorm(32), nn.BatchNorm1d(32).eval()])
def test_folded_equals_unfolded(norm: nn.Module) -> None:
    for parameter in norm.parameters():
        nn.init.uniform_(parameter, 0.5, 2.0)
    x = outliers()
    bias = getattr(norm, "bias", None)
    weight = normal(8, 32)
    plain = norm(x) @ weight.T
    found = smooth([weight], norm(x), Scheme(), WEIGHTS)
    assert found.alpha is not None
    new_weight, new_bias = divide_norm(norm.weight.detach(), None if bias is None else bias.detach(), found.factors)
    norm.weight.data = new_weight
    if new_bias is not None:
        norm.bias.data = new_bias
    folded = norm(x) @ scale_inputs(weight, found.factors).T
    torch.testing.assert_close(folded, plain, rtol=1e-4, atol=1e-4)
