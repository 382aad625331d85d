"""Scripts for torch.ao's quantization by graphs, of which nothing but import lines changes."""

from __future__ import annotations

import importlib
import re
from typing import Any

import pytest
import torch
from torch import nn

from graphwright.errors import QuantizationError

MODEL = """
import copy
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels)
        self.conv2, self.bn2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += x
        return self.relu(out)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.block = Block(8)
        self.head = nn.Linear(8, 10)

    def forward(self, x):
        x = self.block(self.stem(x))
        return self.head(torch.flatten(nn.functional.adaptive_avg_pool2d(x, 1), 1))


torch.manual_seed(0)
data_loader = [(torch.randn(4, 3, 16, 16), torch.randint(0, 10, (4,))) for _ in range(6)]
"""

STATIC = """
from torch.ao.quantization import get_default_qconfig, QConfigMapping
from torch.ao.quantization.quantize_fx import convert_fx, fuse_fx, prepare_fx

float_model = Net().to("cpu")
float_model.eval()
model_to_quantize = copy.deepcopy(float_model)
model_to_quantize.eval()
qconfig_mapping = QConfigMapping().set_global(get_default_qconfig("x86"))
example_inputs = (next(iter(data_loader))[0])
prepared_model = prepare_fx(model_to_quantize, qconfig_mapping, example_inputs)


def calibrate(model, loader):
    model.eval()
    with torch.no_grad():
        for image, target in loader:
            model(image)


calibrate(prepared_model, data_loader)
quantized_model = convert_fx(prepared_model)

torch.save(quantized_model.state_dict(), FOLDER + "/weights.pth")
again = convert_fx(copy.deepcopy(prepared_model))
again.load_state_dict(torch.load(FOLDER + "/weights.pth"))
fused = fuse_fx(copy.deepcopy(float_model))
"""

TRAINING = """
from torch.ao.quantization import get_default_qat_qconfig_mapping
from torch.ao.quantization.quantize_fx import convert_fx, prepare_qat_fx

float_model = Net().train()
qconfig_mapping = get_default_qat_qconfig_mapping("x86")
example_inputs = (torch.randn(1, 3, 16, 16),)
prepared_model = prepare_qat_fx(float_model, qconfig_mapping, example_inputs)


def train_loop(model, train_data):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model.train()
    for image, target in train_data:
        loss = nn.functional.cross_entropy(model(image), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


train_loop(prepared_model, data_loader)
prepared_model.eval()
float_model = prepared_model
quantized_model = convert_fx(prepared_model)
"""

DYNAMIC = """
from torch.ao.quantization import (
    default_dynamic_qconfig,
    float_qparams_weight_only_qconfig,
    get_default_qconfig_mapping,
)
from torch.ao.quantization.qconfig_mapping import QConfigMapping
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.rnn, self.decoder = nn.Embedding(50, 16), nn.LSTM(16, 16), nn.Linear(16, 50)

    def forward(self, words, hidden):
        output, hidden = self.rnn(self.encoder(words), hidden)
        return self.decoder(output), hidden


float_model = Words().eval()
example_inputs = (torch.randint(0, 50, (5, 2)), (torch.randn(1, 2, 16), torch.randn(1, 2, 16)))
qconfig_mapping = (
    QConfigMapping()
    .set_object_type(nn.Embedding, float_qparams_weight_only_qconfig)
    .set_object_type(nn.LSTM, default_dynamic_qconfig)
    .set_object_type(nn.Linear, default_dynamic_qconfig)
)
prepared_model = prepare_fx(float_model, qconfig_mapping, example_inputs)
quantized_model = convert_fx(prepared_model)
"""

RULES = """
from torch.ao.quantization import (
    HistogramObserver, MinMaxObserver, MovingAverageMinMaxObserver, PerChannelMinMaxObserver, QConfig,
    default_qconfig, default_weight_only_qconfig, get_default_qconfig_mapping,
)
from torch.ao.quantization.backend_config import BackendConfig, get_native_backend_config
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

weight = PerChannelMinMaxObserver.with_args(dtype=torch.qint8, qscheme=torch.per_channel_symmetric)
qconfig = QConfig(activation=MinMaxObserver.with_args(dtype=torch.quint8, reduce_range=True), weight=weight)
qconfig_mapping = get_default_qconfig_mapping("x86")
qconfig_mapping.set_object_type(nn.Conv2d, qconfig).set_module_name_regex("block.conv1", None)
qconfig_mapping.set_module_name_regex("block.*", qconfig).set_module_name("head", None)
float_model = Net().eval()
backend_config = get_native_backend_config()
assert isinstance(backend_config, BackendConfig)
example_inputs = (data_loader[0][0],)
prepared_model = prepare_fx(float_model, qconfig_mapping, example_inputs, backend_config=backend_config)
for image, _ in data_loader:
    prepared_model(image)
quantized_model = convert_fx(prepared_model)
without = convert_fx(prepared_model, qconfig_mapping=get_default_qconfig_mapping().set_module_name("stem.0", None))
"""


def run(script: str, folder: Any = "") -> dict[str, Any]:
    """Run a script with its import lines changed."""
    changed = re.sub(r"^from torch\.ao\.", "from graphwright.ao.", script, flags=re.MULTILINE)
    assert changed != script
    names: dict[str, Any] = {"FOLDER": str(folder)}
    exec(compile(MODEL + changed, "<script>", "exec"), names)
    return names


LAYERS = {"stem.0", "block.conv1", "block.conv2", "head"}


def decisions(module: Any) -> dict[str, str]:
    return {row.path: row.decision for row in module.quantization.rows}


@pytest.mark.slow
def test_a_script_that_calibrates(tmp_path: Any) -> None:
    names = run(STATIC, tmp_path)
    quantized, again, image = names["quantized_model"], names["again"], names["data_loader"][0][0]
    expected, given = names["float_model"](image), quantized(image)
    assert isinstance(quantized, names["Net"]) and type(quantized.stem[0]).__name__ == "QuantizedConv2d"
    assert {path for path, decision in decisions(quantized).items() if decision == "static"} >= LAYERS
    assert float((expected - given).detach().abs().max()) < 0.1 * float(expected.detach().abs().max())
    assert all(torch.equal(value, again.state_dict()[key]) for key, value in quantized.state_dict().items())
    limit = 0.02 * float(given.abs().max())  # kernels are chosen by measuring, and agree within a step
    torch.testing.assert_close(again(image), given, rtol=0, atol=limit)
    torch.testing.assert_close(names["fused"](image), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_script_that_trains() -> None:
    names = run(TRAINING)
    image = names["data_loader"][0][0]
    expected, given = names["prepared_model"](image).detach(), names["quantized_model"](image)
    assert {path for path, each in decisions(names["quantized_model"]).items() if each == "static"} >= LAYERS
    assert float((expected - given).detach().abs().max()) < 0.02 * float(expected.abs().max())


@pytest.mark.slow
def test_a_script_for_words() -> None:
    names = run(DYNAMIC)
    quantized, example = names["quantized_model"], names["example_inputs"]
    assert decisions(quantized) == {"encoder": "weight", "rnn": "dynamic", "decoder": "dynamic"}
    expected, given = names["float_model"](*example)[0], quantized(*example)[0]
    assert float((expected - given).detach().abs().max()) < 0.05 * float(expected.detach().abs().max())


@pytest.mark.slow
def test_a_script_with_rules() -> None:
    names = run(RULES)
    found = decisions(names["quantized_model"])
    assert found["block.conv1"] == found["head"] == "float", "the first pattern counts"
    assert found["block.conv2"] == found["stem.0"] == "static"
    other = decisions(names["without"])
    assert other["stem.0"] == "float" and other["block.conv2"] == "static"


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda ao: ao.QConfig(activation=3, weight=None), "says not how values are written"),
        (
            lambda ao: ao.QConfig(activation=ao.MinMaxObserver.with_args(quant_min=0, quant_max=15), weight=None),
            "activations of 4 bits",
        ),
        (lambda ao: ao.MinMaxObserver.with_args(dtype=torch.float16), "observers of torch.float16"),
        (lambda ao: ao.MinMaxObserver.with_args(colour=1), "no setting 'colour'"),
        (lambda ao: ao.get_default_qconfig("abacus"), "no engine 'abacus'"),
        (lambda ao: ao.QConfigMapping.from_dict({"module_name_object_type_order": [1]}), "rules by"),
        (
            lambda ao: importlib.import_module("graphwright.ao.quantization.quantize_fx").prepare_fx(
                nn.Linear(2, 2).eval(), {"": ao.default_qconfig}, torch.ones(1, 2), {"a": 1}
            ),
            "prepare_custom_config is not taken",
        ),
    ],
)
def test_what_is_not_taken_is_said(write: Any, message: str) -> None:
    import graphwright.ao.quantization as ao

    with pytest.raises(QuantizationError, match=message):
        write(ao)


def test_rules_as_dicts() -> None:
    import graphwright.ao.quantization as ao

    rules = {
        "": ao.default_qconfig,
        "object_type": [(nn.Linear, None)],
        "module_name_regex": [("a.*", None), ("b.*", ao.default_dynamic_qconfig)],
        "module_name": [("a.b", ao.default_weight_only_qconfig)],
    }
    assert ao.QConfigMapping.from_dict(rules).to_dict() == rules
