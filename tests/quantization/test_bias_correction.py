"""Bias correction: the mean error of each channel on data that it has not seen, and errors that are not in the mean."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from graphwright.quantization import PerAxis, Scheme, fake_quantize_by, grid_of_range, weight_grid
from graphwright.quantization.algorithms.bias_correction import output_shift


def inputs(*shape: int, seed: int = 0) -> Tensor:
    """Above 0, as behind a ReLU: their mean is what makes a shift of a rounding error."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).add_(1).relu_()


LAYERS = [
    pytest.param(nn.Linear(16, 8), (4096, 16), -1, id="linear"),
    pytest.param(nn.Linear(16, 8, bias=False), (64, 64, 16), -1, id="many dimensions"),
    pytest.param(nn.Conv2d(4, 8, 3), (16, 4, 18, 18), 1, id="convolution"),
    pytest.param(nn.Conv2d(8, 8, 3, groups=8, padding=1), (16, 8, 16, 16), 1, id="depthwise"),
    pytest.param(nn.Conv1d(4, 8, 3), (256, 4, 18), 1, id="one dimension"),
]


def rows(y: Tensor, axis: int) -> Tensor:
    return y.movedim(axis, -1).flatten(0, -2)


def quantized(layer: nn.Module, x: Tensor, activation: Scheme | None) -> Tensor:
    """The outputs of a layer with a rounded weight, and rounded inputs where they have a scheme."""
    if activation is not None:
        x = fake_quantize_by(x, grid_of_range(x.min(), x.max(), activation))
    weight = layer.weight.detach()
    state = {"weight": fake_quantize_by(weight, weight_grid(weight, Scheme(torch.int8, PerAxis(0), True, bits=3)))}
    return torch.func.functional_call(layer, state, (x,)).detach()


@pytest.mark.parametrize("activation", [None, Scheme(bits=4)])
@pytest.mark.parametrize(("layer", "shape", "axis"), LAYERS)
def test_the_mean_error_falls_below_a_tenth(
    layer: nn.Linear, shape: tuple[int, ...], axis: int, activation: Scheme | None
) -> None:
    torch.manual_seed(0)
    layer.reset_parameters()
    x = inputs(*shape)
    shift = output_shift(rows(layer(x), axis), rows(quantized(layer, x, activation), axis), least_share=0.0)
    x = inputs(*shape, seed=1)
    wanted, found = rows(layer(x).detach(), axis), rows(quantized(layer, x, activation), axis)
    before, after = found - wanted, found - shift - wanted
    assert float(after.mean(0).norm()) < 0.1 * float(before.mean(0).norm())
    assert float(after.square().mean()) < 0.9 * float(before.square().mean())


def errors(mean: float, spread: float) -> Tensor:
    return torch.randn(1000, 1, generator=torch.Generator().manual_seed(0)) * spread + mean


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(errors(2.0, 0.5), 2.0, id="a shift"),
        pytest.param(errors(0.02, 1.0), 0.0, id="noise"),
        pytest.param(torch.cat([errors(0.0, 0.01), torch.full((20, 1), 100.0)]), 0.0, id="a few that are far off"),
        pytest.param(torch.cat([errors(2.0, 0.5), torch.full((20, 1), -1e4)]), 2.0, id="a shift, and a few far off"),
        pytest.param(torch.zeros(10, 1), 0.0, id="no errors"),
        pytest.param(torch.full((1, 1), 3.0), 3.0, id="a single output"),
        pytest.param(torch.zeros(0, 1), 0.0, id="no outputs"),
    ],
)
def test_shifts_are_those_of_most_outputs(found: Tensor, expected: float) -> None:
    outputs = torch.randn(len(found), 1)
    assert output_shift(outputs, outputs + found).item() == pytest.approx(expected, abs=0.05)
