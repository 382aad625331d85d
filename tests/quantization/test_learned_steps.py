"""Learned scales: values of the grid, and the gradients of the paper, value by value."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from graphwright.quantization import Scheme, fake_quantize_by, grid_of_range
from graphwright.quantization.algorithms.learned_steps import learned_fake_quantize


@pytest.mark.parametrize("scheme", [Scheme(), Scheme(torch.int8, is_symmetric=True, bits=3)])
def test_values_are_those_of_the_grid(scheme: Scheme) -> None:
    x = torch.randn(500)
    grid = grid_of_range(torch.tensor(-1.5), torch.tensor(2.0), scheme)
    found = learned_fake_quantize(x, grid.scale, grid.zero_point, *scheme.bounds)
    torch.testing.assert_close(found, fake_quantize_by(x, grid))


def slope_of_scale(value: float, scale: float, least: int, most: int) -> float:
    """Equation 3 of the paper."""
    steps = value / scale
    if steps <= least:
        return least
    if steps >= most:
        return most
    return round(steps) - steps


@pytest.mark.parametrize("shape", [(), (4, 1), (1, 6), (4, 6)])
@pytest.mark.parametrize("zero_point", [0, 2])
def test_gradients_are_those_of_the_paper(shape: tuple[int, ...], zero_point: int) -> None:
    x = torch.randn(4, 6, dtype=torch.float64).requires_grad_()
    scale = (torch.rand(shape, dtype=torch.float64) * 0.3 + 0.2).requires_grad_()
    weights = torch.randn(4, 6, dtype=torch.float64)
    (learned_fake_quantize(x, scale, zero_point, -4, 3) * weights).sum().backward()
    least, most = -4 - zero_point, 3 - zero_point
    steps = scale.detach().expand(4, 6)
    assert x.grad is not None and scale.grad is not None
    slopes = torch.zeros(4, 6, dtype=torch.float64)
    for i in range(4):
        for j in range(6):
            value, step = x[i, j].item(), steps[i, j].item()
            assert float(x.grad[i, j]) == (float(weights[i, j]) if least <= value / step <= most else 0.0)
            slopes[i, j] = slope_of_scale(value, step, least, most)
    pace = 1 / math.sqrt(24 / max(1, math.prod(shape)) * 3)
    torch.testing.assert_close(scale.grad, (slopes * weights).sum_to_size(shape) * pace)


def test_the_slope_of_a_clipped_value_is_that_of_its_result() -> None:
    """Where nothing is rounded, the gradient is a plain derivative, and finite differences show it."""

    def result(scale: Tensor) -> Tensor:
        return learned_fake_quantize(torch.tensor([9.0], dtype=torch.float64), scale, 0, -4, 3).sum()

    scale = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    result(scale).backward()
    assert scale.grad is not None
    measured = (result(torch.tensor(0.501)) - result(torch.tensor(0.499))) / 0.002
    assert scale.grad.item() * math.sqrt(3) == pytest.approx(float(measured), rel=1e-3)


@pytest.mark.parametrize(("x_learns", "scale_learns"), [(True, False), (False, True)])
def test_only_what_learns_has_a_gradient(x_learns: bool, scale_learns: bool) -> None:
    x = torch.randn(5, requires_grad=x_learns)
    scale = torch.tensor(0.3, requires_grad=scale_learns)
    learned_fake_quantize(x, scale, 0, -4, 3).sum().backward()
    assert ((x.grad is not None), (scale.grad is not None)) == (x_learns, scale_learns)


def test_a_scale_learns_to_make_less_error() -> None:
    x = torch.randn(2000, generator=torch.Generator().manual_seed(0))
    scale = torch.tensor(1.8, requires_grad=True)
    optimizer = torch.optim.Adam([scale], lr=0.01)

    def error() -> Tensor:
        return (learned_fake_quantize(x, scale, 0, -8, 7) - x).square().mean()

    before = error().item()
    for _ in range(400):
        optimizer.zero_grad()
        error().backward()
        optimizer.step()
    scheme = Scheme(torch.int8, is_symmetric=True, bits=4)
    grids = [grid_of_range(-high, high, scheme) for high in torch.linspace(0.5, 4, 100)]
    least = min(float((fake_quantize_by(x, grid) - x).square().mean()) for grid in grids)
    assert error().item() < 1.1 * least < 0.5 * before
