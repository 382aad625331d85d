"""Optimized modules: which kernels and engines they call, and that they compute what the module does after any change.

What is the fastest is not asked here: tests say which kernel or engine is to win.
"""

from __future__ import annotations

import collections
import copy
import io
import os
import pickle
import re
import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.torch_releases import HAS_ONNX
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook

import graphwright
from graphwright import GraphModule, optimize_for_inference, trace
from graphwright.engines import ENGINES, OptimizedReport, choosing, optimizing
from graphwright.engines.measure import Measured
from graphwright.errors import CaptureError, ExportError, PassError, QuantizationError
from graphwright.runtime import entry_points_of


class Block(nn.Module):
    """A residual block with batch norms, a pooled linear layer and activations in place."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(4, 8, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 8, 1)
        self.norm2 = nn.BatchNorm2d(8)
        self.act = nn.ReLU(inplace=True)
        self.head = nn.Linear(8, 3)
        for norm in (self.norm1, self.norm2):
            nn.init.uniform_(norm.running_mean, -1, 1)
            nn.init.uniform_(norm.running_var, 0.5, 2)
            nn.init.uniform_(norm.weight, 0.5, 2)
            nn.init.uniform_(norm.bias, -1, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.act(self.norm1(self.conv1(x)))
        z = self.norm2(self.conv2(y))
        z += y
        y = self.act(z)
        return self.head(y.mean((2, 3)))


class Mixed(nn.Module):
    """Linear layers that read the same, a dropout, sizes, and a branch on data."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(8, 8) for _ in range(3))
        self.drop = nn.Dropout(0.5)
        self.out = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))

    def forward(self, x: Tensor) -> Tensor:
        batch, length = x.size(0), x.size(1)
        q, k, v = (layer(x).view(batch, length, 2, 4).transpose(1, 2) for layer in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, 8)
        y = self.drop(self.out(y)) + x
        if y.sum() > 0:
            y = torch.relu(self.out(y) - y) * 2
        return y.softmax(-1)


X, W = torch.randn(2, 4, 8, 8), torch.randn(2, 5, 8)
EXAMPLES: dict[type[nn.Module], Tensor] = {Block: X, Mixed: W}


@pytest.fixture(params=[Block, Mixed])
def model(request: pytest.FixtureRequest) -> nn.Module:
    torch.manual_seed(0)
    made: nn.Module = request.param().eval()
    return made


def example(model: nn.Module) -> Tensor:
    return EXAMPLES[type(model)]


def own(model: nn.Module) -> GraphModule:
    return optimize_for_inference(model, example(model), engines=("torch",))


def counts(gm: GraphModule) -> tuple[int, int]:
    """How many things were packed, and how often an engine was opened, since the code was written."""
    held = entry_points_of(gm)["forward"].held
    return held.packs.count, sum(region.opened[0] for region in held.regions)


def assert_same(gm: nn.Module, model: nn.Module, *args: Any) -> None:
    with torch.no_grad():
        torch.testing.assert_close(gm(*args), model(*args), rtol=1e-4, atol=1e-5)


# ---- kernels

LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(6, 8), (5, 6)),
    "linear without bias": (lambda: nn.Linear(6, 8, bias=False), (5, 6)),
    "linear of three dimensions": (lambda: nn.Linear(6, 8), (2, 5, 6)),
    "linear and relu": (lambda: nn.Sequential(nn.Linear(6, 8), nn.ReLU()), (5, 6)),
    "linear and gelu": (lambda: nn.Sequential(nn.Linear(6, 8), nn.GELU()), (5, 6)),
    "linear and tanh gelu": (lambda: nn.Sequential(nn.Linear(6, 8), nn.GELU("tanh")), (2, 5, 6)),
    "linear and silu in place": (lambda: nn.Sequential(nn.Linear(6, 8), nn.SiLU(inplace=True)), (5, 6)),
    "conv": (lambda: nn.Conv2d(6, 8, 3, stride=2, padding=1, dilation=2), (2, 6, 9, 9)),
    "conv in groups": (lambda: nn.Conv2d(6, 6, 3, padding=(1, 0), groups=6, bias=False), (1, 6, 9, 9)),
    "conv of pixels": (lambda: nn.Conv2d(6, 8, 1), (2, 6, 9, 7)),
    "conv and norm": (lambda: nn.Sequential(nn.Conv2d(6, 8, 3), nn.BatchNorm2d(8)), (2, 6, 9, 9)),
    "conv, norm and hardswish": (
        lambda: nn.Sequential(nn.Conv2d(6, 8, 1), nn.BatchNorm2d(8), nn.Hardswish()), (2, 6, 9, 9)
    ),
    "conv and hardsigmoid": (lambda: nn.Sequential(nn.Conv2d(6, 8, 3), nn.Hardsigmoid()), (2, 6, 9, 9)),
    "conv and relu6": (lambda: nn.Sequential(nn.Conv2d(6, 8, 3), nn.ReLU6()), (2, 6, 9, 9)),
    "conv and sigmoid": (lambda: nn.Sequential(nn.Conv2d(6, 8, 3), nn.Sigmoid()), (2, 6, 9, 9)),
    "conv, norm without scale": (
        lambda: nn.Sequential(nn.Conv2d(6, 8, 3), nn.BatchNorm2d(8, affine=False)), (2, 6, 9, 9)
    ),
    "linear of a row": (lambda: nn.Sequential(nn.Linear(6, 8), nn.ReLU()), (1, 6)),
    "linear of a vector": (lambda: nn.Linear(6, 8, bias=False), (6,)),
    "linear of a row in three dimensions": (lambda: nn.Sequential(nn.Linear(6, 8), nn.ReLU()), (1, 1, 6)),
    "conv of a pixel": (
        lambda: nn.Sequential(nn.Conv2d(6, 8, 1), nn.BatchNorm2d(8), nn.Hardsigmoid()), (1, 6, 1, 1)
    ),
    "conv and linear": (lambda: nn.Sequential(nn.Conv2d(6, 8, 3), nn.Flatten(), nn.Linear(8, 4)), (2, 6, 3, 3)),
}  # fmt: skip
KERNELS = {
    "torch transposed": r"linear\(",
    "oneDNN": "torch.ops.mkldnn._.*_pointwise",
    "addmm": "torch.addmm|torch.mm",
    "addmm with relu": "torch._addmm_activation",
    "addmv": r"torch.addmv|torch.mv",
    "MKL packed": "_mkl_linear",
    "torch channels last": "torch.conv2d",
}


@pytest.mark.sampled(9)
@pytest.mark.parametrize("kernel", list(KERNELS))
@pytest.mark.parametrize("name", list(LAYERS))
def test_each_kernel_computes_the_layer(name: str, kernel: str, prefer: Callable[..., None]) -> None:
    made, shape = LAYERS[name]
    torch.manual_seed(0)
    layer, x = made().eval(), torch.randn(shape)
    prefer(kernel, "torch")
    gm = optimize_for_inference(layer, x, engines=("torch",))
    assert_same(gm, layer, x)
    report = gm.report
    assert isinstance(report, OptimizedReport)
    if any(part.runs_on == kernel for part in report.parts):
        assert re.search(KERNELS[kernel], gm.code.partition("def forward_calling_modules")[0])
        assert counts(gm)[0] > 0 or kernel == "addmv"  # which reads weights of linear layers as they are
    assert gm(x).stride() == layer(x).stride()


@pytest.mark.parametrize("name", ["linear and relu", "conv, norm and hardswish", "linear of a row"])
def test_what_is_measured_are_the_calls_of_a_kernel_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made, shape = LAYERS[name]
    packed, measured = list[str](), list[str]()
    original = choosing._Now.packed
    monkeypatch.setattr(choosing._Now, "packed", lambda self, *args: packed.append("") or original(self, *args))

    def fastest(calls: Mapping[str, Callable[[], Any]], seconds: float, before: Any = None) -> Measured:
        before = len(packed)
        expected = calls["torch"]()
        for kernel, call in calls.items():
            for _ in range(2):
                torch.testing.assert_close(call(), expected, rtol=1e-4, atol=1e-5)
            measured.append(kernel)
        assert len(packed) == before
        return Measured("torch", dict.fromkeys(calls, 1.0))

    monkeypatch.setattr(choosing, "fastest", fastest)
    optimize_for_inference(made().eval(), torch.randn(shape), engines=("torch",))
    assert len(measured) >= 3


def test_a_block_is_three_kernels(prefer: Callable[..., None]) -> None:
    model = Block().eval()
    prefer("oneDNN", "torch")
    gm = own(model)
    code = gm.code.partition("def forward_calling_modules")[0]
    assert (code.count("_convolution_pointwise"), code.count("_linear_pointwise")) == (2, 1)
    assert "batch_norm" not in code and "relu(" not in code and "iadd" not in code and "+=" not in code
    assert_same(gm, model, X)


def test_linear_layers_that_read_the_same_are_one(prefer: Callable[..., None]) -> None:
    model = Mixed().eval()
    prefer("as one", "torch")
    gm = own(model)
    code = gm.code.partition("def forward_calling_modules")[0]
    assert "split" in code and code.count("linear(") == 5
    assert_same(gm, model, W)
    with torch.no_grad():
        model.k.weight.mul_(2)
    assert_same(gm, model, W)


class Gated(nn.Module):
    """Two layers that read the same, one of them with an activation, in some order."""

    def __init__(self, run: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.gate, self.up, self.run = nn.Linear(8, 12), nn.Linear(8, 12), run

    def forward(self, x: Tensor) -> Tensor:
        return self.run(self, x)


GATES: dict[str, tuple[Callable[[Any, Tensor], Tensor], bool]] = {
    "activation first": (lambda m, x: F.silu(m.gate(x)) * m.up(x), True),
    "activation last": (lambda m, x: m.up(x) * F.gelu(m.gate(x)), True),
    "both layers before": (lambda m, x: (lambda g, u: F.relu(g) * u)(m.gate(x), m.up(x)), True),
    "two activations": (lambda m, x: torch.tanh(m.gate(x)) - torch.sigmoid(m.up(x)), True),
    "read besides": (lambda m, x: (lambda g: F.relu(g) + g)(m.gate(x)) * m.up(x), True),
    "written between": (lambda m, x: F.silu(m.gate(x)) * m.up(x.mul_(2)), False),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", GATES)
@pytest.mark.parametrize("kernel", ["addmm", "oneDNN", "torch"])
def test_layers_with_activations_are_one(name: str, kernel: str, prefer: Callable[..., None]) -> None:
    run, is_one = GATES[name]
    prefer("as one", kernel, "torch")
    model = Gated(run).eval()
    for rows in (1, 3):
        x = torch.randn(rows, 8)
        gm = optimize_for_inference(model, x.clone(), engines=("torch",))
        assert ("split" in gm.code.partition("def forward_calling_modules")[0]) is is_one
        with torch.no_grad():
            torch.testing.assert_close(gm(x.clone()), model(x.clone()), rtol=1e-4, atol=1e-5)


def test_numbers_that_come_of_sizes_are_literals(prefer: Callable[..., None]) -> None:
    prefer("torch")
    code = own(Mixed().eval()).code.partition("def forward_calling_modules")[0]
    assert "size(" not in code and "(2, 5, 2, 4)" in code and "dropout" not in code


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "forward",
    [
        lambda self, x: (y := self.conv1(x), self.act(y))[1] + y,  # the value is read again
        lambda self, x: self.act(self.conv1(x)) + self.conv1(x),
        lambda self, x: self.conv1(x).add_(1).view(2, -1),  # a view of an image
        lambda self, x: (self.conv1(x), x.mul_(2))[0] + x.sum(),  # what the layer read is written to
        lambda self, x: self.conv1(x) + torch.ones(1),  # not of the same size
        lambda self, x: self.conv1(x) + self.conv1(x).transpose(2, 3),
        lambda self, x: self.conv2(self.conv1(x)) + self.conv2(self.conv1(x)),
    ],
    ids=["read twice", "called twice", "view", "written", "broadcast", "strides", "shared"],
)
@pytest.mark.parametrize("kernel", ["oneDNN", "addmm", "torch channels last"])
def test_what_only_looks_like_a_layer_stays_right(
    forward: Callable[[Any, Tensor], Tensor], kernel: str, prefer: Callable[..., None]
) -> None:
    class Odd(Block):
        pass

    Odd.forward = forward  # type: ignore[method-assign,assignment]
    model = Odd().eval()
    prefer(kernel, "torch")
    gm = optimize_for_inference(model, X.clone(), engines=("torch",))
    with torch.no_grad():
        one, other = X.clone(), X.clone()
        torch.testing.assert_close(gm(one), model(other), rtol=1e-4, atol=1e-4)
    assert torch.equal(one, other)


# ---- the world changes


def _load(gm: nn.Module, model: nn.Module) -> None:
    torch.manual_seed(1)
    state = {k: torch.rand_like(v) + 0.5 if v.is_floating_point() else v for k, v in gm.state_dict().items()}
    for each in {id(gm): gm, id(model): model}.values():
        each.load_state_dict(state)


def _write(gm: nn.Module, model: nn.Module) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5)


def _replace(gm: nn.Module, model: nn.Module) -> None:
    for each in (gm, model):
        torch.manual_seed(3)
        for module in list(each.modules()):
            for name, parameter in list(module._parameters.items()):
                if parameter is not None:
                    setattr(module, name, nn.Parameter(torch.rand_like(parameter)))


def _data(gm: nn.Module, model: nn.Module) -> None:
    for parameter in model.parameters():
        parameter.data = parameter.data * 2


def _there_and_back(gm: nn.Module, model: nn.Module) -> None:
    for each in (gm, model):
        each.to(torch.float16).to(torch.float32)


CHANGES = {"load_state_dict": _load, "in place": _write, "replaced": _replace, "data": _data, "to": _there_and_back}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("change", list(CHANGES))
def test_a_changed_weight_is_packed_anew(change: str, model: nn.Module, prefer: Callable[..., None]) -> None:
    prefer("oneDNN", "as one", "torch")
    gm, x = own(model), example(model)
    assert_same(gm, model, x)
    before = counts(gm)[0]
    assert_same(gm, model, x)
    assert counts(gm)[0] == before
    CHANGES[change](gm, model)
    assert_same(gm, model, x)
    assert counts(gm)[0] > before


def test_only_what_changed_is_packed_anew(prefer: Callable[..., None]) -> None:
    model = Block().eval()
    prefer("oneDNN", "torch")
    gm = own(model)
    assert_same(gm, model, X)
    before = counts(gm)[0]
    model.norm1.running_mean.add_(1)
    assert_same(gm, model, X)
    assert counts(gm)[0] == before + 2  # the weight and the bias of the first convolution


class Sized(nn.Module):
    """A number that comes of the size of a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 6)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        return y / y.size(-1)


@pytest.mark.parametrize("kernel", ["torch", "oneDNN", "addmm", "addmv"])
def test_a_weight_of_another_size_runs_the_general_program(kernel: str, prefer: Callable[..., None]) -> None:
    prefer(kernel, "torch")
    model, x = Sized().eval(), torch.randn(1 if kernel == "addmv" else 3, 4)
    gm = optimize_for_inference(model, x, engines=("torch",))
    assert_same(gm, model, x)
    model.layer.weight.data, model.layer.bias.data = torch.randn(5, 4), torch.randn(5)
    assert_same(gm, model, x)
    gm.layer.weight = model.layer.weight = nn.Parameter(torch.randn(2, 4))
    gm.layer.bias = model.layer.bias = nn.Parameter(torch.randn(2))
    assert_same(gm, model, x)
    with pytest.raises(RuntimeError):
        gm.double()(x)


@pytest.mark.slow
def test_functional_call_sees_other_tensors(model: nn.Module, prefer: Callable[..., None]) -> None:
    prefer("oneDNN", "torch")
    gm, x = own(model), example(model)
    other = {name: parameter * 3 for name, parameter in model.named_parameters()}
    with torch.no_grad():
        torch.testing.assert_close(
            torch.func.functional_call(gm, other, (x,)), torch.func.functional_call(model, other, (x,)),
            rtol=1e-3, atol=1e-4,
        )  # fmt: skip
    assert_same(gm, model, x)


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.parametrize("shape", [(1,), (7,), (0,)])
def test_other_batches_run_the_general_program(
    shape: tuple[int, ...], model: nn.Module, prefer: Callable[..., None]
) -> None:
    prefer("oneDNN", "torch")
    gm, x = own(model), torch.randn(*shape, *example(model).shape[1:])
    before = counts(gm)
    assert_same(gm, model, x)
    assert counts(gm) == before


def test_other_sizes_dtypes_and_strides(prefer: Callable[..., None]) -> None:
    model = Block().eval()
    prefer("oneDNN", "torch")
    gm = own(model)
    assert_same(gm, model, torch.randn(2, 4, 5, 9))
    assert_same(gm, model, X.transpose(2, 3))
    assert_same(gm, model, X.contiguous(memory_format=torch.channels_last))
    assert_same(gm.double(), model.double(), X.double())


@pytest.mark.slow
def test_gradients_are_those_of_the_model(model: nn.Module, prefer: Callable[..., None]) -> None:
    prefer("oneDNN", "torch")
    x = example(model)
    gm = own(model)
    for each, given in ((model, x.clone().requires_grad_()), (gm, x.clone().requires_grad_())):
        each.zero_grad()
        each(given).square().sum().backward()
        if each is model:
            expected = [given.grad, *[parameter.grad for parameter in model.parameters()]]
    found = [given.grad, *[parameter.grad for parameter in gm.parameters()]]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_only_the_input_wants_a_gradient(prefer: Callable[..., None]) -> None:
    prefer("oneDNN", "torch")
    model = Block().eval().requires_grad_(False)
    gm, x = own(model), X.clone().requires_grad_()
    gm(x).sum().backward()
    assert x.grad is not None
    with torch.no_grad():
        assert not gm(x).requires_grad


def test_an_example_with_a_history(prefer: Callable[..., None]) -> None:
    prefer("oneDNN", "torch")
    model, x = Block().eval(), X.clone().requires_grad_() * 2
    gm = optimize_for_inference(model, x, engines=("torch",))
    assert_same(gm, model, x)
    torch.testing.assert_close(gm(x), model(x))


def test_training_runs_the_general_program(prefer: Callable[..., None]) -> None:
    prefer("oneDNN", "torch")
    model = Block().eval()
    gm, twin = own(model), copy.deepcopy(model)
    gm.train(), twin.train()
    assert_same(gm, twin, X)
    assert torch.equal(gm.norm1.running_mean, twin.norm1.running_mean)
    gm.eval(), twin.eval()
    assert_same(gm, twin, X)


class OwnNorm(nn.BatchNorm2d):
    """A batch norm of the user's own, which does not count its batches."""

    def forward(self, x: Tensor) -> Tensor:
        return F.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, self.training, 0.5, self.eps
        )


class CountingNorm(OwnNorm):
    """One that counts."""

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.num_batches_tracked.add_(1)
        return F.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, self.training, 0.5, self.eps
        )


@pytest.mark.sampled(3)
@pytest.mark.parametrize("engines", [("torch",), pytest.param("auto", marks=pytest.mark.slow)])
@pytest.mark.parametrize(("norm", "is_folded"), [(OwnNorm, False), (CountingNorm, True), (nn.BatchNorm2d, True)])
def test_statistics_that_training_writes_are_seen(
    norm: Callable[[int], nn.Module], is_folded: bool, engines: Any, prefer: Callable[..., None]
) -> None:
    prefer("onnxruntime", "oneDNN", "torch")
    model = nn.Sequential(nn.Conv2d(4, 8, 3), norm(8), nn.ReLU(), nn.Conv2d(8, 8, 1), nn.Tanh()).eval()
    gm = optimize_for_inference(model, X, engines=engines)
    assert ("batch_norm" in gm.code.partition("def forward_calling_modules")[0]) is not is_folded
    assert_same(gm, model, X)
    model.train()(X)
    model.eval()
    assert_same(gm, model, X)


class Scaled(nn.Module):
    """Multiplies by a plain number."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


@pytest.mark.parametrize("kernel", ["oneDNN", "torch"])
def test_numbers_that_are_changed_are_seen(kernel: str, prefer: Callable[..., None]) -> None:
    prefer(kernel, "torch")
    model = nn.Sequential(nn.Conv2d(4, 8, 3), nn.Sequential(Scaled(2.0)), nn.ReLU()).eval()
    gm = optimize_for_inference(model, X, engines=("torch",))
    assert_same(gm, model, X)
    gm.get_submodule("1.0").factor = model[1][0].factor = 3.0
    assert_same(gm, model, X)
    gm.get_submodule("1")._modules["0"] = model[1][0] = Scaled(4.0)
    assert_same(gm, model, X)
    gm._modules["1"] = model[1] = nn.Sequential(Scaled(5.0))
    assert_same(gm, model, X)


def test_the_first_convolution_gives_channels_last(
    prefer: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is fastest by itself: pooling images whose channels come first takes twenty times as long."""
    prefer("torch")
    pool = nn.MaxPool2d(3, 2, 1)
    layouts: list[bool] = []
    model = nn.Sequential(nn.Conv2d(4, 8, 3), nn.ReLU(), pool, nn.Conv2d(8, 8, 1)).eval()
    gm = optimize_for_inference(model, X, engines=("torch",))
    max_pool2d = torch.max_pool2d

    def noted(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        layouts.append(x.is_contiguous(memory_format=torch.channels_last))
        return max_pool2d(x, *args, **kwargs)

    monkeypatch.setattr(torch, "max_pool2d", noted)
    assert_same(gm, model, X)
    assert layouts == [True, False], gm.code


def test_dropout_follows_its_flag(prefer: Callable[..., None]) -> None:
    prefer("oneDNN", "torch")
    model = Mixed().eval()
    gm = own(model)
    for each in (gm, model):
        each.get_submodule("drop").train()
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(0)
        expected = model(W)
        torch.manual_seed(0)
        torch.testing.assert_close(gm(W), expected)


def test_hooks_are_called(prefer: Callable[..., None]) -> None:
    prefer("oneDNN", "torch")
    model, seen = Block().eval(), list[int]()
    gm = own(model)
    handle = gm.get_submodule("head").register_forward_hook(lambda *args: seen.append(1))
    assert_same(gm, model, X)
    handle.remove()
    assert_same(gm, model, X)
    assert len(seen) == 1
    handle = register_module_forward_hook(lambda *args: seen.append(1))
    try:
        assert_same(gm, model, X)
    finally:
        handle.remove()
    assert len(seen) > 10


def test_modes_and_transforms_see_the_general_program(prefer: Callable[..., None]) -> None:
    prefer("oneDNN", "torch")
    model = Block().eval()
    gm = own(model)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(gm(X), model(X))
    with torch.no_grad():
        stacked = torch.randn(3, *X.shape)
        torch.testing.assert_close(torch.vmap(gm)(stacked), torch.vmap(model)(stacked), rtol=1e-4, atol=1e-5)
        weight = torch.func.jacfwd(lambda bias: torch.func.functional_call(gm, {"head.bias": bias}, (X,)))
        assert torch.equal(weight(model.head.bias)[0], torch.eye(3))
    with torch.inference_mode():
        torch.testing.assert_close(gm(X), model(X), rtol=1e-4, atol=1e-5)


def test_weights_that_are_inference_tensors(prefer: Callable[..., None]) -> None:
    prefer("oneDNN", "torch")
    with torch.inference_mode():
        model = Block().eval()
        gm = own(model)
        torch.testing.assert_close(gm(X), model(X), rtol=1e-4, atol=1e-5)
        model.head.weight.mul_(2)
        torch.testing.assert_close(gm(X), model(X), rtol=1e-4, atol=1e-5)


def test_an_edit_of_the_graph_is_optimized(prefer: Callable[..., None]) -> None:
    prefer("oneDNN", "torch")
    model = Block().eval()
    gm = own(model)
    head = next(node for node in gm.graphs["forward"].nodes if node.target == "head")
    with head.graph.inserting_after(head):
        neg = head.graph.call_function(torch.neg, (head,))
    head.replace_all_uses_with(neg)
    neg.args = (head,)
    with torch.no_grad():
        torch.testing.assert_close(gm(X), -model(X), rtol=1e-4, atol=1e-5)


class Counter(nn.Module):
    """Writes to its weight, through a view, and counts its calls; and to its input."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("calls", torch.zeros(1))
        self.steps = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.steps = self.steps + 1
        y = torch.relu(self.layer(x) + x)
        self.layer.weight.view(-1).mul_(0.5)
        x.mul_(2)
        return self.layer(y) + self.calls


class Views(nn.Module):
    """A view of an image on one side of a branch, and a number that is written and read again."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 8, 3)
        self.steps = 0

    def forward(self, x: Tensor) -> Tensor:
        self.steps = self.steps + 1
        if x.sum() > 0:
            y = self.conv(x).relu().view(2, -1)
        else:
            y = self.conv(-x).transpose(1, 2).reshape(2, -1)
        return y * self.steps


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["oneDNN", "torch channels last", "torch"])
def test_views_and_numbers_that_are_written(kernel: str, prefer: Callable[..., None]) -> None:
    prefer(kernel, "torch")
    model = Views().eval()
    gm, twin = optimize_for_inference(model, -X.abs(), engines=("torch",)), copy.deepcopy(model)
    for x in (X.abs(), -X.abs(), X.abs()):
        assert_same(gm, twin, x)
    assert gm.steps == twin.steps == 3 and model.steps == 0


@pytest.mark.parametrize("names", [("oneDNN",), ("addmm",), ("onnxruntime",)])
def test_what_the_program_writes_is_as_it_was(names: tuple[str, ...], prefer: Callable[..., None]) -> None:
    prefer(*names, "torch")
    model, x = Counter().eval().requires_grad_(False), torch.randn(3, 4)
    twin, given = copy.deepcopy(model), x.clone()
    random = torch.get_rng_state()
    gm = optimize_for_inference(model, x)
    assert torch.equal(x, given) and torch.equal(random, torch.get_rng_state())
    torch.testing.assert_close(model.state_dict(), twin.state_dict())
    for _ in range(3):
        one = torch.randn(3, 4)
        other = one.clone()
        torch.testing.assert_close(gm(one), twin(other), rtol=1e-4, atol=1e-5)
        assert torch.equal(one, other)
    torch.testing.assert_close(gm.state_dict(), twin.state_dict())


class Keeps(nn.Module):
    """Keeps something of each call, of which there are not many: places of an embedding run out."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.places, self.place = nn.Linear(4, 4), nn.Embedding(20, 4), 0
        self.last: collections.deque[float] = collections.deque(maxlen=3)
        self.seen = collections.Counter[str]()

    def forward(self, x: Tensor) -> Tensor:
        self.last.append(x.mean().item())
        self.seen["calls"] += 1
        places = torch.arange(self.place, self.place + x.size(0))
        self.place += x.size(0)
        return self.linear(x) + self.places(places) + sum(self.last) / self.seen["calls"]


def test_what_a_program_keeps_is_as_it_was_and_does_not_run_out() -> None:
    model = Keeps().eval()
    twin = copy.deepcopy(model)
    gm: Any = optimize_for_inference(model, torch.ones(3, 4), engines=("torch",))
    assert gm.place == model.place == 0 and not gm.last and not gm.seen
    for i in range(5):
        torch.testing.assert_close(gm(torch.full((3, 4), i / 2)), twin(torch.full((3, 4), i / 2)))
    assert (gm.place, gm.last, gm.seen) == (15, twin.last, twin.seen)


# ---- copies, processes, threads


def _pickled(gm: GraphModule) -> GraphModule:
    buffer = io.BytesIO()
    pickle.dump(gm, buffer)
    buffer.seek(0)
    return pickle.load(buffer)


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.parametrize("duplicate", [copy.deepcopy, _pickled, copy.copy])
def test_copies_pack_for_themselves(
    duplicate: Callable[[Any], Any], model: nn.Module, prefer: Callable[..., None]
) -> None:
    prefer("oneDNN", "torch")
    gm, x = own(model), example(model)
    assert_same(gm, model, x)
    before = counts(gm)
    twin = duplicate(gm)
    assert type(twin).__name__ == type(model).__name__ and isinstance(twin, type(model))
    assert_same(twin, model, x)
    assert counts(gm) == before
    assert counts(twin)[0] > 0
    assert "forward_inlined" in twin.code and list(twin.state_dict()) == list(model.state_dict())
    assert isinstance(twin.report, OptimizedReport) and twin.report.program == gm.report.program
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.add_(1)
    if duplicate is not copy.copy:
        assert_same(gm, model, x)
        assert not torch.allclose(twin(x), gm(x))


@pytest.mark.slow
def test_a_fork_packs_for_itself(model: nn.Module, prefer: Callable[..., None]) -> None:
    prefer("oneDNN", "torch")
    gm, x = own(model), example(model)
    assert_same(gm, model, x)
    before = counts(gm)[0]
    read, write = os.pipe()
    child = os.fork()
    if child == 0:  # never returns
        status = 1
        try:
            assert_same(gm, model, x)
            os.write(write, str(counts(gm)[0]).encode())
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert int(os.read(read, 100)) == 2 * before
    os.close(read), os.close(write)


def test_threads_pack_once(prefer: Callable[..., None]) -> None:
    prefer("oneDNN", "torch")
    model = Block().eval()
    gm = copy.deepcopy(own(model))
    assert gm.code
    with torch.no_grad():
        expected, found = model(X), []

    def run() -> None:
        with torch.no_grad():
            found.append(gm(X))

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    for each in found:
        torch.testing.assert_close(each, expected, rtol=1e-4, atol=1e-5)
    assert counts(gm)[0] == len(entry_points_of(gm)["forward"].held.packs._others)


@pytest.mark.slow
def test_compilers_get_the_general_program(prefer: Callable[..., None]) -> None:
    prefer("oneDNN", "torch")
    model = Block().eval()
    gm = own(model)
    assert_same(torch.compile(gm, backend="eager"), model, X)


def test_no_file_holds_it(prefer: Callable[..., None], tmp_path: Any) -> None:
    prefer("oneDNN", "torch")
    with pytest.raises(ExportError, match="optimize what is loaded"):
        graphwright.save(own(Block().eval()), tmp_path / "net.gw")


# ---- engines


class Masked(nn.Module):
    """A side of a branch that does not run with what the other branch gives first."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        mask = None if keep.all() else keep
        y = self.layer(x)
        return y if mask is None else self.layer(y * mask.to(y.dtype)[:, None])


def test_a_side_that_fails_with_the_example_is_left_as_it_is(prefer: Callable[..., None]) -> None:
    prefer("addmm", "torch")
    model, x, keep = Masked().eval(), torch.randn(3, 4), torch.ones(3, dtype=torch.bool)
    gm = optimize_for_inference(model, (x, keep), engines=("torch",))
    for mask in (keep, ~keep, torch.tensor([True, False, True])):
        assert torch.allclose(gm(x, mask), model(x, mask), atol=1e-6)


needs_onnxruntime = pytest.mark.skipif(
    not (ENGINES["onnxruntime"].is_installed and HAS_ONNX), reason="without ONNX Runtime, or graphwright.onnx"
)


def regions_in(code: str) -> list[str]:
    """The calls of engines in some code."""
    return [found[0] for found in re.finditer(r"run_region(_\d+)?\(", code)]


class Attends(nn.Module):
    """Fills with what follows from a dtype that nothing fixes."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        scores = self.query(x) @ self.key(x).transpose(-1, -2)
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(-1)
        return (scores @ self.value(x)).to(self.query.weight.dtype)


@pytest.mark.slow
@needs_onnxruntime
def test_limits_of_numbers_split_no_region(prefer: Callable[..., None]) -> None:
    prefer("onnxruntime")
    model, x, mask = Attends().eval(), torch.randn(2, 5, 8), torch.eye(5) > 0
    gm = optimize_for_inference(model, (x, mask))
    assert len(regions_in(gm.code.partition("def forward_calling_modules")[0])) == 1
    assert torch.allclose(gm(x, mask), model(x, mask), atol=1e-5)


@pytest.mark.slow
@needs_onnxruntime
def test_a_model_without_branches_is_one_region(prefer: Callable[..., None]) -> None:
    prefer("onnxruntime")
    model = Block().eval()
    gm = optimize_for_inference(model, X)
    code = gm.code.partition("def forward_calling_modules")[0]
    assert len(regions_in(code)) == 1
    assert "conv2d" not in code
    assert_same(gm, model, X)
    assert counts(gm)[1] == 1
    assert [part.runs_on for part in (gm.report.program, *gm.report.parts)] == ["onnxruntime"] * 2
    assert all(part.numerics.decibels > 80 for part in gm.report.parts)
    _write(gm, model)
    assert_same(gm, model, X)
    assert counts(gm)[1] == 2
    assert_same(gm, model, X[:1])
    twin = copy.deepcopy(gm)
    assert_same(twin, model, X)
    assert counts(gm)[1] == 2


@pytest.mark.slow
@needs_onnxruntime
def test_sessions_follow_the_number_of_threads_and_are_of_one_process(prefer: Callable[..., None]) -> None:
    prefer("onnxruntime")
    model, threads = Block().eval(), torch.get_num_threads()
    gm = optimize_for_inference(model, X)
    (session,) = entry_points_of(gm)["forward"].held.packs._held.made
    assert session._threads == threads
    try:
        torch.set_num_threads(threads + 1)
        assert_same(gm, model, X)
        assert session._threads == threads + 1
    finally:
        torch.set_num_threads(threads)
    twin = _pickled(gm)
    assert_same(twin, model, X)
    assert (counts(gm)[1], counts(twin)[1]) == (1, 1)
    assert entry_points_of(twin)["forward"].held.packs._held.made[0] is not session


class Kinds(nn.Module):
    """Values of several dtypes, an empty one and one without dimensions."""

    def forward(self, x: Tensor, i: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        return x * 2, i + 1, b.logical_not(), x > 0, x.sum(), (x * 9).to(torch.uint8), x[:0] + 1, x.t() + 1


@pytest.mark.slow
@needs_onnxruntime
@pytest.mark.parametrize("by_dlpack", [True, False])
def test_tensors_of_all_kinds_go_to_a_session(by_dlpack: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from graphwright.onnx import onnxruntime_engine

    if by_dlpack and not onnxruntime_engine._BY_DLPACK:
        pytest.skip("this release takes arrays of numpy alone")
    monkeypatch.setattr(onnxruntime_engine, "_BY_DLPACK", by_dlpack)
    x, i, b = torch.randn(2, 3), torch.arange(4), torch.tensor([True, False])
    model = Kinds()
    session = onnxruntime_engine.open_program(trace(model, (x, i, b)), (x, i, b), 1)
    first, expected = session(x, i, b), model(x, i, b)
    others = (torch.randn(3, 2).t(), torch.arange(8)[::2], ~b), (torch.randn(2, 3, requires_grad=True), i, b)
    for args in others:
        with torch.no_grad():
            for given, wanted in zip(session(*args), model(*args), strict=True):
                assert given.dtype is wanted.dtype and not given.requires_grad
                torch.testing.assert_close(given, wanted)
    for given, wanted in zip(first, expected, strict=True):  # a later call writes to none of them
        torch.testing.assert_close(given, wanted)


@pytest.mark.slow
@needs_onnxruntime
def test_threads_share_a_session() -> None:
    from graphwright.onnx.onnxruntime_engine import open_program

    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)).eval()
    inputs = [torch.randn(3, 8) for _ in range(8)]
    session, wrong = open_program(trace(model, inputs[0]), (inputs[0],), torch.get_num_threads()), []

    def call(x: Tensor) -> None:
        with torch.no_grad():
            expected = model(x)
        wrong.extend(1 for _ in range(200) if not torch.allclose(session(x)[0], expected, atol=1e-5))

    threads = [threading.Thread(target=call, args=(x,)) for x in inputs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.slow
@needs_onnxruntime
def test_control_flow_stays_between_regions(prefer: Callable[..., None]) -> None:
    prefer("onnxruntime")
    model = Mixed().eval()
    gm = optimize_for_inference(model, W)
    code = gm.code.partition("def forward_calling_modules")[0]
    assert len(regions_in(code)) == 1
    assert "    if " in code.partition(regions_in(code)[0])[2]
    for scale in (1, -1, 3):
        assert_same(gm, model, W * scale)


def test_an_engine_that_fails_is_not_used(prefer: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    prefer("inductor")
    monkeypatch.setattr("graphwright.engines.inductor.open_program", lambda *args: 1 / 0)
    gm = optimize_for_inference(Block().eval(), X, engines=("torch", "inductor"))
    assert gm.report.program.runs_on == "inlined"
    assert any("inductor is not used: ZeroDivisionError" in reason for reason in gm.report.program.why)
    assert "inductor is not used" in str(gm.report)


def test_what_is_off_is_not_used(prefer: Callable[..., None]) -> None:
    prefer("oneDNN")
    model = Block().eval()
    gm = optimize_for_inference(model, X, engines=("torch",), tolerance=0.0)
    assert any("off by" in reason for reason in (*gm.report.program.why, *[w for p in gm.report.parts for w in p.why]))
    with torch.no_grad():
        assert torch.equal(gm(X), model(X))


def test_the_report_is_a_table(prefer: Callable[..., None]) -> None:
    prefer("oneDNN", "torch")
    model = Block().eval()
    report = own(model).report
    lines = str(report).partition("runs on:\n")[2].splitlines()
    assert lines[0].split()[:4] == ["part", "runs", "on", "us"]
    rows = [line for line in lines[1:-1] if not line.startswith("    ")]
    assert len(rows) == 1 + len(report.parts)
    assert rows[1].startswith("1 x conv 2x4x8x8 -> 8, 3x3, padding 1x1, bias, relu, channels first ")
    assert rows[2].startswith("1 x conv 2x8x8x8 -> 8, 1x1, bias, sum, relu ")  # what kernels gave: channels last
    for part in (report.program, *report.parts):
        assert part.numerics is not None and part.numerics.largest < 1e-4 and part.numerics.decibels > 80
    assert all(row.split("  ")[0] == part.part for row, part in zip(rows[1:], report.parts, strict=True))


def test_numerics_of_half_precision_are_told(prefer: Callable[..., None]) -> None:
    prefer("bf16 oneDNN", "torch")
    gm = optimize_for_inference(nn.Linear(64, 64).eval(), torch.randn(8, 64), engines=("torch",), precision="bf16")
    for part in gm.report.parts:
        if part.runs_on == "bf16 oneDNN":
            assert part.numerics is not None and 30 < part.numerics.decibels < 70


def test_layers_in_ways_that_the_example_does_not_take_have_no_numerics(prefer: Callable[..., None]) -> None:
    class Either(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other = nn.Linear(4, 4), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.one(x) if x.sum() > 0 else self.other(x).sum(-1, keepdim=True).expand(-1, 4)

    prefer("addmm", "torch")
    gm = optimize_for_inference(Either().eval(), torch.ones(2, 4), engines=("torch",))
    told = {part.weights: part.numerics is not None for part in gm.report.parts}
    assert told == {("one.weight",): True, ("other.weight",): False}


# ---- bad input

BAD: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "unknown engine": (
        lambda: optimize_for_inference(Block().eval(), X, engines=("tensorrt",)), PassError, "no engine 'tensorrt'"
    ),
    "a name alone": (
        lambda: optimize_for_inference(Block().eval(), X, engines="torch"), PassError, "a tuple of names"
    ),
    "precision": (
        lambda: optimize_for_inference(Block().eval(), X, precision="int8"), PassError, "no precision 'int8'"  # type: ignore[arg-type]
    ),
    "no module": (lambda: optimize_for_inference(3, X), CaptureError, "int"),  # type: ignore[arg-type]
    "wrong keyword": (lambda: optimize_for_inference(Block().eval(), X, {"y": 1}), CaptureError, "y"),
    "wrong keyword of a captured module": (
        lambda: optimize_for_inference(trace(Block().eval(), X), X, {"y": 1}), PassError, "argument 'y'"
    ),
    "optimized already": (
        lambda: optimize_for_inference(own(Block().eval()), X), PassError, "has a form already"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", list(BAD))
def test_bad_input_is_told(case: str, prefer: Callable[..., None]) -> None:
    prefer("oneDNN", "torch")
    call, kind, message = BAD[case]
    with pytest.raises(kind, match=message):
        call()


def test_an_engine_that_is_not_installed_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphwright.engines.regions.importlib.util.find_spec", lambda name: None)
    with pytest.raises(PassError, match=r"'onnxruntime' is not installed\s+fix: pip install graphwright\[onnx\]"):
        optimize_for_inference(Block().eval(), X, engines=("torch", "onnxruntime"))
    assert "onnxruntime" not in optimize_for_inference(Block().eval(), X).code


# ---- decisions


def test_decisions_are_kept(prefer: Callable[..., None], tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pathlib.Path.home", lambda: tmp_path)
    prefer("oneDNN", "torch")
    model = Block().eval()
    assert not list(tmp_path.iterdir())
    optimize_for_inference(model, X, engines=("torch",), keep_decisions=True)
    folder = tmp_path / ".cache" / "graphwright"
    (path,) = folder.iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700 and path.stat().st_mode & 0o777 == 0o600

    def only_programs(calls: Mapping[str, Any], seconds: float, before: Any = None) -> Measured:
        assert "inlined" in calls
        return Measured("torch", {})

    for module in (choosing, optimizing):
        monkeypatch.setattr(module, "fastest", only_programs)
    gm = optimize_for_inference(model, X, engines=("torch",), keep_decisions=True)
    assert {part.runs_on for part in gm.report.parts} == {"oneDNN"}
    assert_same(gm, model, X)


@pytest.mark.slow
@pytest.mark.parametrize("text", ["", "[]", '{"about": 1}', '{"kernels": {"linear": ["rm"]}}', "\x00"])
def test_what_cannot_be_read_is_measured(
    text: str, prefer: Callable[..., None], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pathlib.Path.home", lambda: tmp_path)
    prefer("oneDNN", "torch")
    model = Block().eval()
    optimize_for_inference(model, X, engines=("torch",), keep_decisions=True)
    (path,) = (tmp_path / ".cache" / "graphwright").iterdir()
    path.write_text(text)
    assert_same(optimize_for_inference(model, X, engines=("torch",), keep_decisions=True), model, X)
    assert "oneDNN" in path.read_text()


def test_a_folder_that_others_can_enter_is_not_used(
    prefer: Callable[..., None], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pathlib.Path.home", lambda: tmp_path)
    prefer("oneDNN", "torch")
    folder = tmp_path / ".cache" / "graphwright"
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    optimize_for_inference(Block().eval(), X, engines=("torch",), keep_decisions=True)
    assert not list(folder.iterdir())


def test_sizes_that_a_program_gives(prefer: Callable[..., None]) -> None:
    class Sizes(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, dict[str, torch.Size]]:
            return torch.zeros(x.shape) + x, {"shape": x.shape}

    prefer("torch")
    gm = optimize_for_inference(Sizes().eval(), X, engines=("torch",))
    for x in (X, X[:1]):
        shape = gm(x)[1]["shape"]
        assert shape == x.shape and type(shape) is torch.Size


def test_assertions_that_hold_for_these_sizes_are_left_out(prefer: Callable[..., None]) -> None:
    class Asserting(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            torch._assert(x.shape[1] == 4, "four channels")
            return x * 2

    prefer("torch")
    gm = optimize_for_inference(Asserting().eval(), X, engines=("torch",))
    assert "torch._assert(" not in gm.code.partition("def forward_calling_modules")[0]
    with pytest.raises(AssertionError, match="four channels"):
        gm(X[:, :3])


class Written(nn.Module):
    """Attention that is written out."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return ((q @ k.transpose(-2, -1)) / 2.0).softmax(-1) @ v


def test_attention_is_one_operation(prefer: Callable[..., None]) -> None:
    prefer("torch")
    q, k, v = torch.randn(3, 2, 4, 5, 4).unbind()
    gm = optimize_for_inference(Written().eval(), (q, k, v), engines=("torch",))
    code = gm.code.partition("def forward_calling_modules")[0]
    statement = code.strip().splitlines()[-1]
    assert "scaled_dot_product_attention" in statement and "softmax" not in statement
    assert_same(gm, Written(), q, k, v)
    assert_same(gm, Written(), q[:1], k[:1], v[:1])


class Counting(nn.Module):
    calls, total = 0, torch.zeros(())

    def forward(self, x: Tensor) -> Tensor:
        Counting.calls += 1
        Counting.total = Counting.total + x.sum()
        return x * Counting.total


class Drawing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(1)

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.randn(x.shape, generator=self.generator)


def test_what_a_program_writes_outside_of_it_stays() -> None:
    gm = trace(Counting().eval(), torch.ones(2))
    before = Counting.total
    optimize_for_inference(gm, torch.ones(2), engines=())
    assert Counting.calls == 0 and Counting.total is before

    model = Drawing().eval()
    optimize_for_inference(trace(model, torch.ones(2)), torch.ones(2), engines=())
    assert torch.equal(model.generator.get_state(), torch.Generator().manual_seed(1).get_state())


class Spelling(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def spell(self, x: Tensor) -> list[int]:
        return [i for i in self.layer(x).argmax(1).tolist() if str(i).isdigit()]

    def forward(self, x: Tensor) -> list[int]:
        return self.spell(x)


def test_a_method_that_is_one_node_is_quantized_with_the_rest() -> None:
    gm = trace(Spelling().eval(), torch.eye(3), leaf_functions=[Spelling.spell])
    assert graphwright.quantize(gm, calibration=[torch.eye(3)])(torch.eye(3)) == gm(torch.eye(3))


class OwnGradients(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.autograd.grad(self.layer(x).sum(), self.layer.weight)[0]


def test_a_program_that_needs_gradients_is_refused() -> None:
    gm = trace(OwnGradients().eval(), torch.ones(1, 2))
    with pytest.raises(PassError, match="the program computes gradients, and fails where nothing records them"):
        optimize_for_inference(gm, torch.ones(1, 2), engines=())
    with pytest.raises(QuantizationError, match="the program computes gradients, and integers have none"):
        graphwright.quantize(gm, calibration=[torch.ones(1, 2)])
