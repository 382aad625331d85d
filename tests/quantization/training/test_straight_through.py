"""Rounding in training: values on the grid, gradients as the papers say."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from graphwright.quantization import PerAxis, Scheme, fake_quantize_by, grid_of_range
from graphwright.quantization.training.fake_quantize import FakeQuantize, LearnedFakeQuantize
from graphwright.quantization.training.straight_through import round_to_grid

SCHEMES = [Scheme(), Scheme(is_symmetric=True), Scheme(torch.int8, is_symmetric=True), Scheme(bits=4)]


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@given(st.integers(0, 2**31))
@settings(deadline=None, max_examples=20)
def test_values_are_rounded_and_gradients_go_through_where_they_lie_within(scheme: Scheme, seed: int) -> None:
    torch.manual_seed(seed)
    grid = grid_of_range(torch.rand(()) - 1, torch.rand(()) + 0.01, scheme)
    x = (torch.randn(50) * 2).requires_grad_()
    y = round_to_grid(x, grid)
    assert torch.equal(y, fake_quantize_by(x.detach(), grid))
    wanted = torch.randn(50)
    y.backward(wanted)
    low, high = ((bound - grid.zero_point) * grid.scale for bound in scheme.bounds)
    inside, outside = (
        (x > low - 0.4 * grid.scale) & (x < high + 0.4 * grid.scale),
        (x < low - grid.scale) | (x > high + grid.scale),
    )
    assert x.grad is not None
    assert torch.equal(x.grad[inside], wanted[inside])
    assert not x.grad[outside].any()


def test_each_channel_has_its_own_grid() -> None:
    weight = torch.tensor([[1.0, -1.0, 0.3], [100.0, 50.0, 30.0]], requires_grad=True)
    scheme = Scheme(torch.int8, PerAxis(0), True, bits=2)
    low, high = weight.detach().aminmax(dim=1)
    y = round_to_grid(weight, grid_of_range(low, high, scheme))
    assert y.tolist() == [[1, -1, 0], [100, 0, 0]]
    y.sum().backward()
    assert weight.grad is not None and weight.grad.tolist() == [[1, 1, 1], [1, 1, 1]]


def test_ranges_move_in_training_only() -> None:
    rounding = FakeQuantize(Scheme(), constant=0.5)
    x = torch.tensor([0.0, 5.1])
    assert rounding.eval()(x) is x, "nothing is known before the first batch"
    rounding.train()(torch.tensor([0.0, 2.55]))
    assert rounding.eval()(x).tolist() == [0, pytest.approx(2.55)]
    assert rounding.train()(x)[1] == pytest.approx(3.825, abs=0.02)
    rounding.is_observing = False
    assert rounding(x * 9)[1] == pytest.approx(3.825, abs=0.02)
    rounding.is_rounding = False
    assert rounding(x) is x
    state = rounding.state_dict()
    other = FakeQuantize(Scheme()).eval()
    other.load_state_dict(state)
    assert other(x)[1] == pytest.approx(3.825, abs=0.02)


def test_a_learned_scale_is_one_that_an_optimizer_may_hold_from_the_start() -> None:
    rounding = LearnedFakeQuantize(Scheme())
    optimizer = torch.optim.SGD(rounding.parameters(), lr=0.1)
    x = torch.rand(1000)
    for _ in range(20):
        optimizer.zero_grad()
        nn.functional.mse_loss(rounding(x * 2) / 2, x).backward()
        optimizer.step()
    low, high = rounding.range(Scheme())
    assert float(low) == 0 and float(high) == pytest.approx(2, abs=0.1)
    rebuilt = grid_of_range(low, high, Scheme())
    torch.testing.assert_close(rebuilt.scale, rounding.scale.detach())
    assert rebuilt.zero_point == rounding.zero_point
