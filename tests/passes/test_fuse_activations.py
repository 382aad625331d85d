"""Layers, batch norms and activations become torch.ao's fused modules by the table of its FX mode."""

from __future__ import annotations

import copy
import importlib
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.fx
import torch.nn.functional as F
from tests.passes.checks import Program, settled
from torch import Tensor, nn

from graphwright import GraphModule, symbolic_trace, trace
from graphwright.analysis import verify
from graphwright.errors import PassError, TrainingModeError
from graphwright.passes import FuseActivations
from graphwright.passes.fusion import fuse_activations

LINE, IMAGE, VOLUME, ROWS = torch.randn(2, 4, 8), torch.randn(2, 4, 8, 8), torch.randn(1, 4, 5, 5, 5), torch.randn(3, 4)
CLOSE = {"rtol": 1e-4, "atol": 1e-5}  # a batch norm that was folded

LAYERS: dict[str, tuple[Callable[[], nn.Module], Callable[[], nn.Module], Tensor]] = {
    "conv1d": (lambda: nn.Conv1d(4, 4, 3), lambda: nn.BatchNorm1d(4), LINE),
    "conv2d": (lambda: nn.Conv2d(4, 4, 3), lambda: nn.BatchNorm2d(4), IMAGE),
    "conv3d": (lambda: nn.Conv3d(4, 4, 3), lambda: nn.BatchNorm3d(4), VOLUME),
    "linear": (lambda: nn.Linear(4, 4), lambda: nn.BatchNorm1d(4), ROWS),
    "conv_transpose1d": (lambda: nn.ConvTranspose1d(4, 4, 3), lambda: nn.BatchNorm1d(4), LINE),
    "conv_transpose2d": (lambda: nn.ConvTranspose2d(4, 4, 3), lambda: nn.BatchNorm2d(4), IMAGE),
    "conv_transpose3d": (lambda: nn.ConvTranspose3d(4, 4, 3), lambda: nn.BatchNorm3d(4), VOLUME),
}
ACTIVATIONS = (None, nn.ReLU, nn.LeakyReLU, nn.Tanh, nn.Sigmoid, nn.ReLU6)
SEQUENCES = [
    (kind, with_norm, activation)
    for kind in LAYERS
    for with_norm in (False, True)
    for activation in ACTIVATIONS
    if with_norm or activation is not None
]


# Where a batch norm was folded, and something else follows.
DIFFERENT: dict[Any, list[str]] = {
    ("linear", nn.Tanh, True): ["LinearTanh"],
    **{("linear", nn.ReLU, onednn): ["LinearReLU"] for onednn in (False, True)},
    **{(f"conv_transpose{n}d", nn.ReLU, onednn): [f"ConvTranspose{n}d", "ReLU"]
       for n in (2, 3) for onednn in (False, True)},
}  # fmt: skip


def called(gm: Any) -> list[str]:
    modules = dict(gm.named_modules())
    return [type(modules[node.target]).__name__ for node in gm.graph.nodes if node.op == "call_module"]


def sequence(kind: str, with_norm: bool, activation: Any) -> tuple[nn.Module, Tensor]:
    layer, norm, x = LAYERS[kind]
    parts = [layer(), *([norm()] if with_norm else []), *([activation()] if activation is not None else [])]
    return settled(nn.Sequential(*parts)).train(), x


def of_torch(model: nn.Module, training: bool, onednn: bool) -> list[str] | None:
    """What torch.ao makes of a model; None where it raises an exception."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fx = importlib.import_module("torch.ao.quantization.quantize_fx")
        config = importlib.import_module("torch.ao.quantization.backend_config")
        backend = config.get_onednn_backend_config() if onednn else config.get_native_backend_config()
        try:
            if training:
                return called(fx._fuse_fx(torch.fx.symbolic_trace(model), True, backend_config=backend))
            return called(fx.fuse_fx(model, backend_config=backend))
        except Exception:  # which it raises itself
            return None


@pytest.mark.sampled(7)
@pytest.mark.parametrize(("kind", "with_norm", "activation"), SEQUENCES)
@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("onednn", [False, True], ids=["native", "onednn"])
def test_the_table_is_that_of_torch(kind: str, with_norm: bool, activation: Any, training: bool, onednn: bool) -> None:
    model, x = sequence(kind, with_norm, activation)
    model.train(training)
    gm = symbolic_trace(model)
    before = copy.deepcopy(model.state_dict())
    passes = FuseActivations(training=training, onednn=onednn)
    count = passes.run(gm)
    gm.graph.lint()
    assert passes.run(gm) == 0
    assert count == len(model) - len(called(gm))
    report = verify(model, gm, [x], modes=("train", "eval") if training else ("eval",), **CLOSE)
    if not training or not with_norm:
        assert report.ok, str(report)
    else:
        check_training(model, gm, x)
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in before.items())
    expected = of_torch(copy.deepcopy(model), training, onednn)
    if with_norm and not training and (kind, activation, onednn) in DIFFERENT:
        expected = DIFFERENT[kind, activation, onednn]
    if expected is None:
        assert training and with_norm  # torch.ao refuses transposed convolutions, and linear, batch norm, leaky ReLU
    else:
        assert called(gm) == expected


def check_training(model: nn.Module, gm: GraphModule, x: Tensor) -> None:
    """The values, gradients and statistics of a step in training, and the values afterwards."""
    copies = [copy.deepcopy(each) for each in (model, gm)]  # one by one: they share modules
    for each in copies:
        each.train()
        (each(x) ** 2).sum().backward()
    one, other = copies
    assert torch.allclose(one.eval()(x), other.eval()(x))
    grads = [[parameter.grad for parameter in each.parameters()] for each in copies]
    assert len(grads[0]) == len(grads[1])
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))
    buffers = [list(each.buffers()) for each in copies]
    assert all(torch.equal(a, b) for a, b in zip(*buffers, strict=True))


SPELLINGS = [
    pytest.param(F.relu, id="function"),
    pytest.param(torch.relu, id="torch.relu"),
    pytest.param(lambda x: x.relu(), id="method"),
    pytest.param(lambda x: x.relu_(), id="method in place"),
    pytest.param(lambda x: F.relu(x, inplace=True), id="function in place"),
    pytest.param(nn.ReLU(inplace=True), id="module in place"),
]


@pytest.mark.parametrize("relu", SPELLINGS)
@pytest.mark.parametrize("training", [False, True])
def test_a_relu_joins_in_every_spelling(relu: Any, training: bool) -> None:
    model = Program(lambda m, x: m.relu(m.norm(m.conv(x))), conv=nn.Conv2d(4, 4, 3), norm=nn.BatchNorm2d(4), relu=relu)
    settled(model).train(training)
    for gm in (symbolic_trace(model), trace(model, (IMAGE,))):
        assert FuseActivations(training=training).run(gm) == 2
        assert called(gm) == ["ConvBnReLU2d" if training else "ConvReLU2d"]
        if training:
            check_training(model, gm, IMAGE)
        else:
            assert verify(model, gm, [IMAGE], **CLOSE)


def test_settings_of_functions_are_kept() -> None:
    model = Program(lambda m, x: F.leaky_relu(m.linear(x), 0.4), linear=nn.Linear(4, 4))
    gm = symbolic_trace(model)
    assert FuseActivations(onednn=True).run(gm) == 1
    assert gm.linear[1].negative_slope == 0.4
    assert verify(model, gm, [ROWS], modes=("train", "eval"))


def test_parameters_stay_the_very_objects() -> None:
    model = nn.Sequential(nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    gm = symbolic_trace(model)
    FuseActivations(training=True).run(gm)
    assert [id(parameter) for parameter in gm.parameters()] == [id(parameter) for parameter in model.parameters()]
    assert [name for name, _ in gm.named_parameters()] == ["0.0.weight", "0.0.bias", "0.1.weight", "0.1.bias"]


def test_modules_in_several_places_are_fused_once() -> None:
    model = Program(
        lambda m, x: m.act(m.layer(m.act(m.layer(x)))) + m.other(m.layer(x)),
        layer=nn.Linear(4, 4), act=nn.ReLU(), other=nn.Sigmoid(),
    )  # fmt: skip
    gm = symbolic_trace(model)
    assert FuseActivations().run(gm) == 2
    assert called(gm) == ["LinearReLU", "LinearReLU", "Linear", "Sigmoid"]
    assert len({node.target for node in gm.graph.nodes if node.op == "call_module"}) == 3
    assert verify(model, gm, [ROWS], modes=("train", "eval"))


def hooked(module: nn.Module) -> nn.Module:
    module.register_forward_hook(lambda module, args, output: output + 1)
    return module


def between(m: Any, x: Tensor) -> Tensor:
    first = m.norm(m.conv(x))
    total = m.norm(x[..., :6, :6])
    return m.relu(first) + total


ALONE = [
    pytest.param(lambda m, x: (lambda y: m.relu(y) + y)(m.conv(x)), {}, id="another reader"),
    pytest.param(lambda m, x: m.relu(m.conv(x)), {"conv": hooked(nn.Conv2d(4, 4, 3))}, id="a hook"),
    pytest.param(lambda m, x: m.relu(m.conv(x) + 1), {}, id="something between"),
    pytest.param(lambda m, x: m.conv(m.relu(x)), {}, id="before it"),
    pytest.param(lambda m, x: m.relu(m.conv(x)), {"conv": nn.ConvTranspose2d(4, 4, 3)}, id="transposed"),
    pytest.param(lambda m, x: m.relu(m.conv(x)), {"relu": nn.GELU()}, id="not in the table"),
    pytest.param(lambda m, x: (lambda y: (x.mul_(2), m.relu(y))[1])(m.conv(x)), {}, id="a write between"),
]


@pytest.mark.parametrize(("program", "modules"), ALONE)
@pytest.mark.parametrize("training", [False, True])
def test_what_stays(program: Any, modules: dict[str, nn.Module], training: bool) -> None:
    gm = symbolic_trace(Program(program, **{"conv": nn.Conv2d(4, 4, 3), "relu": nn.ReLU(), **modules}))
    before = gm.code
    assert FuseActivations(training=training, onednn=True).run(gm) == 0
    assert gm.code == before


def statistics_between(m: Any, x: Tensor) -> Tensor:
    """The batch norm sees the other value first."""
    first = m.conv(x)
    other = m.norm(x * 3)
    return m.norm(first).sum() + other.sum()


def test_statistics_are_counted_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the broken twin: what stands between is not looked at."""
    model = Program(statistics_between, conv=nn.Conv2d(4, 4, 3), norm=nn.BatchNorm2d(4))
    gm = symbolic_trace(model)
    assert FuseActivations(training=True).run(gm) == 0
    monkeypatch.setattr(fuse_activations, "_is_closed", lambda *_: True)
    assert FuseActivations(training=True).run(gm) == 1
    with pytest.raises(AssertionError):
        check_training(model, gm, IMAGE)


def test_a_function_of_another_class_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken twin: an activation of another class counts."""
    monkeypatch.setitem(fuse_activations._FUNCTIONS, "sigmoid", nn.ReLU)
    monkeypatch.setattr(fuse_activations, "is_untouched", lambda module: True)
    model = Program(lambda m, x: torch.sigmoid(m.conv(x)), conv=nn.Conv2d(4, 4, 3))
    gm = symbolic_trace(model)
    assert FuseActivations().run(gm) == 1
    assert not verify(model, gm, [IMAGE])


def test_batch_norms_in_training_are_refused_for_inference() -> None:
    gm = symbolic_trace(nn.Sequential(nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.ReLU()))
    before = gm.code
    with pytest.raises(TrainingModeError, match="eval"):
        FuseActivations().run(gm)
    assert gm.code == before


def test_a_torch_without_fused_modules_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib, "import_module", lambda name: (_ for _ in ()).throw(ImportError(name)))
    with pytest.raises(PassError, match="has no torch"):
        FuseActivations().run(symbolic_trace(nn.Sequential(nn.ReLU())))


def test_in_the_bodies_of_branches() -> None:
    def run(m: Any, x: Tensor) -> Tensor:
        if x.sum() > 0:
            return torch.relu(m.linear(x))
        return x

    model = Program(run, linear=nn.Linear(4, 4))
    gm = trace(model, (ROWS,))
    assert FuseActivations().run(gm) == 1
    assert verify(model, gm, [ROWS, ROWS - 9, ROWS + 9], modes=("train", "eval"))
