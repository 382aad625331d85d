"""Rows of inputs: what the weight as a matrix makes of them are the layer's outputs."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from graphwright.errors import QuantizationError
from graphwright.quantization import PerAxis, Scheme
from graphwright.quantization.algorithms.gptq import gptq
from graphwright.quantization.algorithms.input_moments import InputMoments
from graphwright.quantization.algorithms.input_rows import conv_rows, linear_rows, some_rows
from graphwright.quantization.algorithms.rounded import output_errors, round_to_nearest

CONVOLUTIONS = [
    pytest.param(nn.Conv1d(4, 6, 3), (2, 4, 9), id="1d"),
    pytest.param(nn.Conv2d(4, 6, 3), (2, 4, 9, 8), id="2d"),
    pytest.param(nn.Conv3d(2, 4, 2, stride=(1, 2, 1)), (2, 2, 4, 5, 6), id="3d"),
    pytest.param(nn.Conv2d(4, 6, (3, 5), stride=(2, 1), padding=(1, 3)), (2, 4, 9, 8), id="stride and padding"),
    pytest.param(nn.Conv2d(4, 6, (3, 2), dilation=(2, 3)), (2, 4, 9, 8), id="dilation"),
    pytest.param(nn.Conv2d(4, 6, (4, 3), padding="same", dilation=(1, 2)), (2, 4, 9, 8), id="same"),
    pytest.param(nn.Conv2d(4, 6, 3, padding="valid"), (2, 4, 9, 8), id="valid"),
    pytest.param(nn.Conv2d(4, 6, 3, groups=2, padding=1), (2, 4, 9, 8), id="groups"),
    pytest.param(nn.Conv2d(4, 8, 3, groups=4, padding=1), (2, 4, 9, 8), id="depthwise"),
    pytest.param(nn.Conv2d(4, 6, 3, padding=1, padding_mode="reflect"), (2, 4, 9, 8), id="reflected"),
    pytest.param(nn.Conv2d(4, 6, 3), (0, 4, 9, 8), id="no rows"),
]


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths:UserWarning")
@pytest.mark.parametrize(("conv", "shape"), CONVOLUTIONS)
def test_rows_times_weight_are_the_outputs(conv: nn.Conv2d, shape: tuple[int, ...]) -> None:
    x = torch.randn(shape)
    rows = conv_rows(
        x, conv.kernel_size, conv.stride, conv.padding, conv.dilation, conv.groups, conv.padding_mode
    )  # fmt: skip
    outputs = conv(x).detach()
    wanted = (outputs - conv.bias.detach().view(-1, *[1] * len(conv.kernel_size))).movedim(1, -1).flatten(0, -2)
    weight = conv.weight.detach().reshape(conv.groups, -1, rows.shape[-1])
    torch.testing.assert_close((rows @ weight.mT).movedim(0, 1).flatten(1), wanted, rtol=1e-4, atol=1e-5)


def test_moments_of_batches_are_those_of_all_rows() -> None:
    rows = torch.randn(30, 5)
    moments = InputMoments()
    for batch in (*rows.split(7), torch.empty(0, 5)):
        moments.observe(batch)
    torch.testing.assert_close(moments.hessian, rows.T @ rows / 30)


def test_groups_have_moments_of_their_own() -> None:
    rows = torch.randn(3, 30, 5)
    moments = InputMoments()
    moments.observe(rows)
    assert (moments.hessian.shape, moments.count) == ((3, 5, 5), 30)
    torch.testing.assert_close(moments.hessian[1], rows[1].T @ rows[1] / 30)


@pytest.mark.parametrize("batches", [[], [torch.empty(0, 5)]])
def test_nothing_seen_has_no_moments(batches: list[Tensor]) -> None:
    moments = InputMoments("fc1")
    for batch in batches:
        moments.observe(batch)
    with pytest.raises(QuantizationError, match="nothing is known of the inputs of fc1"):
        _ = moments.hessian


def test_some_rows_are_spread_over_all() -> None:
    rows = linear_rows(torch.arange(24.0).reshape(3, 8, 1))
    assert some_rows(rows, 4).flatten().tolist() == [0.0, 7.0, 15.0, 23.0]
    assert some_rows(rows, 24) is rows


@pytest.mark.parametrize("is_isotropic", [True, False])
def test_gptq_by_few_rows_holds_for_others(is_isotropic: bool) -> None:
    """It must not make up for what inputs have in common by chance only."""
    torch.manual_seed(0)
    size = 64
    mixing = torch.eye(size) if is_isotropic else torch.randn(size, size) * torch.logspace(0, -2, size)[:, None]
    rows = torch.randn(8 * size, size) @ mixing
    moments = InputMoments()
    moments.observe(rows[:size])
    others = rows[size:].T @ rows[size:] / (7 * size)
    weight, scheme = torch.randn(128, size), Scheme(torch.int8, PerAxis(0), True, bits=4)
    nearest = round_to_nearest(weight, others, scheme).error

    def error(hessian: Tensor) -> float:
        return output_errors(weight, gptq(weight, hessian, scheme).weight, others).mean().item()

    assert error(moments.expected) <= (1.03 if is_isotropic else 0.5) * nearest
    assert error(moments.expected) < error(moments.hessian) or not is_isotropic
