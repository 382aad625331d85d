"""Sums of convolutions become torch.ao's modules for them, where torch.ao's FX mode does so, and nowhere wrong."""

from __future__ import annotations

import copy
import importlib
import operator
import warnings
from typing import Any

import pytest
import torch
from tests.passes.checks import Program, settled
from torch import Tensor, nn

from graphwright import GraphModule, symbolic_trace, trace, verify
from graphwright.passes import FuseActivations

IMAGE = torch.randn(2, 4, 5, 5, generator=torch.Generator().manual_seed(0))


def called(gm: Any) -> list[str]:
    return [
        type(gm.get_submodule(node.target)).__name__
        if node.op == "call_module"
        else str(getattr(node.target, "__name__", ""))
        for node in gm.graph.nodes
        if node.op.startswith("call_")
    ]


def of_torch(model: nn.Module) -> list[str]:
    """What torch.ao makes of a model."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fx: Any = importlib.import_module("torch.ao.quantization.quantize_fx")
        config = importlib.import_module("torch.ao.quantization.backend_config").get_onednn_backend_config()
        return called(fx.fuse_fx(model, backend_config=config))


def block(run: Any) -> nn.Module:
    return settled(
        Program(run, c=nn.Conv2d(4, 4, 1), d=nn.Conv2d(4, 4, 1), n=nn.BatchNorm2d(4), r=nn.ReLU(), p=nn.MaxPool2d(1))
    )


def residual(m: Any, x: Tensor) -> Tensor:
    out = m.c(x)
    out += x
    return m.r(out)  # type: ignore[no-any-return]


FUSED = [
    pytest.param(residual, id="a residual block"),
    pytest.param(lambda m, x: m.c(x) + x, id="a sum"),
    pytest.param(lambda m, x: x + m.c(x), id="the other way round"),
    pytest.param(lambda m, x: torch.add(m.c(x), x), id="torch.add"),
    pytest.param(lambda m, x: operator.iadd(m.c(x), x), id="in place"),
    pytest.param(lambda m, x: m.r(m.c(x) + x), id="a ReLU"),
    pytest.param(lambda m, x: m.r(x + m.c(x)), id="a ReLU, the other way round"),
    pytest.param(lambda m, x: m.c(x) + m.d(x), id="two convolutions"),
    pytest.param(lambda m, x: m.r(m.c(x) + m.d(x)), id="two convolutions and a ReLU"),
    pytest.param(lambda m, x: m.r(m.n(m.c(x)) + x), id="a batch norm"),
    pytest.param(lambda m, x: m.r(m.d(m.r(m.c(x) + x)) + m.r(x)), id="two blocks"),
    pytest.param(lambda m, x: m.r(m.c(m.r(m.c(x) + x)) + x), id="one convolution twice"),
]


@pytest.mark.parametrize("run", FUSED)
def test_sums_are_fused_as_in_torch(run: Any) -> None:
    model = block(run)
    before = repr(model)
    for gm in (symbolic_trace(model), trace(model, (IMAGE,))):
        nodes = len(called(gm))
        count = FuseActivations(onednn=True).run(gm)
        gm.graph.lint()
        assert count == nodes - len(called(gm))
        assert called(gm) == of_torch(copy.deepcopy(model))
        report = verify(model, gm, [IMAGE, IMAGE[:1]], modes=("eval",), rtol=1e-4, atol=1e-5)
        assert report.ok, f"{report}\n{gm.code}"
        assert FuseActivations(onednn=True).run(gm) == 0
    assert repr(model) == before


def written_between(m: Any, x: Tensor) -> Tensor:
    y = x * 1
    out = m.c(y)
    y.add_(1)
    return out + y  # type: ignore[no-any-return]


def in_two_blocks(m: Any, x: Tensor) -> Tensor:
    out = m.c(x)
    with torch.no_grad():
        return out + x  # type: ignore[no-any-return]


KEPT = [
    pytest.param(lambda m, x: (lambda y: (y + x, y.sum()))(m.c(x)), id="read by others"),
    pytest.param(lambda m, x: (lambda y: y + y)(m.c(x)), id="added to itself"),
    pytest.param(lambda m, x: m.c(x) + 1, id="a number"),
    pytest.param(lambda m, x: m.c(x) + x.size(0), id="a size"),
    pytest.param(lambda m, x: torch.add(m.c(x), x, alpha=2), id="alpha"),
    pytest.param(lambda m, x: (x * 1).add_(m.c(x)), id="into the other one"),
    pytest.param(written_between, id="a write between"),
    pytest.param(in_two_blocks, id="another block"),
]


@pytest.mark.parametrize("run", KEPT)
def test_other_sums_stay(run: Any) -> None:
    gm = trace(block(run), (IMAGE,))
    assert FuseActivations(onednn=True).run(gm) == 0


def test_a_sum_that_is_read_twice_keeps_its_relu() -> None:
    def run(m: Any, x: Tensor) -> Tensor:
        out = m.c(x)
        out += x
        return m.r(out) * out  # type: ignore[no-any-return]

    model = block(run)
    for gm in (symbolic_trace(model), trace(model, (IMAGE,))):
        assert FuseActivations(onednn=True).run(gm) == 1
        assert called(gm) == ["ConvAdd2d", "ReLU", "mul"]
        assert verify(model, gm, [IMAGE], modes=("eval",))


def test_only_with_onednn_and_for_inference() -> None:
    gm: GraphModule = symbolic_trace(block(lambda m, x: m.c(x) + x))
    assert FuseActivations().run(gm) == FuseActivations(training=True, onednn=True).run(gm) == 0


def test_writes_that_are_overlooked_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken twin: what happens between is not asked for."""
    home = importlib.import_module("graphwright.passes.fusion.fuse_conv_add")
    monkeypatch.setattr(home, "may_write", lambda *_: False)
    model = block(written_between)
    gm = trace(model, (IMAGE,))
    assert FuseActivations(onednn=True).run(gm) == 1
    assert not verify(model, gm, [IMAGE], modes=("eval",))
