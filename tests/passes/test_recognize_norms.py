"""Norms that are written out become the operations for them exactly where that computes the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.runtime.declare_torchvision import declare_torchvision
from torch import Tensor, nn

from graphwright import symbolic_trace, trace, verify
from graphwright.passes import RecognizeNorms, ShapeProp
from graphwright.passes.fusion import recognize_norms as module

CLOSE = {"rtol": 1e-4, "atol": 1e-5}  # sums in another order
X = torch.randn(2, 3, 8, generator=torch.Generator().manual_seed(0)) * 3 + 1


def calls(gm: Any) -> list[str]:
    return [str(getattr(node.target, "__name__", node.target)) for node in gm.graph.all_nodes()]


def recognized(gm: Any, model: Any, inputs: tuple[Any, ...]) -> int:
    """Run the pass; check values, gradients and that a second run finds nothing."""
    count = RecognizeNorms().run(gm)
    gm.graph.lint()
    report = verify(model, gm, [inputs], modes=("train", "eval"), grads=True, **CLOSE)
    assert report.ok, f"{report}\n{gm.code}"
    assert RecognizeNorms().run(gm) == 0
    return count


def mean(x: Tensor) -> Tensor:
    return x.mean(-1, keepdim=True)


def centered(x: Tensor) -> Tensor:
    return x - mean(x)


RMS = [
    pytest.param(lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6), id="rsqrt"),
    pytest.param(lambda x: torch.rsqrt(0.1 + torch.mean(x * x, -1, True)) * x, id="the other way round"),
    pytest.param(lambda x: x / torch.sqrt(mean(x**2) + 1e-6), id="sqrt"),
    pytest.param(lambda x: x * (mean(torch.square(x)) + 0.1).pow(-0.5), id="pow"),
    pytest.param(lambda x: x * (mean(x.pow(2.0)) + 0.1) ** -0.5, id="operators"),
    pytest.param(lambda x: x * (1 / (mean(x**2) + 1).sqrt()), id="one over the root"),
    pytest.param(lambda x: (lambda h: h * torch.rsqrt(mean(h.pow(2)) + 1e-6))(x.float()).to(x.dtype), id="casts"),
    pytest.param(lambda x: x * torch.rsqrt(mean(x**2) + x.size(0)), id="eps from a size"),
]  # fmt: skip
LAYER = [
    pytest.param(lambda x: centered(x) / torch.sqrt(x.var(-1, unbiased=False, keepdim=True) + 1e-5), id="var"),
    pytest.param(lambda x: centered(x) * torch.rsqrt(mean(centered(x) ** 2) + 1e-5), id="by definition"),
    pytest.param(lambda x: (lambda c: c * (mean(c * c) + 1e-5) ** -0.5)(centered(x)), id="centered once"),
    pytest.param(
        lambda x: (lambda v: (x - v[1]) / (v[0] + 0.1).sqrt())(torch.var_mean(x, -1, correction=0, keepdim=True)),
        id="var_mean",
    ),
    pytest.param(lambda x: (x - mean(x)) / (torch.var(x, dim=-1, correction=0, keepdim=True) + 1e-5) ** 0.5, id="pow"),
]


@pytest.mark.parametrize("model", RMS)
def test_an_rms_norm_is_one_operation(model: Any) -> None:
    gm = symbolic_trace(model)
    assert recognized(gm, model, (X,)) == 1
    assert "rms_norm" in calls(gm) and not {"mean", "rsqrt", "sqrt", "pow"} & set(calls(gm))


@pytest.mark.parametrize("model", LAYER)
def test_a_layer_norm_is_one_operation(model: Any) -> None:
    gm = symbolic_trace(model)
    assert recognized(gm, model, (X,)) == 1
    assert "layer_norm" in calls(gm) and not {"mean", "var", "sqrt", "pow", "sub"} & set(calls(gm))


UNTOUCHED = [
    pytest.param(lambda x: centered(x) / torch.sqrt(x.var(-1, keepdim=True) + 1e-5), id="the unbiased variance"),
    pytest.param(lambda x: centered(x) / (x.std(-1, keepdim=True) + 1e-5), id="eps beside the deviation"),
    pytest.param(lambda x: x * torch.rsqrt(x.pow(2).mean(1, keepdim=True) + 1e-6), id="another dimension"),
    pytest.param(lambda x: x * torch.rsqrt(x.pow(2).mean(0, keepdim=True) + 1e-6), id="the first dimension"),
    pytest.param(lambda x: x * torch.rsqrt(x.pow(2).sum(-1, keepdim=True) + 1e-6), id="a sum"),
    pytest.param(lambda x: x * torch.rsqrt(x.pow(3).mean(-1, keepdim=True) + 99), id="another power"),
    pytest.param(lambda x: x.exp() * torch.rsqrt(mean(x.pow(2)) + 1e-6), id="another value"),
    pytest.param(lambda x: x * torch.rsqrt(mean(x.pow(2)) + mean(x.abs())), id="a tensor as eps"),
    pytest.param(lambda x: (lambda m: (x * torch.rsqrt(m + 1e-6), m))(mean(x.pow(2))), id="statistics given back"),
    pytest.param(
        lambda x: (lambda y: y * torch.rsqrt(mean(y.to(torch.float32).pow(2)) + 1e-6))(x.double()), id="a wide input"
    ),
    pytest.param(
        lambda x: (lambda y: y * torch.rsqrt(mean(y**2) + 1e-6))(x.transpose(0, 1)).transpose(0, 1).view(-1, 8),
        id="an order in memory that is seen",
    ),
    pytest.param(
        lambda x: (lambda y, m: (y.add_(1), y * torch.rsqrt(m + 1e-6))[1])(x.exp(), mean(x.exp() ** 2)), id="written to"
    ),
]


@pytest.mark.parametrize("model", UNTOUCHED)
def test_other_programs_stay(model: Any) -> None:
    gm = symbolic_trace(model)
    code = gm.code
    assert recognized(gm, model, (X,)) == 0
    assert gm.code == code


class Norm(nn.Module):
    """A layer before a norm with a weight and a bias."""

    def __init__(self, norm: Any, size: int = 8, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.weight = nn.Parameter(torch.rand(size, dtype=dtype) + 0.5)
        self.bias = nn.Parameter(torch.randn(size, dtype=dtype))
        self.norm = norm

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self, self.linear(x))


def rms(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


def layer(x: Tensor) -> Tensor:
    return centered(x) / torch.sqrt(x.var(-1, unbiased=False, keepdim=True) + 1e-5)


AFFINE = [
    pytest.param(lambda m, x: m.weight * rms(x), 2, id="rms"),
    pytest.param(lambda m, x: m.weight * rms(x.to(torch.float32)).to(x.dtype), 2, id="rms, cast back"),
    pytest.param(lambda m, x: rms(x) * (1.0 + m.weight), 2, id="rms, a computed weight"),
    pytest.param(lambda m, x: layer(x) * m.weight + m.bias, 3, id="layer"),
    pytest.param(lambda m, x: m.bias + m.weight * layer(x), 3, id="layer, the other way round"),
    pytest.param(lambda m, x: layer(x) + m.bias, 2, id="a bias alone"),
    pytest.param(lambda m, x: layer(x) * m.weight, 2, id="a weight alone"),
]


@pytest.mark.parametrize(("norm", "changes"), AFFINE)
def test_weights_join_where_size_and_dtype_are_known(norm: Any, changes: int) -> None:
    model = Norm(norm)
    gm = trace(model, (X,))
    ShapeProp(gm).propagate(X)
    assert recognized(gm, model, (X,)) == changes


@pytest.mark.parametrize(
    "model",
    [Norm(AFFINE[3].values[0], size=1), Norm(AFFINE[3].values[0], dtype=torch.float64)],
    ids=["one weight for all", "a wider weight"],
)
def test_other_weights_stay_beside_the_norm(model: Norm) -> None:
    gm = symbolic_trace(model)
    ShapeProp(gm).propagate(X)
    assert recognized(gm, model, (X,)) == 1
    assert {"mul", "add", "layer_norm"} <= set(calls(gm))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_keeps_its_casts(dtype: torch.dtype) -> None:
    model = Norm(AFFINE[1].values[0]).to(dtype)
    x = X.to(dtype)
    gm = trace(model, (x,))
    assert RecognizeNorms().run(gm) == 1
    report = verify(model, gm, [(x,)], grads=True)
    assert report.ok, report
    assert gm(x).dtype is dtype


def test_a_norm_of_a_narrow_input_with_wide_statistics() -> None:
    def norm(x: Tensor) -> Tensor:
        return x * torch.rsqrt(mean(x.to(torch.float32).pow(2)) + 1e-6)

    for dtype in (torch.float32, torch.bfloat16):
        x = X.to(dtype)
        gm = symbolic_trace(norm)
        assert RecognizeNorms().run(gm) == 0  # it might be float64
        ShapeProp(gm).propagate(x)
        assert recognized(gm, norm, (x,)) == 1
        assert gm(x).dtype is torch.float32


TWINS = [
    pytest.param("_is_norm", lambda match: True, UNTOUCHED[2].values[0], id="any dimension"),
    pytest.param("_is_norm_of_wide", lambda match: True, UNTOUCHED[9].values[0], id="any dtype"),
    pytest.param("_rms_norm", lambda match: F.rms_norm(match.x, (8,), eps=1.0), RMS[0].values[0], id="another eps"),
    pytest.param("_layer_norm", lambda match: F.rms_norm(match.x, (8,)), LAYER[0].values[0], id="another norm"),
]


@pytest.mark.parametrize(("name", "wrong", "model"), TWINS)
def test_a_broken_twin_is_caught(name: str, wrong: Any, model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def with_proxies(match: Any) -> Any:
        return wrong(match)

    def with_x(x: Any, match: Any) -> Any:
        match.values = {**match.values, "x": x}
        return wrong(match)

    monkeypatch.setattr(module, name, with_proxies if name.startswith("_is") else with_x)
    module._rules.cache_clear()
    try:
        with pytest.raises((AssertionError, RuntimeError)):
            recognized(symbolic_trace(model), model, (X,))
    finally:
        module._rules.cache_clear()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["Llama", "T5Encoder"])
def test_models_of_transformers(name: str) -> None:
    declare_torchvision()
    library = pytest.importorskip("transformers")
    sizes = {
        "Llama": {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16,
                  "use_cache": False},
        "T5Encoder": {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2},
    }  # fmt: skip
    config = getattr(library, f"{name.removesuffix('Encoder')}Config")(vocab_size=50, **sizes[name])
    model = getattr(library, f"{name}Model")(config)
    words = torch.arange(6).view(1, 6)
    gm = trace(model, (), {"input_ids": words})
    inputs = [node for node in gm.graph.nodes if node.op == "placeholder"]
    given = [words if node.target == "input_ids" else node.args[0] if node.args else {} for node in inputs]
    ShapeProp(gm).propagate(*given)
    assert RecognizeNorms().run(gm) >= 6  # three norms with their weights
    report = verify(model, gm, [((), {"input_ids": words})], modes=("train", "eval"), grads=True, **CLOSE)
    assert report.ok, report
