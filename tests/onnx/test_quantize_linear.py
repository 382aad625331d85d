"""Quantized layers in ONNX: integers stay integers, and ONNX Runtime computes what the program says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import graphwright
from graphwright.quantization import (
    PerAxis,
    PerGroup,
    QuantizedConv1d,
    QuantizedConv2d,
    QuantizedConvTranspose2d,
    QuantizedEmbedding,
    QuantizedLinear,
    Scheme,
    dequantize,
    dynamic_int8,
    grid_of_range,
    quantize,
    weight_only_int8,
)

export = pytest.importorskip("graphwright.onnx").export


def per_channel(kind: Any, module: Any, *settings: Any) -> nn.Module:
    weight = module.weight.detach()
    dims = [dim for dim in range(weight.dim()) if dim != kind.axis]
    scheme = Scheme(torch.int8, PerAxis(kind.axis), True)
    made: nn.Module = kind.from_float(module, grid_of_range(weight.amin(dims), weight.amax(dims), scheme), *settings)
    return made


def per_group(module: nn.Linear, bits: int) -> nn.Module:
    groups = module.weight.detach().reshape(module.out_features, -1, 16)
    grid = grid_of_range(groups.amin(-1), groups.amax(-1), Scheme(torch.int8, PerGroup(16), True, bits=bits))
    return QuantizedLinear.from_float(module, grid)


LAYERS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "linear": (lambda: per_channel(QuantizedLinear, nn.Linear(32, 8)), lambda: torch.randn(3, 32)),
    "linear per token": (lambda: per_channel(QuantizedLinear, nn.Linear(32, 8), "token"), lambda: torch.randn(3, 32)),
    "linear per tensor": (lambda: per_channel(QuantizedLinear, nn.Linear(32, 8), "tensor"), lambda: torch.randn(3, 32)),
    "linear in groups": (lambda: per_group(nn.Linear(32, 8), 8), lambda: torch.randn(3, 32)),
    "linear of 4 bits": (lambda: per_group(nn.Linear(32, 8), 4), lambda: torch.randn(3, 32)),
    "conv1d": (lambda: per_channel(QuantizedConv1d, nn.Conv1d(4, 6, 3)), lambda: torch.randn(1, 4, 9)),
    "conv2d": (lambda: per_channel(QuantizedConv2d, nn.Conv2d(4, 6, 3, groups=2)), lambda: torch.randn(1, 4, 9, 9)),
    "transposed": (
        lambda: per_channel(QuantizedConvTranspose2d, nn.ConvTranspose2d(4, 6, 3, 2)),
        lambda: torch.randn(1, 4, 5, 5),
    ),
    "embedding": (
        lambda: per_channel(QuantizedEmbedding, nn.Embedding(10, 8)),
        lambda: torch.tensor([[1, 9, 0]]),
    ),
}


@pytest.mark.slow
@pytest.mark.sampled(7)
@pytest.mark.parametrize("name", LAYERS)
def test_layer(name: str) -> None:
    """Weights are integers in the model, and the result is that of the layer."""
    torch.manual_seed(0)
    make, example = LAYERS[name]
    layer, x = make(), example()
    program = export(graphwright.trace(nn.Sequential(layer).eval(), x, leaf_modules=["0"]), x)
    torch.testing.assert_close(program(x), layer(x), atol=1e-4, rtol=1e-4)
    kinds = {name: value.const_value.dtype.name for name, value in program.model.graph.initializers.items()}
    assert kinds["0.weight"] == ("UINT8" if "4 bits" in name else "INT8")


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8])
def test_values(dtype: torch.dtype) -> None:
    """Rounding is half to even, and stays within the dtype."""

    def write(x: Tensor) -> Tensor:
        return quantize(x, 0.5, 3, dtype)

    def both(x: Tensor) -> Tensor:
        return dequantize(quantize(x, 0.5, 3, dtype), 0.5, 3)

    x = torch.tensor([-400.0, -1.25, -0.75, -0.25, 0.0, 0.25, 0.75, 400.0])
    for function in (write, both):
        program = export(graphwright.trace(function, x), x)
        assert torch.equal(program(x), function(x))
        assert program.report.operators["QuantizeLinear"] == 1


@pytest.mark.sampled(7)
@pytest.mark.parametrize("rows", [(3,), (2, 3), ()], ids=str)
@pytest.mark.parametrize("bias", [True, False])
def test_linear_layers_of_integers_are_products_of_rows(rows: tuple[int, ...], bias: bool) -> None:
    torch.manual_seed(0)
    layer = per_channel(QuantizedLinear, nn.Linear(32, 8, bias=bias))

    class Rounded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(dequantize(quantize(x, 0.05, 120), 0.05, 120))

    model, x = Rounded().eval(), torch.randn(*rows, 32)
    program = export(graphwright.trace(model, x, leaf_modules=["layer"]), x)
    assert program.report.operators["Gemm"] == 1
    torch.testing.assert_close(program(x), model(x), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("config", [weight_only_int8(), dynamic_int8("token")], ids=["weights", "each token"])
def test_activations_are_not_rounded_where_the_program_does_not(config: Any) -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)).eval(), torch.randn(4, 6, 64)
    q = graphwright.quantize(model, config, args=(x,), engine=None)
    torch.testing.assert_close(export(q, x)(x), q(x), atol=1e-4, rtol=1e-4)
