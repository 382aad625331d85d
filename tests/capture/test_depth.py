"""How deep `trace` goes: leaf modules by class, name, path, pattern, predicate, and per subtree."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from graphwright import CaptureError, trace, verify


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 4), nn.LayerNorm(4)

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.relu(self.norm(self.linear(x)))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.ModuleDict({"layer": nn.ModuleList([Layer(), Layer()])})
        self.head = nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 2))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.encoder["layer"]:
            x = layer(x)
        return self.head(x)


LAYERS = ["encoder.layer.0", "encoder.layer.1"]
INSIDE = [f"{layer}.{part}" for layer in LAYERS for part in ("linear", "norm")]
HEAD = ["head.0", "head.1"]

DEPTHS: list[Any] = [
    pytest.param((), [*INSIDE, *HEAD], id="torch.nn's own"),
    pytest.param(Layer, [*LAYERS, *HEAD], id="a class"),
    pytest.param(["Layer", nn.Sequential], [*LAYERS, "head"], id="a class name and a class"),
    pytest.param("encoder.layer.1", [*INSIDE[:2], LAYERS[1], *HEAD], id="a path"),
    pytest.param(["encoder.layer.*"], [*LAYERS, *HEAD], id="a pattern"),
    pytest.param(["*.layer.[1-9]"], [*INSIDE[:2], LAYERS[1], *HEAD], id="a pattern with a range"),
    pytest.param(lambda module, path: path.count(".") == 2, [*LAYERS, *HEAD[:0]], id="a predicate decides alone"),
    pytest.param(None, [], id="None: down to functions"),
    pytest.param({"head": None}, INSIDE, id="functions in one subtree"),
    pytest.param({"": None, "encoder": "Layer"}, LAYERS, id="functions elsewhere"),
    pytest.param({"encoder.layer.*": None, "encoder.layer.1": Layer}, [LAYERS[1], *HEAD], id="the longest key decides"),
]


@pytest.mark.parametrize(("leaf_modules", "called"), DEPTHS)
def test_modules_are_one_node_or_entered(leaf_modules: Any, called: list[str]) -> None:
    model = Model()
    gm = trace(model, torch.randn(2, 4), leaf_modules=leaf_modules)
    assert [node.target for node in gm.graph.nodes if node.op == "call_module"] == called
    report = verify(model, gm, [torch.randn(3, 4)], modes=("train", "eval"), grads=True)
    assert report.ok, str(report)


LAYERS_OF_TORCH: list[Any] = [
    pytest.param(nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect"), (2, 3, 8, 8), id="conv"),
    pytest.param(nn.BatchNorm2d(3), (2, 3, 8, 8), id="batch norm"),
    pytest.param(nn.BatchNorm2d(3, momentum=None), (2, 3, 8, 8), id="batch norm, cumulative"),
    pytest.param(nn.GroupNorm(3, 3), (2, 3, 8, 8), id="group norm"),
    pytest.param(nn.MaxPool2d(2), (2, 3, 8, 8), id="pool"),
    pytest.param(nn.Upsample(scale_factor=2), (2, 3, 8, 8), id="upsample"),
    pytest.param(nn.MultiheadAttention(4, 2, batch_first=True), None, id="attention"),
    pytest.param(
        nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), (2, 5, 4), id="encoder layer", marks=pytest.mark.slow
    ),
    pytest.param(nn.GELU(), (2, 4), id="gelu"),
    pytest.param(nn.LSTM(4, 3, batch_first=True), (2, 5, 4), id="lstm"),
    pytest.param(nn.PReLU(), (2, 4), id="prelu"),
]


@pytest.mark.parametrize(("layer", "shape"), LAYERS_OF_TORCH)
def test_torch_s_own_layers_are_entered(layer: nn.Module, shape: tuple[int, ...] | None) -> None:
    inputs = (torch.randn(shape),) if shape is not None else (torch.randn(2, 5, 4),) * 3
    gm = trace(layer, inputs, leaf_modules=None)
    assert not any(node.op == "call_module" for node in gm.graph.nodes)
    report = verify(layer, gm, [inputs], modes=("train", "eval"), grads=True)
    assert report.ok, str(report)


def test_what_is_no_leaf_is_refused() -> None:
    with pytest.raises(CaptureError, match="leaf_modules holds 3"):
        trace(Model(), torch.randn(2, 4), leaf_modules=[3])  # type: ignore[list-item]
