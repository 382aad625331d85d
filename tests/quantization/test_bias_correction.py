"""Bias correction: the mean error of each channel, on data that it has not seen."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from graphwright.errors import QuantizationError
from graphwright.quantization import PerAxis, PerTensor, Scheme, fake_quantize_by, grid_of_range
from graphwright.quantization.algorithms.bias_correction import OutputError, correct_bias, mean_error_of_weight
from graphwright.quantization.algorithms.input_moments import InputMoments
from graphwright.quantization.algorithms.input_rows import conv_rows, linear_rows
from graphwright.quantization.observers.weight_grid import weight_grid


def inputs(*shape: int, seed: int = 0) -> Tensor:
    """Above 0, as behind a ReLU: their mean is what makes a shift of a rounding error."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).add_(1).relu_()


LAYERS = [
    pytest.param(nn.Linear(16, 8), (4096, 16), -1, id="linear"),
    pytest.param(nn.Linear(16, 8, bias=False), (64, 64, 16), -1, id="without bias, many dimensions"),
    pytest.param(nn.Conv2d(4, 8, 3), (16, 4, 18, 18), 1, id="convolution"),
    pytest.param(nn.Conv2d(8, 8, 3, groups=8, padding=1), (16, 8, 16, 16), 1, id="depthwise"),
    pytest.param(nn.Conv1d(4, 8, 3), (256, 4, 18), 1, id="one dimension"),
]


def quantized(layer: nn.Module, x: Tensor, scheme: Scheme, activation: Scheme | None = None) -> Tensor:
    """The outputs of a layer with a rounded weight, and rounded inputs where they have a scheme."""
    weight = layer.weight.detach()
    if activation is not None:
        x = fake_quantize_by(x, grid_of_range(x.min(), x.max(), activation))
    state = {"weight": fake_quantize_by(weight, weight_grid(weight, scheme))}
    return torch.func.functional_call(layer, state, (x,)).detach()


@pytest.mark.parametrize("activation", [None, Scheme(bits=4)])
@pytest.mark.parametrize(("layer", "shape", "axis"), LAYERS)
def test_the_mean_error_is_below_a_tenth(
    layer: nn.Linear, shape: tuple[int, ...], axis: int, activation: Scheme | None
) -> None:
    scheme = Scheme(torch.int8, PerAxis(0), True, bits=3)
    calibration, others = OutputError(axis=axis), OutputError(axis=axis)
    for part in inputs(*shape).chunk(4):
        calibration.observe(layer(part), quantized(layer, part, scheme, activation))
    x = inputs(*shape, seed=1)
    wanted, found = layer(x).detach(), quantized(layer, x, scheme, activation)
    others.observe(wanted, found)
    error = correct_bias(None, calibration.mean).reshape([-1 if i == axis % x.dim() else 1 for i in range(x.dim())])
    corrected = OutputError(axis=axis)
    corrected.observe(wanted, found + error)
    assert float(corrected.mean.norm()) < 0.1 * float(others.mean.norm())
    assert corrected.sqnr > others.sqnr + 1


@pytest.mark.parametrize(("layer", "shape", "axis"), LAYERS)
def test_the_mean_of_the_inputs_tells_the_mean_error(layer: nn.Conv2d, shape: tuple[int, ...], axis: int) -> None:
    x, scheme = inputs(*shape), Scheme(torch.int8, PerTensor(), True, bits=4)
    measured = OutputError(axis=axis)
    measured.observe(layer(x), quantized(layer, x, scheme))
    moments = InputMoments()
    if isinstance(layer, nn.Linear):
        moments.observe(linear_rows(x))
    else:
        moments.observe(conv_rows(x, layer.kernel_size, layer.stride, layer.padding, layer.dilation, layer.groups))
    weight = layer.weight.detach()
    told = mean_error_of_weight(weight, fake_quantize_by(weight, weight_grid(weight, scheme)), moments.mean)
    torch.testing.assert_close(told, measured.mean, rtol=1e-3, atol=1e-5)


def test_corrected_biases() -> None:
    error = torch.tensor([0.5, -1.0])
    assert correct_bias(torch.tensor([1.0, 1.0]), error).tolist() == [0.5, 2.0]
    assert correct_bias(None, error).tolist() == [-0.5, 1.0]
    assert correct_bias(torch.ones(2).bfloat16(), error).dtype is torch.bfloat16


@pytest.mark.parametrize("batches", [[], [torch.empty(0, 3)]])
def test_nothing_seen_has_no_error(batches: list[Tensor]) -> None:
    error = OutputError("fc1", axis=-1)
    for batch in batches:
        error.observe(batch, batch)
    with pytest.raises(QuantizationError, match="nothing is known of the outputs of fc1"):
        _ = error.mean


def test_without_an_error_the_ratio_is_infinite() -> None:
    error = OutputError(axis=-1)
    error.observe(torch.ones(2, 3), torch.ones(2, 3))
    assert error.sqnr == float("inf")
