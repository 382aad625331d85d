"""GPTQ, AdaRound and AWQ against rounding to nearest: the outputs' error, measured with the inputs themselves."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from graphwright.errors import QuantizationError
from graphwright.quantization import PerAxis, PerGroup, PerTensor, Scheme, fake_quantize_by, quantize_by
from graphwright.quantization.algorithms.adaround import adaround
from graphwright.quantization.algorithms.awq import awq
from graphwright.quantization.algorithms.gptq import gptq
from graphwright.quantization.algorithms.input_factors import scale_inputs
from graphwright.quantization.algorithms.rounded import Rounded, output_errors, round_to_nearest
from graphwright.quantization.observers.weight_grid import weight_grid


def gptq_in_order(weight: Tensor, hessian: Tensor, scheme: Scheme) -> Rounded:
    return gptq(weight, hessian, scheme, is_ordered=False)


def quick_adaround(weight: Tensor, hessian: Tensor, scheme: Scheme) -> Rounded:
    return adaround(weight, hessian, scheme, steps=60)


ALGORITHMS = [gptq, gptq_in_order, quick_adaround]
Algorithm = Callable[[Tensor, Tensor, Scheme], Rounded]


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def inputs_of(groups: int, count: int, size: int) -> Tensor:
    """Rows whose values depend on each other, as those of real layers do."""
    made = generator()
    return torch.randn(groups, count, size, generator=made) @ torch.randn(groups, size, size, generator=made)


def weight_of(*shape: int) -> Tensor:
    return torch.randn(shape, generator=generator())


CASES = [
    pytest.param(weight_of(12, 40), 1, PerAxis(0), 4, id="channels"),
    pytest.param(weight_of(12, 40), 1, PerAxis(0), 8, id="channels, 8 bits"),
    pytest.param(weight_of(12, 40), 1, PerTensor(), 4, id="one scale"),
    pytest.param(weight_of(12, 40), 1, PerGroup(8), 4, id="groups"),
    pytest.param(weight_of(12, 300), 1, PerGroup(150), 3, id="groups larger than a block"),
    pytest.param(weight_of(12, 300), 1, PerAxis(0), 3, id="more than a block"),
    pytest.param(weight_of(12, 4, 3, 3), 1, PerAxis(0), 4, id="convolution"),
    pytest.param(weight_of(12, 4, 3, 3), 3, PerAxis(0), 4, id="convolution in groups"),
    pytest.param(weight_of(12, 1, 3, 3), 12, PerAxis(0), 4, id="depthwise"),
    pytest.param(weight_of(12, 4, 3, 3), 1, PerGroup(12), 4, id="convolution, groups of inputs"),
    pytest.param(weight_of(12, 40) ** 3, 1, PerAxis(0), 4, id="heavy tails"),
]


def errors_of(weight: Tensor, changed: Tensor, rows: Tensor) -> Tensor:
    """The mean square (out,) of each output's error, from the rows (groups, n, in) themselves."""
    difference = (changed - weight).reshape(len(rows), -1, rows.shape[-1]).double()
    return (rows.double() @ difference.mT).square().mean(1).flatten()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize(("weight", "groups", "granularity", "bits"), CASES)
def test_no_output_is_worse_than_rounded_to_nearest(
    weight: Tensor, groups: int, granularity: PerTensor | PerAxis | PerGroup, bits: int, algorithm: Algorithm
) -> None:
    scheme = Scheme(torch.int8, granularity, True, bits=bits)
    rows = inputs_of(groups, 200, weight[0].numel())
    hessian = rows.mT @ rows / 200
    nearest = round_to_nearest(weight, hessian, scheme)
    found = algorithm(weight, hessian, scheme)
    measured, plain = errors_of(weight, found.weight, rows), errors_of(weight, nearest.weight, rows)
    torch.testing.assert_close(found.errors.double(), measured, rtol=1e-2, atol=1e-6 * float(plain.mean()))
    if not isinstance(granularity, PerTensor):
        assert bool((measured <= plain * 1.001 + 1e-9).all())
    assert float(measured.sum()) < 0.97 * float(plain.sum())
    is_on_grid = fake_quantize_by(found.weight, found.grid) - found.weight
    assert float(is_on_grid.abs().max()) <= 1e-6 * float(weight.abs().max())
    integers = quantize_by(found.weight, found.grid)
    assert integers.shape == weight.shape and int(integers.min()) >= scheme.quant_min


def one_after_another(weight: Tensor, hessian: Tensor, scheme: Scheme) -> float:
    """The error of GPTQ as it is defined: all inputs that are left are moved, by the inverse for these alone."""
    grid, left = weight_grid(weight, scheme), weight.double()
    damped = hessian.double() + 0.01 * hessian.diagonal().mean() * torch.eye(len(hessian))
    inverse = torch.linalg.inv(damped)
    for i in range(len(inverse)):
        error = left[:, i] - fake_quantize_by(left, grid)[:, i]
        left = left - error[:, None] * inverse[i] / inverse[i, i]
        inverse = inverse - inverse[:, i, None] * inverse[i] / inverse[i, i]
    return float(output_errors(weight, left, hessian).mean())


def test_blocks_round_as_one_input_after_another() -> None:
    weight, rows = weight_of(12, 300), inputs_of(1, 600, 300)[0]
    hessian, scheme = rows.T @ rows / 600, Scheme(torch.int8, PerAxis(0), True, bits=4)
    found = gptq(weight, hessian, scheme, is_ordered=False)
    assert found.error == pytest.approx(one_after_another(weight, hessian, scheme), rel=0.03)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(torch.zeros(1, 20, 16), id="all inputs 0"),
        pytest.param(inputs_of(1, 20, 16) * (torch.arange(16) % 3 > 0), id="some inputs 0"),
        pytest.param(inputs_of(1, 1, 16), id="a single row"),
        pytest.param(torch.ones(1, 20, 16), id="inputs that are the same"),
        pytest.param(inputs_of(1, 20, 16) * 1e6, id="large"),
        pytest.param(inputs_of(1, 20, 16) * 1e-6, id="small"),
    ],
)
def test_odd_inputs(rows: Tensor, algorithm: Algorithm) -> None:
    weight, scheme = weight_of(6, 16), Scheme(torch.int8, PerGroup(8), True, bits=4)
    hessian = rows.mT @ rows / rows.shape[1]
    found = algorithm(weight, hessian, scheme)
    assert bool(torch.isfinite(found.weight).all())
    assert found.error <= round_to_nearest(weight, hessian, scheme).error


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_weights_of_zeros_and_those_on_the_grid_stay(algorithm: Algorithm) -> None:
    rows = inputs_of(1, 50, 16)
    weight = torch.cat([torch.zeros(2, 16), weight_of(4, 16).mul(4).round().clamp(-7, 7)])
    weight[2:, 0] = 7.0
    found = algorithm(weight, rows.mT @ rows, Scheme(torch.int8, PerAxis(0), True, "minmax", bits=4))
    torch.testing.assert_close(found.weight, weight)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_scales_of_inputs_are_refused(algorithm: Algorithm) -> None:
    with pytest.raises(QuantizationError, match=r"share no scale by PerAxis\(axis=1\)"):
        algorithm(weight_of(4, 6), torch.eye(6), Scheme(torch.int8, PerAxis(1), True))


@pytest.mark.parametrize("hessian", [torch.eye(5), torch.eye(6).expand(3, 6, 6)])
def test_a_hessian_of_another_layer_is_refused(hessian: Tensor) -> None:
    with pytest.raises(QuantizationError, match=r"a weight of shape \(4, 6\) with inputs whose Hessian has shape"):
        gptq(weight_of(4, 6), hessian, Scheme(torch.int8, PerAxis(0), True))


def test_nan_in_a_hessian_is_refused() -> None:
    with pytest.raises(QuantizationError, match="a Hessian with NaN or inf"):
        gptq(weight_of(4, 6), torch.full((6, 6), float("nan")), Scheme(torch.int8, PerAxis(0), True))


@pytest.mark.parametrize("granularity", [PerAxis(0), PerGroup(20)])
@pytest.mark.parametrize("shape", [pytest.param((12, 40), id="linear"), pytest.param((12, 20, 2, 2), id="convolution")])
def test_factors_of_awq_lower_the_error(shape: tuple[int, ...], granularity: PerAxis | PerGroup) -> None:
    weight = weight_of(*shape)
    size = weight[0].numel()
    magnitudes = torch.where(torch.arange(shape[1]) % 10 == 3, 20.0, 1.0)  # of a few inputs are large
    magnitudes = magnitudes.repeat_interleave(size // shape[1])
    rows = torch.randn(1, 300, size, generator=generator()) * magnitudes
    hessian = (rows.mT @ rows / 300)[0]
    scheme = Scheme(torch.int8, granularity, True, bits=4)
    nearest = round_to_nearest(weight, hessian, scheme)
    found = awq(weight, hessian, scheme)
    effective = scale_inputs(found.rounded.weight, 1 / found.factors)
    measured = errors_of(weight, effective, rows)
    torch.testing.assert_close(found.rounded.errors.double(), measured, rtol=1e-2, atol=1e-6)
    assert found.alpha > 0 and float(measured.sum()) < 0.95 * float(errors_of(weight, nearest.weight, rows).sum())


@pytest.mark.parametrize("rows", [torch.zeros(20, 16), torch.ones(20, 16)])
def test_awq_leaves_inputs_alone_that_are_alike(rows: Tensor) -> None:
    weight, scheme = weight_of(4, 16), Scheme(torch.int8, PerAxis(0), True, bits=4)
    found = awq(weight, rows.T @ rows / 20, scheme)
    assert found.alpha == 0.0 and bool((found.factors == 1).all())
    assert found.rounded.error == round_to_nearest(weight, rows.T @ rows / 20, scheme).error
