"""Quantized layers: what they compute is that of the float layer with a rounded weight, in every view of a program."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import graphwright
from graphwright.errors import QuantizationError
from graphwright.ops import functional_form, is_impure
from graphwright.quantization import (
    Grid,
    PerAxis,
    PerGroup,
    QuantizedConv1d,
    QuantizedConv2d,
    QuantizedConv3d,
    QuantizedConvTranspose1d,
    QuantizedConvTranspose2d,
    QuantizedConvTranspose3d,
    QuantizedEmbedding,
    QuantizedLinear,
    Scheme,
    dequantize_by,
    dynamic_int8,
    fake_quantize_by,
    grid_of_range,
    sqnr,
    static_int8,
    weight_only_int8,
)
from graphwright.quantization.layer_functions import pack_int4, rounded_in_call, unpack_int4


def per_channel(weight: Tensor, axis: int = 0) -> Grid:
    dims = [dim for dim in range(weight.dim()) if dim != axis]
    low, high = weight.detach().amin(dims), weight.detach().amax(dims)
    return grid_of_range(low, high, Scheme(torch.int8, PerAxis(axis), True))


def per_group(weight: Tensor, size: int) -> Grid:
    groups = weight.detach().reshape(weight.shape[0], -1, size)
    return grid_of_range(groups.amin(-1), groups.amax(-1), Scheme(torch.int8, PerGroup(size), True, bits=4))


LAYERS: dict[str, tuple[Any, Any, tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(8, 6), QuantizedLinear, (2, 3, 8)),
    "linear without bias": (lambda: nn.Linear(8, 6, bias=False), QuantizedLinear, (8,)),
    "conv1d": (lambda: nn.Conv1d(4, 6, 3, padding="same"), QuantizedConv1d, (2, 4, 9)),
    "conv2d": (lambda: nn.Conv2d(4, 6, 3, 2, 1, groups=2), QuantizedConv2d, (2, 4, 9, 8)),
    "conv2d reflected": (lambda: nn.Conv2d(4, 6, 3, padding=1, padding_mode="reflect"), QuantizedConv2d, (1, 4, 9, 8)),
    "conv3d": (lambda: nn.Conv3d(2, 4, 3, dilation=2), QuantizedConv3d, (1, 2, 6, 7, 8)),
    "transposed 1d": (lambda: nn.ConvTranspose1d(4, 6, 3), QuantizedConvTranspose1d, (2, 4, 9)),
    "transposed 2d": (
        lambda: nn.ConvTranspose2d(4, 6, 3, 2, 1, 1, groups=2),
        QuantizedConvTranspose2d,
        (2, 4, 5, 6),
    ),
    "transposed 3d": (lambda: nn.ConvTranspose3d(2, 4, 2), QuantizedConvTranspose3d, (1, 2, 3, 4, 5)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layer_is_that_with_a_rounded_weight(name: str) -> None:
    """The float layer, given the weight that the integers stand for, gives the same."""
    make, kind, shape = LAYERS[name]
    torch.manual_seed(0)
    module, x = make(), torch.randn(shape)
    grid = per_channel(module.weight, kind.axis)
    layer = kind.from_float(module, grid)
    module.weight.data = fake_quantize_by(module.weight.data, grid)
    torch.testing.assert_close(layer(x), module(x), atol=1e-6, rtol=1e-5)
    assert layer.weight.dtype is torch.int8
    assert not list(layer.parameters())


@pytest.mark.parametrize("name", LAYERS)
def test_layer_inlined(name: str) -> None:
    """The function is called in the place of the module, where it is one function."""
    make, kind, shape = LAYERS[name]
    module, x = make(), torch.randn(shape)
    layer = nn.Sequential(kind.from_float(module, per_channel(module.weight, kind.axis)), nn.ReLU())
    gm = graphwright.trace(layer, x, leaf_modules=["0"])
    inlined = graphwright.inline(gm)
    text = inlined.code.partition("def forward_calling_modules")[0]
    assert bool(re.search(r"quantized_\w+\(", text)) is (functional_form(layer[0]) is not None)
    assert torch.equal(inlined(x), layer(x))
    hooked = inlined.get_submodule("0")
    hooked.register_forward_hook(lambda module, args, result: result + 1)
    assert functional_form(hooked) is None
    assert torch.equal(inlined(x), (layer[0](x) + 1).relu())


def test_groups_of_four_bits() -> None:
    """Two integers are in a byte; other tensors than weights of two dimensions stay one a byte."""
    linear, x = nn.Linear(64, 6), torch.randn(2, 64)
    grid = per_group(linear.weight, 16)
    layer = QuantizedLinear.from_float(linear, grid)
    assert layer.weight.shape == (6, 32) and layer.weight_scale.shape == (6, 4)
    linear.weight.data = fake_quantize_by(linear.weight.data, grid)
    torch.testing.assert_close(layer(x), linear(x), atol=1e-6, rtol=1e-5)
    assert "int4, 4 groups" in repr(layer) and layer.in_features == 64


def test_integers_in_bytes() -> None:
    """What is packed comes out again."""
    weight = torch.arange(-8, 8, dtype=torch.int8).reshape(2, 8)
    assert torch.equal(unpack_int4(pack_int4(weight)), weight)
    with pytest.raises(QuantizationError, match="3 values of 4 bits"):
        pack_int4(weight[:, :3])


@pytest.mark.parametrize("bits", [4, 8])
def test_embedding(bits: int) -> None:
    """Rows are looked up as integers."""
    embedding, ids = nn.Embedding(10, 32, padding_idx=1), torch.tensor([[3, 1, 9]])
    grid = per_group(embedding.weight, 16) if bits == 4 else per_channel(embedding.weight)
    layer = QuantizedEmbedding.from_float(embedding, grid)
    torch.testing.assert_close(layer(ids), F.embedding(ids, fake_quantize_by(embedding.weight.detach(), grid)))
    assert layer.bits == bits


@pytest.mark.parametrize("activation", ["tensor", "token"])
def test_input_rounded_in_call(activation: str) -> None:
    """What is off is half a step at most, of the range of all or of each vector, and zero stays zero."""
    x = torch.cat((torch.rand(3, 16) + 1, torch.zeros(1, 16), torch.randn(2, 16)))
    given = rounded_in_call(x, activation)
    low, high = (x.amin(-1, True), x.amax(-1, True)) if activation == "token" else (x.min(), x.max())
    step = (high.clamp(min=0) - low.clamp(max=0)) / 255
    assert bool(((given - x).abs() <= step * 0.5001 + 1e-7).all())
    assert not given[3].any()
    assert rounded_in_call(torch.empty(0, 4), activation).shape == (0, 4)


def test_what_is_refused() -> None:
    """Grids that do not fit, and words that are not known."""
    conv = nn.ConvTranspose2d(4, 6, 3)
    with pytest.raises(QuantizationError, match="scales along axis 0"):
        QuantizedConvTranspose2d.from_float(conv, per_channel(conv.weight, 0))
    linear = nn.Linear(4, 2)
    moved = grid_of_range(*torch.aminmax(linear.weight.detach()), Scheme(torch.uint8))
    with pytest.raises(QuantizationError, match="zero point"):
        QuantizedLinear.from_float(linear, moved)
    with pytest.raises(QuantizationError, match="activations cannot be 'row'"):
        QuantizedLinear(torch.zeros(2, 2, dtype=torch.int8), torch.ones(2), None, "row")  # type: ignore[arg-type]
    embedding = nn.Embedding(4, 2, max_norm=1.0)
    with pytest.raises(QuantizationError, match="max_norm"):
        QuantizedEmbedding.from_float(embedding, per_channel(embedding.weight))


def test_state_and_effects() -> None:
    """Buffers go through state dicts; calls have no effect but their value."""
    linear = nn.Linear(8, 6)
    layer = QuantizedLinear.from_float(linear, per_channel(linear.weight), "token")
    assert sorted(layer.state_dict()) == ["bias", "weight", "weight_scale"]
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    other = QuantizedLinear(torch.zeros(6, 8, dtype=torch.int8), torch.ones(6), torch.zeros(6), "token")
    other.load_state_dict(torch.load(file, weights_only=True))
    x = torch.randn(3, 8)
    assert torch.equal(other(x), layer(x))
    gm = graphwright.trace(nn.Sequential(layer), x, leaf_modules=["0"])
    node = next(node for node in gm.graph.nodes if node.op == "call_module")
    assert not is_impure(node, layer)
    assert torch.equal(
        dequantize_by(layer.weight, per_channel(linear.weight)), layer.weight * layer.weight_scale[:, None]
    )


def test_subclass_with_another_forward_is_no_function() -> None:
    """What a subclass does is not known."""

    class Doubled(QuantizedLinear):
        def forward(self, input: Tensor) -> Tensor:
            return super().forward(input) * 2

    linear = nn.Linear(8, 6)
    assert functional_form(QuantizedLinear.from_float(linear, per_channel(linear.weight))) is not None
    assert functional_form(Doubled.from_float(linear, per_channel(linear.weight))) is None


class ReadsDtypes(nn.Module):
    """Makes values with the dtypes of weights that become whole numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        kind = self.first.weight.dtype
        positions = torch.arange(8, dtype=kind) / 3
        mask = torch.zeros(8, dtype=kind).masked_fill(positions > 2, torch.finfo(self.second.weight.dtype).eps)
        return self.second(self.first(x.int().to(kind) + positions).relu()) + mask


@pytest.mark.parametrize("scheme", [dynamic_int8(), weight_only_int8()])
def test_the_dtype_of_a_weight_is_that_of_its_floats(scheme: Any) -> None:
    model, x = ReadsDtypes().eval(), torch.randn(4, 8) * 3
    quantized = graphwright.quantize(model, scheme, args=(x,), engine=None)
    torch.testing.assert_close(quantized(x), model(x), rtol=0.05, atol=0.05)
    assert not any(each.is_floating_point() and each.dim() > 1 for each in quantized.state_dict().values())


@pytest.mark.parametrize("config", [static_int8(), dynamic_int8(), dynamic_int8(granularity="token")])
def test_values_that_are_rounded_have_no_gradient(config: Any) -> None:
    """That of a sum would come by the other summand alone."""
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU()).eval()
    q = graphwright.quantize(model, config, [torch.randn(4, 8)], engine=None)
    with pytest.raises(QuantizationError, match="a gradient is wanted of a value that is rounded to integers"):
        q(torch.randn(4, 8, requires_grad=True))
    assert not q(torch.randn(4, 8)).requires_grad
    with torch.no_grad():
        q(torch.randn(4, 8, requires_grad=True))


def test_weights_alone_pass_gradients_on() -> None:
    model, x = nn.Linear(8, 8), torch.randn(4, 8, requires_grad=True)
    q = graphwright.quantize(model.eval(), weight_only_int8(), args=(x,), engine=None)
    one, other = torch.autograd.grad(q(x).sum(), x)[0], torch.autograd.grad(model(x).sum(), x)[0]
    assert 0 < (one - other).abs().max() < 0.1


TRANSPOSED: dict[str, Any] = {
    "T": lambda x, weight, bias: x @ weight.T + bias,
    "mT": lambda x, weight, bias: torch.matmul(x, weight.mT),
    "t": lambda x, weight, bias: x.mm(weight.t()),
    "transpose": lambda x, weight, bias: x @ weight.transpose(-1, 0),
    "addmm": lambda x, weight, bias: torch.addmm(bias, x, weight.T),
}


@pytest.mark.parametrize("name", TRANSPOSED)
def test_products_with_transposed_parameters_are_layers(name: str) -> None:
    class Product(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            made: Tensor = TRANSPOSED[name](x, self.weight, self.bias)
            return made

    torch.manual_seed(0)
    model, x = nn.Sequential(Product(8, 16), nn.ReLU(), nn.Linear(16, 4)).eval(), torch.randn(64, 8)
    q = graphwright.quantize(model, static_int8(), [x], engine=None)
    assert [row.decision for row in q.quantization.rows if row.op == "linear"] == ["static", "static"]
    assert sqnr(model(x), q(x)) > 30


@pytest.mark.parametrize("engine", [None, "torch"])
@pytest.mark.parametrize("fast", [lambda gm, x: graphwright.inline(gm), graphwright.optimize_for_inference])
def test_a_faster_form_is_quantized_as_the_program_that_it_is_of(fast: Any, engine: Any) -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4)).eval(), torch.randn(64, 16)
    q = graphwright.quantize(fast(graphwright.trace(model, x), x), weight_only_int8(), args=(x,), engine=engine)
    assert sqnr(model(x), q(x)) > 30
    assert len(q.quantization.rows) == 2
