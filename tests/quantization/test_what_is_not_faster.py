"""What integers do not make faster stays in float, layer by layer, and what is not used says why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import graphwright
from graphwright.engines.measure import Measured
from graphwright.errors import QuantizationError
from graphwright.quantization import api, calibrate, convert, lower, lowering_by_engine, prepare, static_int8
from graphwright.quantization.lowering import computing

needs_onednn = pytest.mark.skipif(not computing.has_onednn(), reason="torch without these kernels of oneDNN")

BATCHES = [torch.randn(2, 8, 16, 16) for _ in range(2)]


def network(size: int = 3) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(8, 16, size), nn.ReLU(), nn.ConvTranspose2d(16, 16, 2, 2), nn.ReLU(), nn.Conv2d(16, 4, size)
    ).eval()


@needs_onednn
def test_layers_without_a_faster_kernel_stay_in_float(
    prefer: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    prefer("integers", "float weight", "torch")  # exact on every processor
    monkeypatch.setattr(api, "fastest", lambda calls, *_, **given: Measured(next(iter(calls)), {}))
    model = network(1)
    q = graphwright.quantize(model, static_int8(), BATCHES)
    assert [(row.path, row.decision) for row in q.quantization.rows] == [
        ("0", "static"),
        ("2", "float"),
        ("4", "static"),
    ]
    assert q.quantization["2"].reason == "there is no kernel of integers for it here"
    assert q.quantization["2"].rule == "global"
    assert type(q.get_submodule("2")) is nn.ConvTranspose2d
    torch.testing.assert_close(q(BATCHES[0]), model(BATCHES[0]), atol=0.05, rtol=0.1)


def test_engines_that_are_passed_over_say_why(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    r = convert(calibrate(prepare(network(), static_int8(), BATCHES[0]), BATCHES))

    def refuse(*_: Any) -> Any:
        raise QuantizationError("there is a layer that it cannot say")

    monkeypatch.setattr(lowering_by_engine, "in_dialect", refuse)
    q = lower(r, BATCHES[0], engine="auto")
    said = "onnxruntime is not used: there is a layer that it cannot say"
    assert said in q.report.program.why and said in str(q.quantization.explain())


@pytest.mark.slow
def test_engines_that_are_slower_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    r = convert(calibrate(prepare(network(), static_int8(), BATCHES[0]), BATCHES))
    measured = lambda calls, *_, **given: Measured("torch", dict.fromkeys(calls, 2000.0))  # noqa: E731
    monkeypatch.setattr(lowering_by_engine, "fastest", measured)
    q = lower(r, BATCHES[0], engine="auto")
    assert any(
        note.startswith("onnxruntime is not used: it took 2 ms") or "in its dialect" in note
        for note in q.report.program.why
    )
