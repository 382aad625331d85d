"""Quantization of modules that were captured for several examples, and of those that take objects."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import graphwright
from graphwright import GraphModule, record
from graphwright.engines import optimizing
from graphwright.engines.choosing import Choice
from graphwright.engines.measure import Measured
from graphwright.errors import QuantizationError
from graphwright.quantization import (
    QConfig,
    QConfigMapping,
    calibrate,
    convert,
    dynamic_int8,
    lower,
    prepare,
    search,
    static_int8,
    weight_only_int4,
    weight_only_int8,
)
from graphwright.quantization.dialects import example_of


class Memory:
    """What a decoder remembers."""

    def __init__(self) -> None:
        self.rows: list[Tensor] = []


class Decoder(nn.Module):
    """A decoder with a layer that only the first call comes to."""

    def __init__(self) -> None:
        super().__init__()
        self.start, self.key, self.out = nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x: Tensor, memory: Memory) -> Tensor:
        key = self.key(x)
        if len(memory.rows):
            memory.rows[0] = key = torch.cat([memory.rows[0], key], -2)
        else:
            key = self.start(key)
            memory.rows.append(key)
        return self.out((x @ key.transpose(-1, -2)).softmax(-1) @ key)  # type: ignore[no-any-return]

    def generate(self, x: Tensor, steps: int = 3) -> Tensor:
        memory = Memory()
        for _ in range(steps):
            x = self(x[..., -1:, :] if memory.rows else x, memory)
        return x


LAYERS = {"start", "key", "out"}
DATA = torch.randn(2, 5, 64, generator=torch.Generator().manual_seed(0))


def run(model: Any) -> Any:
    """What the examples are made by, and what the ranges of values are seen in."""
    return model.generate(DATA)


def in_integers(gm: GraphModule) -> set[str]:
    """The layers all of whose calls compute with weights of integers."""
    rows = [row for row in gm.quantization.rows if row.op == "linear"]
    return {row.path for row in rows} - {row.path for row in rows if row.decision == "float"}


@pytest.fixture
def model() -> Decoder:
    torch.manual_seed(0)
    return Decoder().eval().requires_grad_(False)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("is_captured", [False, True])
@pytest.mark.parametrize("config", [static_int8(), dynamic_int8(), weight_only_int8(), weight_only_int4(32)])
def test_a_run_says_for_which_calls(model: Decoder, config: QConfig, is_captured: bool) -> None:
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    q = graphwright.quantize(record(model, run) if is_captured else model, config, run, engine=None)
    assert in_integers(q) == LAYERS and not any(
        tensor.dtype is torch.float32 and tensor.dim() > 1 and tensor.shape[1] > 2 for tensor in q.state_dict().values()
    )
    bits = 0.25 if config.weight is not None and config.weight.dtype is not torch.int8 else 0.1
    assert (q.generate(DATA) - model.generate(DATA)).abs().max() < bits
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.parametrize("config", [static_int8(), dynamic_int8(), weight_only_int8()])
def test_kernels_of_integers_in_calls_of_all_sizes(
    model: Decoder, config: QConfig, prefer: Callable[..., None]
) -> None:
    prefer("integers", "half inputs", "torch")
    calls = graphwright.recorded_calls(model, run)
    reference = graphwright.quantize(model, config, run, engine=None)
    lowered = lower(reference, *calls[0], "torch", examples=calls[1:])
    report: Any = lowered.report
    assert {weight.split(".")[0] for part in report.parts for weight in part.weights} == LAYERS
    for shape in [(2, 5, 64), (1, 1, 64), (3, 9, 64)]:
        x = torch.randn(shape)
        with torch.no_grad():
            expected, given = reference.generate(x), lowered.generate(x)
        assert (given - expected).abs().max() < 0.02 * expected.abs().max()


@pytest.mark.slow
def test_a_weight_is_held_once(model: Decoder, monkeypatch: pytest.MonkeyPatch) -> None:
    def chosen(site: Any, *args: Any, **kwargs: Any) -> Choice:
        times = {"torch": 9.0, "float weight": 2.0, "half inputs": 3.0 if site.rows > 2 else 1.0}
        return Choice(min(times, key=times.__getitem__), tuple(times.items()))

    monkeypatch.setattr(optimizing, "choose", chosen)
    monkeypatch.setattr(optimizing, "fastest", lambda forms, *_, **given: Measured("torch", dict.fromkeys(forms, 1.0)))
    calls = graphwright.recorded_calls(model, run)
    reference = graphwright.quantize(model, weight_only_int8(), run, engine=None)
    report: Any = lower(reference, *calls[0], "torch", examples=calls[1:]).report
    runs_on = {(weight, part.runs_on) for part in report.parts for weight in part.weights}
    assert runs_on == {(f"{layer}.weight", "half inputs") for layer in LAYERS}
    assert any("held as integers already" in reason for part in report.parts for reason in part.why)


def test_a_layer_that_no_example_comes_to_stays_in_float(model: Decoder) -> None:
    q = graphwright.quantize(record(model, run), weight_only_int8(), args=(DATA, Memory()), engine=None)
    reasons = {(row.path, row.reason) for row in q.quantization.rows if row.op == "linear" and row.decision == "float"}
    assert {reason for _, reason in reasons} == {"no example comes to it"} and len(reasons) == 2


@pytest.mark.slow
def test_batches_are_examples_too(model: Decoder) -> None:
    gm, calls = record(model, run), graphwright.recorded_calls(model, run)
    for batches in ([*calls, *calls], [dict(zip(("x", "memory"), args, strict=True)) for args, _ in calls]):
        assert in_integers(graphwright.quantize(gm, static_int8(), batches, engine=None)) == LAYERS
    prepared = prepare(gm, static_int8(), *calls[0], examples=calls[1:])
    assert in_integers(convert(calibrate(prepared, run))) == LAYERS
    assert (
        in_integers(graphwright.quantize(gm, search(gm, static_int8(), calls, target=0.9), calls, engine=None))
        == LAYERS
    )


@pytest.mark.slow
def test_a_module_is_captured_for_all_examples_of_a_preparation(model: Decoder) -> None:
    first, *others = graphwright.recorded_calls(model, run)
    prepared = prepare(model, static_int8(), *first, examples=others)
    assert in_integers(convert(calibrate(prepared, run))) == LAYERS


def test_a_run_that_calls_nothing(model: Decoder) -> None:
    prepared = prepare(record(model, run), static_int8(), *graphwright.recorded_calls(model, run)[0])
    with pytest.raises(QuantizationError, match=r"the run makes no call of the module(.|\n)*fix: have it call"):
        calibrate(prepared, lambda module: None)
    with pytest.raises(graphwright.CaptureError, match=r"the run makes no call of Decoder\.forward"):
        graphwright.quantize(model, static_int8(), lambda module: None)


@pytest.mark.slow
def test_examples_that_are_not_kept(model: Decoder, tmp_path: Path) -> None:
    q = graphwright.quantize(model, weight_only_int8(), run, engine=None)
    with pytest.raises(QuantizationError, match=r"several calls, or with objects(.|\n)*fix: give a call"):
        example_of(q)
    with pytest.raises(QuantizationError, match=r"fix: give a call"):
        lower(q)
    with pytest.raises(QuantizationError, match=r"a dialect is for one call of tensors(.|\n)*engine=\"torch\""):
        lower(q, DATA, {"memory": Memory()}, engine="onnxruntime")
    graphwright.save(q, tmp_path / "q.gw")
    loaded = graphwright.load(tmp_path / "q.gw", allow=[__name__])
    torch.testing.assert_close(loaded.generate(DATA), q.generate(DATA))


class Product(nn.Module):
    """A product with a parameter, in both ways through the program."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Module()
        self.layer.weight, self.layer.bias = nn.Parameter(torch.randn(64, 64)), nn.Parameter(torch.randn(64))

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        x = x if y is None else x + y
        return torch.addmm(self.layer.bias, x, self.layer.weight)


def test_products_with_parameters_in_both_captures() -> None:
    model, x = Product().eval(), torch.randn(3, 64)
    q = graphwright.quantize(model, weight_only_int8(), lambda module: (module(x), module(x, x)), engine=None)
    assert in_integers(q) == {"layer"} and q.layer.weight.dtype is torch.int8
    lines = str(q.quantization.explain()).splitlines()
    assert [line.split()[:3] for line in lines if line.startswith("layer ")] == [
        ["layer", "op", "calls"],
        ["layer", "linear", "2"],
    ]
    assert (q(x, x) - model(x, x)).abs().max() < 0.1 * model(x, x).abs().max()


class Pair(nn.Module):
    """An encoder that `generate` calls by itself, and what follows it."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.out = nn.Sequential(nn.Linear(64, 64), nn.ReLU()), nn.Linear(64, 64)

    def forward(self, x: Tensor, encoded: Tensor) -> Tensor:
        return self.out(x + encoded)  # type: ignore[no-any-return]

    def generate(self, x: Tensor) -> Tensor:
        return self(x, self.encoder(x))  # type: ignore[no-any-return]


def test_what_a_run_calls_by_itself_may_be_quantized_already(tmp_path: Path) -> None:
    model = Pair().eval()
    expected = run(model)
    model.encoder = graphwright.quantize(model.encoder, weight_only_int8(), lambda encoder: run(model), engine=None)
    q = graphwright.quantize(model, weight_only_int8(), run, engine=None)
    assert (run(q) - expected).abs().max() < 0.05
    assert {name for name, tensor in q.state_dict().items() if tensor.dtype is torch.int8} == {
        "encoder.0.weight",
        "out.weight",
    }
    graphwright.save(q, tmp_path / "q.gw")
    torch.testing.assert_close(run(graphwright.load(tmp_path / "q.gw", allow=[__name__])), run(q))


@pytest.mark.slow
@pytest.mark.parametrize("config", [weight_only_int8(), dynamic_int8(), static_int8()])
def test_what_a_run_calls_by_itself_is_quantized(config: QConfig, tmp_path: Path) -> None:
    model = Pair().eval()
    expected = run(model)
    q = graphwright.quantize(model, config, run, engine=None)
    assert {row.path for row in q.quantization.rows if row.decision != "float"} == {"out", "encoder.0"}
    assert "encoder.0" in str(q.quantization.explain())
    assert (run(q) - expected).abs().max() < 0.2 and torch.equal(run(model), expected)
    graphwright.save(q, tmp_path / "q.gw")
    loaded = graphwright.load(tmp_path / "q.gw", allow=[__name__])
    assert torch.equal(run(loaded), run(q)) and loaded.quantization.rows == q.quantization.rows


def test_rules_name_layers_of_parts_by_their_whole_paths() -> None:
    model = Pair()
    model.encoder.append(nn.Linear(64, 64))
    model.eval()
    mapping = QConfigMapping().set_global(weight_only_int8()).set_module_name("encoder.0", None)
    mapping.set_module_name_regex("enc.*2", dynamic_int8())
    q = graphwright.quantize(model, mapping, run, engine=None).quantization
    assert [q[path].decision for path in ("encoder.0", "encoder.2", "out")] == ["float", "dynamic", "weight"]
    with pytest.raises(QuantizationError, match=r"no layer has the module name 'encoder\.3'"):
        graphwright.quantize(model, mapping.set_module_name("encoder.3", None), run, engine=None)


@pytest.mark.slow
def test_what_is_optimized_already_stays_as_it_is() -> None:
    model = Pair().eval().requires_grad_(False)
    model.encoder = graphwright.optimize_for_inference(model.encoder, torch.randn(2, 64), engines=("torch",))
    q = graphwright.quantize(model, weight_only_int8(), run)
    assert {row.path for row in q.quantization.rows} == {"add", "out"}
    assert (run(q) - run(model)).abs().max() < 0.05
