"""Equalization: what layers in a row compute stays, and their channels have like ranges."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor, nn

from graphwright.errors import QuantizationError
from graphwright.quantization import PerTensor, Scheme, fake_quantize_by
from graphwright.quantization.algorithms.equalization import LayerWeights, equalize
from graphwright.quantization.observers.weight_grid import weight_grid

Row = list[nn.Module]


def layers_of(row: Row) -> list[nn.Conv2d]:
    return [module for module in row if isinstance(module, (nn.Linear, nn.modules.conv._ConvNd))]


def weights_of(layer: nn.Conv2d) -> LayerWeights:
    return LayerWeights(
        layer.weight.detach(),
        None if layer.bias is None else layer.bias.detach(),
        getattr(layer, "groups", 1),
        isinstance(layer, nn.modules.conv._ConvTransposeNd),
    )


ROWS = [
    pytest.param(lambda: [nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3)], (4, 5), id="linear"),
    pytest.param(lambda: [nn.Linear(5, 8, bias=False), nn.Linear(8, 3, bias=False)], (4, 5), id="without biases"),
    pytest.param(
        lambda: [nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=8), nn.ReLU(), nn.Conv2d(8, 4, 1)],
        (2, 3, 8, 8),
        id="depthwise",
    ),
    pytest.param(
        lambda: [nn.Conv2d(4, 8, 3, groups=2), nn.LeakyReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 6, 2, groups=2)],
        (2, 4, 8, 8),
        id="groups",
    ),
    pytest.param(
        lambda: [nn.ConvTranspose2d(4, 8, 3, groups=2), nn.ReLU(), nn.ConvTranspose2d(8, 6, 2, groups=2)],
        (2, 4, 5, 5),
        id="transposed",
    ),
    pytest.param(lambda: [nn.Conv1d(4, 8, 3), nn.ReLU(), nn.ConvTranspose1d(8, 6, 3)], (2, 4, 9), id="one dimension"),
]


@pytest.mark.parametrize(("make", "shape"), ROWS)
def test_outputs_stay_and_ranges_become_alike(make: object, shape: tuple[int, ...]) -> None:
    assert callable(make)
    row = make()
    layers = layers_of(row)
    for layer in layers[:-1]:
        axis = 1 if isinstance(layer, nn.modules.conv._ConvTransposeNd) else 0
        count = layer.weight.shape[axis]
        spread = torch.logspace(-1.5, 1.5, count).reshape([-1 if i == axis else 1 for i in range(layer.weight.dim())])
        layer.weight.data *= spread
    x = torch.randn(shape)
    model = nn.Sequential(*row)
    plain = model(x).detach()
    found = equalize([weights_of(layer) for layer in layers])
    for layer, new in zip(layers, found, strict=True):
        assert new.weight.shape == layer.weight.shape
        layer.weight.data = new.weight
        if new.bias is not None:
            layer.bias.data = new.bias
    torch.testing.assert_close(model(x).detach(), plain, rtol=1e-4, atol=1e-4 * float(plain.abs().max()))
    for first, second in itertools.pairwise(found):
        torch.testing.assert_close(first.output_ranges(), second.input_ranges(), rtol=1e-2, atol=1e-6)


def test_one_scale_a_weight_loses_less() -> None:
    first, second = (
        LayerWeights(torch.randn(16, 8) * torch.logspace(-2, 2, 16)[:, None]),
        LayerWeights(torch.randn(4, 16)),
    )
    x = torch.randn(100, 8)

    def error(one: Tensor, other: Tensor) -> float:
        scheme = Scheme(torch.int8, PerTensor(), True, "minmax")
        small, large = (fake_quantize_by(weight, weight_grid(weight, scheme)) for weight in (one, other))
        wanted = (x @ first.weight.T).relu() @ second.weight.T
        return float(((x @ small.T).relu() @ large.T - wanted).square().mean())

    new_first, new_second = equalize([first, second])
    assert error(new_first.weight, new_second.weight) < 0.5 * error(first.weight, second.weight)


def test_channels_without_weights_stay() -> None:
    first, second = torch.randn(4, 3), torch.randn(2, 4)
    first[1], second[:, 2] = 0.0, 0.0
    new_first, new_second = equalize([LayerWeights(first, torch.ones(4)), LayerWeights(second)])
    assert new_first.bias is not None
    assert new_first.bias[1:3].tolist() == [1.0, 1.0]
    assert torch.equal(new_second.weight[:, 1:3], second[:, 1:3])


def test_layers_that_do_not_follow_each_other() -> None:
    with pytest.raises(QuantizationError, match="layer 0 of a row has 4 outputs, and the next 5 inputs"):
        equalize([LayerWeights(torch.randn(4, 3)), LayerWeights(torch.randn(2, 5))])
