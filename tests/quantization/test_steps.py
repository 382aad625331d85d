"""The steps from a float program to one of integers, on small models."""

from __future__ import annotations

import copy
import dataclasses
import types
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import graphwright
from graphwright import GraphModule
from graphwright.errors import QuantizationError
from graphwright.quantization import (
    QConfig,
    QConfigMapping,
    QuantizedConv2d,
    QuantizedLinear,
    calibrate,
    convert,
    dequantize,
    dynamic_int8,
    fake_quantize_by,
    prepare,
    quantize,
    quantize_,
    sqnr,
    static_int8,
    weight_grid,
    weight_only_int4,
    weight_only_int8,
)
from graphwright.quantization.schemes import PerAxis, Scheme


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 8, 1)
        self.conv3 = nn.Conv2d(8, 8, 3)
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm(self.conv1(x)))
        y += self.conv2(y)
        y = self.conv3(F.max_pool2d(F.relu(y), 2))
        return self.head(self.drop(y.mean((2, 3))))


class Joined(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.left, self.right, self.last = nn.Conv2d(3, 4, 1), nn.Conv2d(3, 4, 1), nn.Conv2d(8, 4, 1)
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.cat([self.left(x), self.right(x) * self.factor], 1))


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(self.layer(x) * 100)


class Either(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            return self.left(x)
        return self.right(x * 3)


class Looped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        while x.abs().sum() < 100:
            x = self.layer(x) + x * 2
        return x


class Transposed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(3, 8, 3, stride=2), nn.ConvTranspose2d(8, 3, 3, stride=2, groups=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.up(F.relu(self.down(x)))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(50, 16), nn.Linear(16, 50, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.embedding(ids))


class MayLackBias(nn.Module):
    """Its last layer asks whether its parameters are there, as those of timm do."""

    class Asking(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return F.linear(x, self.weight) if self.bias is None else F.linear(x, self.weight, self.bias)

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(4, 8), self.Asking(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.relu(self.first(x)))


IMAGE = (2, 3, 12, 12)
MODELS: list[tuple[str, Any, tuple[int, ...], float]] = [
    ("residual", Residual, IMAGE, 30.0),
    ("joined", lambda: Joined(1.0), IMAGE, 30.0),
    ("unlike", lambda: Joined(1000.0), IMAGE, 30.0),
    ("twice", Twice, (8, 4), 30.0),
    ("either", Either, (8, 4), 30.0),
    ("looped", Looped, (8, 4), 25.0),
    ("transposed", Transposed, IMAGE, 30.0),
    ("may lack a bias", MayLackBias, (8, 4), 30.0),
]


def quantized(model: nn.Module, shape: tuple[int, ...], config: Any = None) -> GraphModule:
    batches = [torch.randn(shape) * (-1) ** i for i in range(6)]
    return graphwright.quantize(model, config, batches, engine=None)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("name", "make", "shape", "least"), MODELS, ids=[each[0] for each in MODELS])
def test_what_is_quantized_is_near(name: str, make: Any, shape: tuple[int, ...], least: float) -> None:
    torch.manual_seed(0)
    model = make().eval()
    before = copy.deepcopy(model.state_dict())
    q = quantized(model, shape)
    x = torch.randn(shape)
    assert sqnr(model(x), q(x)) > least
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    assert type(model)(*([1.0] if isinstance(model, Joined) else [])).__class__ in type(q).__mro__
    assert any(row.decision == "static" for row in q.quantization.rows)
    x = torch.randn(shape[0] + 3, *shape[1:])
    assert sqnr(model(x), q(x)) > least


def test_each_part_of_unlike_values_is_kept() -> None:
    class Parts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right, self.last = nn.Conv2d(3, 4, 1), nn.Conv2d(3, 4, 1), nn.Conv2d(8, 8, 1, groups=8)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(torch.cat([self.left(x), self.right(x) * 1000], 1))

    torch.manual_seed(0)
    model = Parts().eval()
    q = quantized(model, IMAGE)
    x = torch.randn(IMAGE)
    expected, given = model(x), q(x)
    assert sqnr(expected[:, :4], given[:, :4]) > 20
    assert sqnr(expected[:, 4:], given[:, 4:]) > 20
    assert q.quantization["last"].decision == "float"
    assert "unlike ranges" in q.quantization["last"].reason


def test_a_module_that_is_called_twice_has_a_grid_for_each_call() -> None:
    torch.manual_seed(0)
    q = quantized(Twice().eval(), (8, 4))
    scales = [row.scale for row in q.quantization.rows]
    assert len(scales) == 2
    assert max(scales) > 20 * min(scales)  # type: ignore[type-var]
    assert len([each for each in q.modules() if isinstance(each, QuantizedLinear)]) == 1


def test_tied_weights_have_one_grid() -> None:
    torch.manual_seed(0)
    ids = torch.randint(0, 50, (4, 7))
    model = Tied().eval()
    q = graphwright.quantize(model, None, [ids], engine=None)
    assert torch.equal(q.embedding.weight, q.head.weight)
    assert torch.equal(q.embedding.weight_scale, q.head.weight_scale)
    assert sqnr(model(ids), q(ids)) > 30


def test_what_only_moves_values_keeps_their_grid() -> None:
    torch.manual_seed(0)
    gm = quantized(Residual().eval(), IMAGE)
    pool = next(node for node in gm.graph.nodes if node.target is F.max_pool2d)
    before, after = pool.args[0], next(iter(pool.users))
    assert before.target is dequantize and after.target is quantize
    assert before.args[1:] == after.args[1:]


@pytest.mark.parametrize(
    ("padding", "is_moved"),
    [(nn.ZeroPad2d((0, 1, 0, 1)), True), (nn.ConstantPad2d(1, 3.0), False), (nn.ReflectionPad2d(1), False)],
)
def test_zeros_around_a_value_keep_its_grid(padding: nn.Module, is_moved: bool) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU(), padding, nn.Conv2d(4, 4, 3)).eval()
    batches = [torch.randn(2, 3, 8, 8) for _ in range(2)]
    r = convert(calibrate(prepare(model, static_int8(), batches[0]), batches))
    writes = [node.args[1:] for node in r.graph.find_nodes(op="call_function", target=quantize)]
    assert len(writes) == (3 if is_moved else 2)
    assert len(set(writes)) == 2
    assert sqnr(model(batches[0]).detach(), r(batches[0])) > 30


def test_the_reference_is_what_fake_quantization_gives() -> None:
    torch.manual_seed(0)
    model = nn.Linear(16, 8).eval()
    q = quantized(model, (32, 16), static_int8(smooth=False, correct_bias=False))
    row = q.quantization.rows[0]
    x = torch.randn(32, 16)
    assert row.scale is not None and row.zero_point is not None
    rounded = torch.fake_quantize_per_tensor_affine(x, row.scale, row.zero_point, 0, 255)
    weight = fake_quantize_by(model.weight.detach(), weight_grid(model.weight, Scheme(torch.int8, PerAxis(0), True)))
    torch.testing.assert_close(q(x), F.linear(rounded, weight, model.bias), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("config", "least"),
    [(dynamic_int8(), 35), (dynamic_int8("tensor"), 30), (weight_only_int8(), 38), (weight_only_int4(32), 15)],
)
def test_what_needs_no_data(config: Any, least: float) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32)).eval()
    x = torch.randn(8, 64)
    q = graphwright.quantize(model, config, args=(x,), engine=None)
    assert sqnr(model(x), q(x)) > least


@pytest.mark.slow
@pytest.mark.parametrize("training", [False, True])
def test_a_function_is_captured(training: bool) -> None:
    layer, x = nn.Linear(16, 4), torch.randn(8, 16)
    prepared = prepare(lambda x: layer(x).relu(), static_int8(), x, training=training)
    prepared(x)
    quantized = convert(prepared.eval())
    assert sqnr(layer(x).relu(), quantized(x)) > 20 and quantized.quantization.rows[0].decision == "static"
    assert isinstance(graphwright.quantize(lambda x: layer(x), dynamic_int8(), args=(x,)), graphwright.GraphModule)


@pytest.mark.slow
def test_bias_correction_takes_the_mean_error_away() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3)).eval()
    batch = torch.randn(16, 3, 12, 12) + 1
    errors = []
    for correct in (False, True):
        coarse = Scheme(torch.int8, PerAxis(0), True, bits=4)
        config = dataclasses.replace(static_int8(correct_bias=correct), weight=coarse)
        q = graphwright.quantize(model, config, [batch], engine=None)
        errors.append((q(batch) - model(batch)).mean((0, 2, 3)).abs().max().item())
    assert errors[1] < errors[0] / 4


def test_rules() -> None:
    model = Residual().eval()
    x = torch.randn(IMAGE)
    mapping = (
        QConfigMapping()
        .set_global(static_int8())
        .set_module_name("conv3", None)
        .set_object_type(nn.Linear, weight_only_int8())
    )
    q = graphwright.quantize(model, mapping, [x], engine=None)
    assert type(q.conv3) is nn.Conv2d
    assert isinstance(q.conv1, QuantizedConv2d)
    assert q.quantization["conv3"].reason == "a rule leaves it in float"
    assert q.quantization["head"].decision == "weight"
    assert q.quantization["head"].rule == "object type Linear"


def test_files(tmp_path: Any) -> None:
    model = nn.Sequential(nn.Conv2d(3, 64, 3), nn.ReLU(), nn.Conv2d(64, 64, 3)).eval()
    q = quantized(model, IMAGE)
    graphwright.save(q, tmp_path / "q.gw")
    loaded = graphwright.load(tmp_path / "q.gw")
    x = torch.randn(IMAGE)
    assert torch.equal(loaded(x), q(x))
    assert str(loaded.quantization.explain()) == str(q.quantization.explain())
    graphwright.save(graphwright.trace(model, (x,)), tmp_path / "float.gw")
    weights = sum(value.numel() * value.element_size() for value in model.state_dict().values())
    own = sum(value.numel() * value.element_size() for value in q.state_dict().values())
    assert own <= 0.27 * weights
    copied = copy.deepcopy(q)
    assert torch.equal(copied(x), q(x))
    with pytest.raises(QuantizationError, match="quantized already"):
        prepare(q, static_int8(), x)


X = torch.randn(4, 8)


def linear() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 8)).eval()


REFUSED: list[tuple[str, Any]] = [
    ("no calibration data", lambda: graphwright.quantize(linear())),
    ("no batch of calibration data", lambda: calibrate(prepare(linear(), None, X), [])),
    ("gone through once", lambda: calibrate(prepare(linear(), None, X), iter([]))),
    ("has seen no data", lambda: convert(prepare(linear(), None, X))),
    ("NaN", lambda: graphwright.quantize(linear(), None, [X, X * float("nan")])),
    ("in training", lambda: graphwright.quantize(linear().train(), None, [X])),
    ("not prepared", lambda: calibrate(graphwright.trace(linear(), X), [X])),
    ("batches are one Tensor", lambda: calibrate(prepare(linear(), None, X), X)),
    ("calibration is one Tensor", lambda: graphwright.quantize(linear(), None, X)),
    ("calibration is one Sequential", lambda: graphwright.quantize(linear(), None, linear())),
    ("calibration is one int", lambda: graphwright.quantize(linear(), None, 3)),
    ("no layer has the module name 'o'", lambda: prepare(linear(), QConfigMapping().set_module_name("o", None), X)),
    ("layers are '0'", lambda: prepare(linear(), QConfigMapping().set_module_name_regex("1.*", None), X)),
    ("no regular expression", lambda: QConfigMapping().set_module_name_regex("(", None)),
    ("groups of 3 do not", lambda: prepare(linear(), QConfigMapping().set_module_name("0", weight_only_int4(3)), X)),
    ("no backend 'arm'", lambda: prepare(linear(), None, X, backend="arm")),
    ("activations of 4 bits", lambda: QConfig(Scheme(bits=4))),
    ("is not quantized", lambda: graphwright.trace(linear(), X).quantization.explain()),
    ("no layer has the path", lambda: graphwright.quantize(linear(), None, [X], engine=None).quantization["1"]),
]


@pytest.mark.parametrize(("text", "call"), REFUSED, ids=[each[0] for each in REFUSED])
def test_bad_input(text: str, call: Any) -> None:
    with pytest.raises(QuantizationError) as raised:
        call()
    assert text in str(raised.value)
    assert raised.value.fix


def test_groups_that_do_not_divide_are_of_8_bits() -> None:
    q = graphwright.quantize(linear(), weight_only_int4(3), args=(X,), engine=None)
    assert "groups of 3 do not divide 8 inputs" in q.quantization["0"].reason
    assert q.get_submodule("0").bits == 8


def test_masks_and_ids_are_never_observed() -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.k, self.out = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            scores = self.q(x) @ self.k(x).transpose(-1, -2)
            scores = scores + torch.where(mask, 0.0, torch.finfo(torch.float32).min)
            return self.out(scores.softmax(-1) @ x)

    torch.manual_seed(0)
    x, mask = torch.randn(2, 5, 8), torch.ones(2, 1, 5, dtype=torch.bool).tril()
    model = Masked().eval()
    q = graphwright.quantize(model, None, [(x, mask)], engine=None)
    assert sqnr(model(x, mask), q(x, mask)) > 30
    assert all(row.range is None or max(map(abs, row.range)) < 100 for row in q.quantization.rows)


@pytest.mark.slow
def test_layers_in_a_row_are_equalized() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, groups=2)).eval()
    with torch.no_grad():
        for parameter in model[0].parameters():
            parameter.mul_(torch.logspace(-2, 1, 8).reshape(-1, *[1] * (parameter.dim() - 1)))
        model[3].weight.mul_(torch.logspace(1, -2, 8).reshape(2, 1, 4).expand(2, 4, 4).reshape(8, 4, 1, 1))
    found = []
    for equalize in (False, True):
        q = quantized(model, IMAGE, static_int8(equalize=equalize))
        x = torch.randn(IMAGE)
        found.append(sqnr(model(x), q(x)))
    assert found[1] > found[0] + 5


class LinearBehindConv(nn.Module):
    """A linear layer along the width of images, of which there are as many columns as channels."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x).relu())


class PooledChannels(nn.Module):
    """Pooling along the outputs of a linear layer, of which it keeps the count."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(F.max_pool1d(self.first(x), 3, 1, 1))


@pytest.mark.slow
@pytest.mark.parametrize(("make", "shape"), [(LinearBehindConv, (4, 3, 8, 8)), (PooledChannels, (4, 5, 6))])
def test_layers_of_other_channels_are_not_equalized(make: Any, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    model, x = make().eval(), torch.randn(shape)
    with torch.no_grad():
        weight = model.first.weight
        weight.mul_(torch.logspace(-1, 1, 8).reshape(-1, *[1] * (weight.dim() - 1)))
    q = graphwright.quantize(model, static_int8(equalize=True, smooth=False), [x], engine=None)
    assert sqnr(model(x), q(x)) > 30


def test_quantize_in_place() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 30)).eval()
    before = copy.deepcopy(model)
    quantize_(model, weight_only_int4(32), lambda module, path: path == "0")
    x = torch.randn(4, 64)
    assert isinstance(model[0], QuantizedLinear) and type(model[2]) is nn.Linear
    assert sqnr(before(x), model(x)) > 15
    with pytest.raises(QuantizationError, match="in calibration"):
        quantize_(before, static_int8())
    with pytest.raises(QuantizationError, match="groups of 7"):
        quantize_(before, weight_only_int4(7), lambda module, path: True)
    assert type(before[0]) is nn.Linear


class Stateful(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("mean", torch.zeros(4))
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        self.mean = 0.9 * self.mean + x.mean(0)
        self.calls = self.calls + 1
        return self.layer(x + self.mean)


@pytest.mark.slow
@pytest.mark.parametrize("engine", [None, "torch"])
def test_state_is_as_it_was(engine: Any) -> None:
    torch.manual_seed(0)
    model, x = Stateful().eval(), torch.randn(8, 4)
    q = graphwright.quantize(model, None, [x, x * 2], engine=engine)
    for module in (model, q):
        assert (module.count, module.calls) == (0, 0) and not module.mean.any()
    for _ in range(3):
        assert sqnr(model(x), q(x)) > 25
    assert (model.count, q.count, q.calls) == (3, 3, 3)


class Elsewhere(nn.Module):
    """Counts in objects that it holds, and in global ones, and adds to a global tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.own = nn.Linear(4, 4), types.SimpleNamespace(calls=0)

    def forward(self, x: Tensor) -> Tensor:
        self.own.calls += 1
        COUNTS.inner.calls += 1
        TOTAL.add_(1)
        return self.layer(x) * COUNTS.inner.calls


COUNTS, TOTAL = types.SimpleNamespace(inner=types.SimpleNamespace(calls=0)), torch.zeros(2)


@pytest.mark.slow
@pytest.mark.parametrize("engine", [None, "torch"])
def test_what_is_outside_of_the_model_is_as_it_was(engine: Any) -> None:
    model, x = Elsewhere().eval(), torch.randn(8, 4)
    q = graphwright.quantize(model, None, [x, x * 2], engine=engine)
    assert (COUNTS.inner.calls, model.own.calls, TOTAL.tolist()) == (0, 0, [0, 0])
    assert sqnr(model.layer(x), q(x)) > 25 and COUNTS.inner.calls == 1
    COUNTS.inner.calls = 0
    TOTAL.zero_()


def test_values_may_be_called_as_methods_of_modules_are() -> None:
    class Moved(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x.to(torch.float32))

    model = Moved().eval()
    assert sqnr(model(X), graphwright.quantize(model, None, [X.double()], engine=None)(X.double())) > 25


class Product(nn.Module):
    """A layer as GPT-2 has it: its weight is (in, out)."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(inputs, outputs)), nn.Parameter(torch.randn(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return torch.addmm(self.bias, x.view(-1, x.shape[-1]), self.weight).view(*x.shape[:-1], -1)


@pytest.mark.slow
def test_products_with_parameters_are_layers() -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(Product(8, 16), nn.ReLU(), Product(16, 4)).eval(), torch.randn(3, 5, 8)
    q = graphwright.quantize(model, None, [x], engine=None)
    assert [(row.path, row.decision) for row in q.quantization.rows] == [("0", "static"), ("2", "static")]
    assert q.get_submodule("2").weight.shape == (4, 16)
    assert sqnr(model(x), q(x)) > 30
    assert type(model[0]) is Product
    twice = nn.Sequential(model[0], nn.Linear(16, 8), model[0]).eval()
    q = graphwright.quantize(twice, None, [x], engine=None)
    assert q.quantization["1"].decision == "static"
    assert sqnr(twice(x), q(x)) > 30


class Writes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x[:, 0] = 5.0
        y = self.first(x)
        x.mul_(2)
        x.view(-1, 2, 2).add_(1)
        return y, self.second(x), self.third(y)


@pytest.mark.slow
@pytest.mark.parametrize("config", [static_int8(), dynamic_int8(), weight_only_int8(algorithm="awq")])
def test_values_that_are_written_to_are_read_when_they_were(config: Any) -> None:
    torch.manual_seed(0)
    model, x = Writes().eval(), torch.randn(64, 4)
    q = graphwright.quantize(model, config, [x.clone(), x.clone()], args=(x.clone(),), engine=None)
    for one, other in zip(model(x.clone()), q(x.clone()), strict=True):
        assert sqnr(one, other) > 30
    decisions = [row.decision for row in q.quantization.rows]
    assert decisions == (["float", "float", "static"] if config.is_static else [decisions[0]] * 3)


class Remembers:
    """A cache, as those of decoders: each call of the model adds to it."""

    def __init__(self) -> None:
        self.values: list[Tensor] = []


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor, cache: Remembers) -> Tensor:
        cache.values.append(x)
        return self.layer(torch.cat(cache.values))


class ListDecoder(Decoder):
    def forward(self, x: Tensor, cache: Any) -> Tensor:
        cache.append(x)
        return self.layer(torch.cat(cache))


@pytest.mark.slow
@pytest.mark.parametrize("engine", [None, "torch"])
def test_lists_are_as_they_were(engine: Any) -> None:
    torch.manual_seed(0)
    model, x, cache = ListDecoder().eval(), torch.randn(40, 4), []
    q = graphwright.quantize(model, None, [(x, cache), (x * 2, cache)], engine=engine)
    assert not cache
    assert sqnr(model(x, []), q(x, [])) > 25


@pytest.mark.slow
@pytest.mark.parametrize("engine", [None, "torch"])
def test_arguments_are_as_they_were(engine: Any) -> None:
    torch.manual_seed(0)
    model, x, cache = Decoder().eval(), torch.randn(40, 4), Remembers()
    q = graphwright.quantize(model, None, [(x, cache), (x * 2, cache)], engine=engine)
    assert not cache.values
    assert sqnr(model(x, Remembers()), q(x, cache)) > 25
    assert len(cache.values) == 1


class PaddedConv(nn.Conv2d):
    """A convolution that pads by itself, as networks of TensorFlow do."""

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(F.pad(x, (0, 1, 0, 1)), self.weight, self.bias, self.stride)


@pytest.mark.slow
def test_weights_that_functions_read_leave_the_state_and_keep_their_names() -> None:
    model = nn.Sequential(PaddedConv(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 1)).eval()
    before = copy.deepcopy(model.state_dict())
    images = [torch.randn(2, 3, 8, 8) for _ in range(2)]
    q = graphwright.quantize(model, static_int8(), images, engine=None)
    assert [(row.path, row.decision) for row in q.quantization.rows] == [("0.conv2d", "static"), ("3", "static")]
    assert {name for name in q.state_dict() if name.endswith("weight")} == {"0.conv2d.weight", "3.weight"}
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    rules = QConfigMapping().set_global(static_int8()).set_module_name("0", None)
    q = graphwright.quantize(model, rules, images, engine=None)
    assert q.quantization["0.conv2d"].rule == "module name 0"
    torch.testing.assert_close(q(images[0]), model(images[0]), atol=0.1, rtol=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("is_calibrated", [False, True])
def test_prepared_modules_are_saved(is_calibrated: bool, tmp_path: Any) -> None:
    model = Residual().eval()
    batches = [torch.randn(2, 3, 16, 16) for _ in range(2)]
    mapping = QConfigMapping().set_global(static_int8()).set_object_type(nn.Linear, dynamic_int8())
    prepared = prepare(model, mapping, batches[0])
    if is_calibrated:
        calibrate(prepared, batches)
    assert graphwright.save(prepared, tmp_path / "prepared.gw", strict=True) == []
    loaded = graphwright.load(tmp_path / "prepared.gw", allow=["tests"])
    if not is_calibrated:
        calibrate(prepared, batches), calibrate(loaded, batches)
    one, other = convert(prepared), convert(loaded)
    assert one.quantization.rows == other.quantization.rows
    assert torch.equal(one(batches[0]), other(batches[0]))


@pytest.mark.slow
@pytest.mark.parametrize("config", [static_int8(), dynamic_int8("token")], ids=["static", "dynamic"])
def test_quantized_modules_go_to_torch(config: Any) -> None:
    """torch.jit.script reads sources, and cannot say what those of layers do; what follows an example can."""
    x = torch.randn(2, 3, 16, 16)
    q = graphwright.quantize(Residual().eval(), config, [x], engine=None)
    assert torch.equal(torch.jit.trace(q, x)(x), q(x))
    assert torch.equal(torch.export.export(q, (x,)).module()(x), q(x))
    with pytest.raises(ValueError, match="Unknown type annotation"):
        torch.jit.script(q)


def test_contradicting_rules_are_named() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)).eval()
    mapping = QConfigMapping().set_global(static_int8()).set_module_name("0", dynamic_int8()).set_module_name("0", None)
    rows = graphwright.quantize(model, mapping, [torch.randn(4, 8)], engine=None).quantization.rows
    assert rows[0].decision == "float" and "the last counts" in rows[0].reason
    assert rows[1].decision == "static" and "the last counts" not in rows[1].reason


@pytest.mark.parametrize("make", [list, lambda: iter(())], ids=["none", "an iterator that is gone through"])
def test_no_batch_has_a_way_out(make: Any) -> None:
    with pytest.raises(QuantizationError, match="no batch of calibration data") as caught:
        graphwright.quantize(nn.Linear(4, 4).eval(), static_int8(), make())
    assert "dynamic_int8()" in str(caught.value)


def test_a_batch_that_fails_is_told_by_its_number() -> None:
    batches = [torch.randn(2, 4), torch.randn(2, 5)]
    with pytest.raises(QuantizationError, match=r"batch 1 fails: mat1 and mat2(.|\n)*fix: give batches like"):
        graphwright.quantize(nn.Linear(4, 4).eval(), static_int8(), batches)
