"""Parts around convolutions run with channels last: the same values, the same strides outside, few conversions."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.passes.checks import Program, train_alike
from torch import Tensor, nn

from graphwright import GraphModule, symbolic_trace, trace
from graphwright.analysis import verify
from graphwright.passes import PropagateChannelsLast, ShapeProp
from graphwright.passes.memory import propagate_channels_last

X = torch.randn(2, 4, 8, 8)
CLOSE = {"rtol": 1e-4, "atol": 1e-4}  # other kernels


def conv(inputs: int = 4, outputs: int = 4, **options: Any) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, padding=1, **options)


def noted(model: nn.Module, capture: Callable[[nn.Module], Any] = symbolic_trace, x: Tensor = X) -> GraphModule:
    gm = capture(model)
    ShapeProp(gm).propagate(x)
    return gm


def conversions(gm: GraphModule) -> tuple[int, int]:
    """How often values are brought to channels last, and back."""
    formats = [node.kwargs.get("memory_format") for node in gm.graph.nodes if node.op == "call_method"]
    return formats.count(torch.channels_last), formats.count(torch.contiguous_format)


def outputs(result: Any) -> list[Tensor]:
    return [result] if isinstance(result, Tensor) else list(result)


def check(model: nn.Module, changes: int, expected: tuple[int, int], options: Any = None) -> GraphModule:
    """Run the pass on both captures: count, conversions, values, gradients, strides, and that nothing is left to do."""
    passes = options or PropagateChannelsLast()
    before = repr(model), [(name, id(value), value.stride()) for name, value in model.named_parameters()]
    captures = noted(model), noted(model, lambda each: trace(each, (X,)))
    for gm in captures:
        assert passes.run(gm) == changes, gm.code
        gm.graph.lint()
        assert conversions(gm) == expected, gm.code
        assert list(gm.state_dict()) and set(gm.state_dict()) == set(model.state_dict())
        cases = [X, X[:1], X.clone().requires_grad_()]
        for grads in (False, True):
            report = verify(model, gm, cases[2:] if grads else cases[:2], modes=("train", "eval"), grads=grads, **CLOSE)
            assert report.ok, f"{report}\n{gm.code}"
        strides = [[each.stride() for each in outputs(copy.deepcopy(side)(X.clone()))] for side in (model, gm)]
        assert strides[0] == strides[1]
        assert passes.run(gm) == 0
        ShapeProp(gm).propagate(X)
        assert passes.run(gm) == 0
    assert (repr(model), [(name, id(value), value.stride()) for name, value in model.named_parameters()]) == before
    return captures[0]


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = conv(bias=False), conv(bias=False)
        self.norm, self.norm2, self.relu = nn.BatchNorm2d(4), nn.BatchNorm2d(4), nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.norm(self.one(x)))
        out = self.norm2(self.two(out))
        out += x
        return self.relu(out)


class Network(nn.Module):
    """Residual blocks, pools, and a head that views."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.pool = conv(4, 4, stride=2), nn.MaxPool2d(2)
        self.blocks = nn.Sequential(Residual(), Residual())
        self.average, self.head = nn.AdaptiveAvgPool2d(1), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.average(self.blocks(self.pool(F.relu(self.stem(x)))))
        return self.head(x.view(x.shape[0], -1))


class SqueezeAndExcite(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.down, self.up, self.two = conv(), nn.Conv2d(4, 2, 1), nn.Conv2d(2, 4, 1), conv()

    def forward(self, x: Tensor) -> Tensor:
        x = self.one(x)
        gate = torch.sigmoid(self.up(F.silu(self.down(F.adaptive_avg_pool2d(x, 1)))))
        return self.two(x * gate)


def in_blocks(m: Any, x: Tensor) -> Tensor:
    """What enters and leaves is read inside and outside of the block."""
    with torch.no_grad():
        first = m.a(x)
    return m.b(first) + m.a(x) + first.flatten(1).sum()


PARTS = [
    pytest.param(Program(in_blocks, a=conv(), b=conv()), 3, (1, 2), id="with blocks"),
    pytest.param(Network(), 5, (1, 1), id="a network"),
    pytest.param(SqueezeAndExcite(), 4, (1, 1), id="squeeze and excite"),
    pytest.param(nn.Sequential(conv(), nn.ReLU(), conv(), nn.Flatten()), 2, (1, 1), id="a chain"),
    pytest.param(nn.Sequential(conv(), nn.GroupNorm(2, 4), conv()), 0, (0, 0), id="parts of one convolution"),
    pytest.param(nn.Sequential(conv(), conv(), nn.GroupNorm(2, 4), conv(), conv()), 4, (2, 2), id="two parts"),
    pytest.param(nn.Sequential(conv(), nn.Dropout(0.5), conv(), conv()), 2, (1, 1), id="random masks stay outside"),
    pytest.param(Program(lambda m, x: (lambda y: (m.b(y), y.flatten(2), y.size(0) * y))(m.a(x)), a=conv(), b=conv()),
                 2, (1, 3), id="values that are read outside"),
    pytest.param(Program(lambda m, x: torch.cat([m.a(x), m.b(x), x], 1), a=conv(), b=conv()), 2, (1, 1), id="joined"),
    pytest.param(Program(lambda m, x: F.interpolate(m.b(m.a(x)), scale_factor=2, mode="bilinear"), a=conv(), b=conv()),
                 2, (1, 1), id="interpolated"),
    pytest.param(Program(lambda m, x: m.b(F.relu_(m.a(x))) * 0.5 + m.scale, a=conv(), b=conv(),
                         scale=nn.Parameter(torch.randn(1, 4, 1, 1))), 2, (1, 1), id="a parameter joins"),
    pytest.param(nn.Sequential(conv(), nn.ConvTranspose2d(4, 3, 2, stride=2)), 2, (1, 1), id="transposed"),
    pytest.param(nn.Sequential(conv(groups=4), nn.Conv2d(4, 5, 1), nn.Hardswish()), 2, (1, 1), id="depthwise"),
]  # fmt: skip


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("model", "changes", "expected"), PARTS)
def test_parts_of_programs(model: nn.Module, changes: int, expected: tuple[int, int]) -> None:
    check(model, changes, expected)


def test_weights_are_copies_in_channels_last_under_their_names() -> None:
    model = nn.Sequential(conv(), nn.ReLU(), conv())
    gm = check(model, 2, (1, 1))
    assert gm.get_submodule("0").weight.is_contiguous(memory_format=torch.channels_last)
    assert gm.get_submodule("0").weight is not model[0].weight
    assert gm.get_submodule("0").bias is model[0].bias
    seen: list[bool] = []
    for name in ("0", "1", "2"):
        gm.get_submodule(name).register_forward_hook(
            lambda module, args, result: seen.append(result.is_contiguous(memory_format=torch.channels_last))
        )
    gm(X)
    assert seen == [True, True, True]


def test_how_many_convolutions_are_worth_it() -> None:
    check(nn.Sequential(conv(), nn.ReLU()), 1, (1, 1), PropagateChannelsLast(at_least=1))
    check(nn.Sequential(conv(), nn.ReLU(), conv()), 0, (0, 0), PropagateChannelsLast(at_least=3))


def tied() -> nn.Module:
    model = nn.Sequential(conv(), nn.ReLU(), conv())
    model[2].weight = model[0].weight
    return model


def test_tied_and_shared_weights_stay_one() -> None:
    gm = check(tied(), 2, (1, 1))
    assert gm.get_submodule("0").weight is gm.get_submodule("2").weight
    model = Program(lambda m, x: m.a(m.a(x)), a=conv())
    assert len(list(check(model, 2, (1, 1)).parameters())) == 2
    model = Program(lambda m, x: m.b(m.a(x)) * m.a.weight.sum(), a=conv(), b=conv())
    gm = noted(model)
    assert PropagateChannelsLast().run(gm) == 2
    assert gm.a.weight is model.a.weight


def hooked() -> nn.Module:
    layer = conv()
    layer.register_forward_hook(lambda module, args, output: output + 1)
    return nn.Sequential(layer, conv())


def writes_to_input(m: Any, x: Tensor) -> Tensor:
    first = m.a(x)
    x.view(-1).mul_(2)
    return m.b(first) + m.a(x)


def writes_to_value(m: Any, x: Tensor) -> Tensor:
    first = m.a(x)
    second = m.b(first)
    first[:, 0] = 0.0
    return second + first


def views_what_is_written(m: Any, x: Tensor) -> Tensor:
    first = m.a(x)
    part = first[:, :2]
    return m.b(first.relu_()).sum() + part.sum()


ALONE = [
    pytest.param(lambda: Program(writes_to_input, a=conv(), b=conv()), id="a write to what enters"),
    pytest.param(lambda: Program(writes_to_value, a=conv(), b=conv()), id="a write to what leaves"),
    pytest.param(lambda: Program(views_what_is_written, a=conv(), b=conv()), id="a view of what is written inside"),
    pytest.param(hooked, id="a hook"),
    pytest.param(lambda: nn.Sequential(conv(padding_mode="reflect"), conv()), id="padded by a function"),
    pytest.param(lambda: Program(lambda m, x: m.b(m.a(x.contiguous(memory_format=torch.channels_last))),
                                 a=conv(), b=conv()), id="channels last already"),
    pytest.param(lambda: Program(lambda m, x: m.b(m.a(x[0])), a=conv(), b=conv()), id="one image without a batch"),
]  # fmt: skip


@pytest.mark.parametrize("make", ALONE)
def test_programs_that_stay(make: Callable[[], nn.Module]) -> None:
    for capture in (symbolic_trace, lambda model: trace(model, (X.clone(),))):
        gm = noted(make(), capture, X.clone())
        before = gm.code
        assert PropagateChannelsLast().run(gm) == 0
        assert gm.code == before


def test_without_shapes_nothing_changes() -> None:
    assert PropagateChannelsLast().run(symbolic_trace(Network())) == 0


def test_training_goes_the_same_way() -> None:
    model = nn.Sequential(conv(), nn.ReLU(), conv())
    gm = noted(copy.deepcopy(model))
    PropagateChannelsLast().run(gm)
    train_alike(model, gm, X, **CLOSE)


def test_exits_that_are_left_out_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken twin: what reads values outside reads them with channels last."""
    monkeypatch.setattr(propagate_channels_last, "_outside_readers", lambda *_: [])
    model = Program(lambda m, x: m.b(m.a(x)).view(x.size(0), -1), a=conv(), b=conv())
    gm = noted(model)
    assert PropagateChannelsLast().run(gm) == 2
    assert not verify(model, gm, [X], **CLOSE)


@pytest.mark.parametrize("program", [writes_to_input, writes_to_value, views_what_is_written])
def test_writes_that_are_overlooked_are_found(program: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken twin: nobody asks what writes in place."""
    monkeypatch.setattr(propagate_channels_last, "_is_disturbed", lambda *_: False)
    model = Program(program, a=conv(), b=conv())
    gm = noted(model, lambda each: trace(each, (X.clone(),)), X.clone())
    assert PropagateChannelsLast().run(gm) >= 2
    assert not verify(model, gm, [X], **CLOSE)
