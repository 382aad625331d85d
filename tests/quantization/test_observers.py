"""Ranges that observers find, against brute force, `numpy.quantile` and the definition of divergence."""

from __future__ import annotations

import copy
import math

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from graphwright.errors import QuantizationError
from graphwright.quantization import Grid, PerAxis, Scheme, fake_quantize_by, grid_of_range
from graphwright.quantization.observers.bins import BinnedObserver
from graphwright.quantization.observers.by_name import observer_of
from graphwright.quantization.observers.histogram import HistogramObserver
from graphwright.quantization.observers.min_max import MinMaxObserver, MovingAverageObserver
from graphwright.quantization.observers.percentile import PercentileObserver

NAMES = ("minmax", "moving_average", "histogram", "percentile", "entropy")
SCHEMES = [
    pytest.param(Scheme(torch.uint8), id="uint8"),
    pytest.param(Scheme(torch.int8, is_symmetric=True), id="int8"),
    pytest.param(Scheme(torch.uint8, bits=4), id="uint4"),
]


def normal(count: int = 4000) -> Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(0))


VALUES = [
    pytest.param(normal(), id="normal"),
    pytest.param(normal().relu(), id="half are 0"),
    pytest.param(nn.functional.hardswish(2 * normal()), id="skewed"),
    pytest.param(-normal().exp(), id="all below 0"),
    pytest.param(normal() ** 5, id="heavy tails"),
    pytest.param(torch.cat([1e-3 * normal(), torch.tensor([500.0])]), id="one outlier"),
    pytest.param(nn.functional.relu6(4 * normal()), id="most are 0 or 6"),
    pytest.param(normal() * 1e-6, id="small"),
    pytest.param(normal() * 1e9, id="large"),
    pytest.param(torch.full((10,), 3.0), id="constant"),
    pytest.param(torch.tensor([-2.0]), id="one value"),
]


def range_of(name: str, x: Tensor, scheme: Scheme) -> tuple[float, float]:
    observer = observer_of(Scheme(observer=name))
    for batch in x.split(max(1, len(x) // 3)):
        observer.observe(batch)
    low, high = observer.range(scheme)
    assert low.dtype == high.dtype == torch.float32 and low.shape == high.shape == ()
    return float(low), float(high)


# ---- squared error


def squared_errors(x: Tensor, lows: Tensor, highs: Tensor, scheme: Scheme) -> Tensor:
    """Of each range, measured."""
    per_range = Scheme(scheme.dtype, PerAxis(0), scheme.is_symmetric, bits=scheme.bits)
    many = x.double().expand(len(lows), -1)
    return (fake_quantize_by(many, grid_of_range(lows, highs, per_range)) - many).square().mean(1)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("x", VALUES)
def test_no_range_of_a_grid_has_a_smaller_squared_error(x: Tensor, scheme: Scheme) -> None:
    low, high = range_of("histogram", x, scheme)
    shares = torch.cat([torch.logspace(-3, -1.1, 6), torch.linspace(0.1, 1.0, 28)])
    lows, highs = torch.cartesian_prod(shares * min(x.min(), 0.0), shares * max(x.max(), 0.0)).unbind(1)
    parts = zip(lows.split(100), highs.split(100), strict=True)
    least = min(float(squared_errors(x, *part, scheme).min()) for part in parts)
    found = float(squared_errors(x, torch.tensor([low]), torch.tensor([high]), scheme))
    assert found <= 1.03 * least + 1e-12 * float(x.abs().max()) ** 2  # bins are not values


@pytest.mark.parametrize("x", VALUES)
def test_the_error_told_is_the_error_measured(x: Tensor) -> None:
    observer = HistogramObserver()
    observer.observe(x)
    grid = grid_of_range(*observer.range(Scheme()), Scheme())
    measured = float((fake_quantize_by(x, grid) - x).double().square().mean())
    assert observer.mean_squared_error(grid) == pytest.approx(measured, rel=0.1, abs=observer.width**2)
    assert observer.mean_square == pytest.approx(float(x.double().square().mean()), rel=1e-5)


def test_the_error_of_evenly_spread_values_is_that_of_steps_finer_than_bins() -> None:
    observer = HistogramObserver()
    grid = Grid(torch.tensor(0.1), torch.tensor(0), 0, 255, torch.uint8)
    observer.observe(torch.tensor([300.0]))
    outlier = observer.mean_squared_error(grid)
    observer.observe(torch.rand(100_000, generator=torch.Generator().manual_seed(0)) * 25)
    assert observer.width == 0.25
    bulk = (observer.mean_squared_error(grid) * 100_001 - outlier) / 100_000
    assert bulk == pytest.approx(0.1**2 / 12, rel=1e-3)


# ---- percentile


@pytest.mark.parametrize("share", [0.9, 0.99, 0.9999])
@pytest.mark.parametrize("x", VALUES)
def test_percentiles_are_those_of_numpy_within_a_bin(x: Tensor, share: float) -> None:
    observer = PercentileObserver(share=share)
    observer.observe(x)
    width = observer.width
    low, high = (float(bound) for bound in observer.range(Scheme()))
    cuts = [(1 - share) / 2, (1 + share) / 2]
    (least_low, least_high), (most_low, most_high) = (
        numpy.quantile(x.double().numpy(), cuts, method=method) for method in ("lower", "higher")
    )
    assert min(least_low, 0) - width <= low <= min(most_low, 0) + width
    assert max(least_high, 0) - width <= high <= max(most_high, 0) + width
    bound = max(-float(v) if i == 0 else float(v) for i, v in enumerate(observer.range(Scheme(is_symmetric=True))))
    least, most = (numpy.quantile(x.abs().double().numpy(), share, method=method) for method in ("lower", "higher"))
    assert least - width <= bound <= most + width


# ---- entropy


def divergence(observer: BinnedObserver, low: float, high: float, levels: int) -> float:
    """The definition, one bin after another, for integers from 0."""
    edges, counts = observer.filled()
    scale = float(torch.tensor((high - low) / (levels - 1), dtype=torch.float32))
    zero_point = round(-low / scale)
    kept: dict[int, list[float]] = {}
    below = above = 0.0
    for i, count in enumerate(counts.tolist()):
        if count:
            level = round((float(edges[i]) + float(edges[i + 1])) / 2 / scale + zero_point)
            if level < 0:
                below += count
            elif level >= levels:
                above += count
            else:
                kept.setdefault(level, []).append(count)
    total = sum(map(sum, kept.values()))
    quantized = [sum(bins) / len(bins) / total for bins in kept.values() for _ in bins]
    reference = [count for bins in kept.values() for count in bins]
    reference[0] += below
    reference[-1] += above
    everything = total + below + above
    return sum(p / everything * math.log(p / everything / q) for p, q in zip(reference, quantized, strict=True))


@pytest.mark.parametrize("x", [normal(), normal().relu(), normal() ** 3, nn.functional.hardswish(normal())])
def test_no_range_of_a_grid_keeps_more_of_the_distribution(x: Tensor) -> None:
    observer = observer_of(Scheme(observer="entropy"))
    assert isinstance(observer, BinnedObserver)
    observer.observe(x)
    scheme = Scheme(bits=4)
    low, high = (float(bound) for bound in observer.range(scheme))
    lowest, highest = min(float(x.min()), 0), max(float(x.max()), 0)
    tried = [
        divergence(observer, lowest * share, highest * share, 16)
        for share in torch.linspace(0.05, 1.0, 24).tolist()
        if (highest - lowest) * share >= 16 * observer.width
    ]
    assert divergence(observer, low, high, 16) <= min(tried) + 1e-3


# ---- the histogram


def test_counts_do_not_depend_on_the_order_of_batches() -> None:
    batches = [normal() * 10.0**power for power in (-9, -2, 0, 1, 5)]
    forward, backward = HistogramObserver(), HistogramObserver()
    for batch in batches:
        forward.observe(batch)
    for batch in reversed(batches):
        backward.observe(batch)
    assert torch.equal(forward.bins, backward.bins) and forward.exponent == backward.exponent
    edges, counts = forward.filled()
    expected, _ = numpy.histogram(torch.cat(batches).double().numpy(), edges.numpy())
    assert counts.tolist() == expected.tolist()


def test_zeros_are_in_no_bin() -> None:
    observer = HistogramObserver()
    observer.observe(torch.tensor([0.0, -0.0, 1.0, 0.0]))
    assert (int(observer.zeros), int(observer.bins.sum()), int(observer.count)) == (3, 1, 4)


def test_an_average_weighs_the_newest_batch() -> None:
    observer = MovingAverageObserver(constant=0.1)
    for batch in ([], [-1.0, 2.0], [], [-3.0, 4.0]):
        observer.observe(torch.tensor(batch))
    assert [round(float(bound), 6) for bound in observer.range(Scheme())] == [-1.2, 2.2]


# ---- what every observer does


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("batches", "expected"),
    [
        pytest.param([torch.zeros(3, 4)], (0.0, 0.0), id="zeros"),
        pytest.param([torch.empty(0, 4), torch.full((2, 2), 2.0)], (0.0, 2.0), id="first a batch of no rows"),
        pytest.param([torch.full((1,), -5.0), torch.empty(0)], (-5.0, 0.0), id="last a batch of no rows"),
        pytest.param([torch.tensor(7.0)], (0.0, 7.0), id="a number"),
        pytest.param([torch.full((2,), 1.5, dtype=torch.bfloat16)], (0.0, 1.5), id="bfloat16"),
        pytest.param([torch.full((2,), 1.5, dtype=torch.float64)], (0.0, 1.5), id="float64"),
        pytest.param([torch.full((2,), 3e38)], (0.0, 3e38), id="nearly the largest"),
        pytest.param([torch.full((2,), 1e-40)], (0.0, 1e-40), id="nearly the least"),
    ],
)
def test_odd_batches(name: str, batches: list[Tensor], expected: tuple[float, float]) -> None:
    observer = observer_of(Scheme(observer=name))
    for batch in batches:
        observer.observe(batch)
    for scheme in (Scheme(), Scheme(torch.int8, is_symmetric=True)):
        low, high = observer.range(scheme)
        assert (float(low), float(high)) == pytest.approx(expected, rel=0.03, abs=1e-30)
        assert float(grid_of_range(low, high, scheme).scale) > 0
    assert int(observer.batches) == len(batches)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("x", "message"),
    [
        pytest.param(torch.tensor([1.0, math.nan]), "fc1.input has NaN in batch 1", id="NaN"),
        pytest.param(torch.tensor([1.0, -math.inf]), "fc1.input has inf in batch 1", id="inf"),
        pytest.param(
            torch.tensor([1e300], dtype=torch.float64), "has values beyond those of float32, up to 1e+300", id="1e300"
        ),
        pytest.param(torch.tensor([1, 2]), "fc1.input has values of torch.int64 in batch 1", id="integers"),
        pytest.param(torch.tensor([1j]), "fc1.input has values of torch.complex64", id="complex"),
    ],
)
def test_values_that_no_grid_covers(name: str, x: Tensor, message: str) -> None:
    observer = observer_of(Scheme(observer=name), "fc1.input")
    observer.observe(torch.ones(2))
    with pytest.raises(QuantizationError) as caught:
        observer.observe(x)
    assert message in str(caught.value)
    assert "\n  fix: " in str(caught.value)


@pytest.mark.parametrize("name", NAMES)
def test_no_values_is_no_range(name: str) -> None:
    observer = observer_of(Scheme(observer=name), "fc1.input")
    with pytest.raises(QuantizationError, match=r"fc1.input has no range: its observer saw no batch\n.*dynamic_int8"):
        observer.range(Scheme())
    observer.observe(torch.empty(0, 3))
    with pytest.raises(QuantizationError, match="its observer saw 1 batches without values"):
        observer.range(Scheme())


@pytest.mark.parametrize("make", [lambda: MovingAverageObserver(constant=0.0), lambda: PercentileObserver(share=0.3)])
def test_options_that_make_no_sense(make: object) -> None:
    assert callable(make)
    with pytest.raises(QuantizationError, match="fix: give a number in"):
        make()


@pytest.mark.parametrize("name", NAMES)
def test_copies_and_states_hold_what_was_seen(name: str) -> None:
    observer = observer_of(Scheme(observer=name), "fc1.input")
    observer.observe(normal())
    again = observer_of(Scheme(observer=name))
    again.load_state_dict(observer.state_dict(), strict=True)
    twin = copy.deepcopy(observer)
    twin.observe(100 * normal())
    assert again.range(Scheme()) == observer.range(Scheme()) != twin.range(Scheme())
    assert (again.mean_square, int(again.count)) == (observer.mean_square, 4000)


@pytest.mark.parametrize("name", NAMES)
def test_forward_gives_back_its_input_and_keeps_no_gradient(name: str) -> None:
    observer = observer_of(Scheme(observer=name))
    x = normal().requires_grad_()
    assert observer(x) is x
    assert not any(tensor.requires_grad for tensor in observer.state_dict().values())
    assert not any(bound.requires_grad for bound in observer.range(Scheme()))


@given(
    st.lists(st.floats(-(2.0**100), 2.0**100, width=32, allow_subnormal=False), min_size=1, max_size=40),
    st.sampled_from(NAMES),
    st.sampled_from([Scheme(), Scheme(bits=4), Scheme(torch.int8, is_symmetric=True)]),
)
def test_quantized_values_are_half_a_step_from_clamped_ones(values: list[float], name: str, scheme: Scheme) -> None:
    x = torch.tensor(values)
    observer = observer_of(Scheme(observer=name))
    observer.observe(x)
    low, high = observer.range(scheme)
    assert low <= 0 <= high
    grid = grid_of_range(low, high, scheme)
    assert grid.scale > 0
    assert float(fake_quantize_by(torch.zeros(1), grid)) == 0.0
    least, most = bounds(grid)
    clamped = x.double().clamp(least, most)
    wrong = (fake_quantize_by(x, grid).double() - clamped).abs()
    assert bool((wrong <= 0.5001 * float(grid.scale)).all())


def bounds(grid: Grid) -> tuple[float, float]:
    zero_point, scale = int(grid.zero_point), float(grid.scale)
    return (grid.quant_min - zero_point) * scale, (grid.quant_max - zero_point) * scale


def test_min_and_max_cover_all_values() -> None:
    observer = MinMaxObserver()
    x = normal()
    observer.observe(x)
    grid = grid_of_range(*observer.range(Scheme()), Scheme())
    assert float((fake_quantize_by(x, grid) - x).abs().max()) <= 1.01 * float(grid.scale)  # the zero point is rounded
