"""Quantized programs on the grids of other backends, and as ONNX models in ONNX Runtime."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.quantization.test_steps import IMAGE, Residual, quantized
from torch import Tensor, nn

import graphwright
from graphwright.errors import QuantizationError
from graphwright.quantization import dequantize, in_dialect, lower, quantize, sqnr, to_onnx

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")


@pytest.mark.slow
@pytest.mark.parametrize("dialect", ["ort", "openvino", "tensorrt"])
def test_models_run(tmp_path: Any, dialect: str) -> None:
    torch.manual_seed(0)
    model = Residual().eval()
    q = quantized(model, IMAGE)
    program = to_onnx(q, tmp_path / "m.onnx", dialect)
    onnx.checker.check_model(str(tmp_path / "m.onnx"), full_check=True)
    for count in (2, 5):
        x = torch.randn(count, *IMAGE[1:])
        assert sqnr(model(x), program(x)) > 25
    weights = {each.name: each for each in onnx.load(str(tmp_path / "m.onnx")).graph.initializer}
    assert weights["conv1.weight"].data_type == onnx.TensorProto.INT8


@pytest.mark.slow
def test_grids_of_tensorrt(tmp_path: Any) -> None:
    torch.manual_seed(0)
    made = in_dialect(quantized(Residual().eval(), IMAGE), "tensorrt")
    rounded = [node for node in made.graph.nodes if node.target is quantize]
    assert rounded and all(node.args[2] == 0 and node.kwargs["dtype"] is torch.int8 for node in rounded)
    (add,) = [node for node in made.graph.nodes if node.name == "add"]
    assert [node.target for node in add.all_input_nodes] == [dequantize, dequantize]
    program = to_onnx(quantized(Residual().eval(), IMAGE), tmp_path / "m.onnx", "tensorrt")
    assert "INT32" not in {each.const_value.dtype.name for each in program.model.graph.initializers.values()}
    assert "Cast" not in program.report.operators  # biases are floats


def test_grids_of_onnx_runtime_cut_off_what_relu_does() -> None:
    torch.manual_seed(0)
    q = quantized(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3)).eval(), IMAGE)
    made = in_dialect(q, "ort")
    assert not [node for node in made.graph.nodes if node.target == "1"]
    x = torch.randn(IMAGE)
    (step,) = {node.args[1] for node in made.graph.nodes if node.target is dequantize and node.next.op == "output"}
    assert (made(x) - q(x)).abs().max() <= step * 0.501  # of the last result, which is integers, too


class Squeezed(nn.Module):
    """A block as in MobileNet-v3: a product of channels and what their means say, added; then the means."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.pad = nn.Conv2d(3, 8, 3, padding=1), nn.ZeroPad2d((0, 1, 0, 1))
        self.deep = nn.Conv2d(8, 8, 2, groups=8)
        self.less, self.more = nn.Conv2d(8, 4, 1), nn.Conv2d(4, 8, 1)
        self.last, self.head = nn.Conv2d(8, 8, 1), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.first(x))
        y = F.hardswish(self.deep(self.pad(x)))
        y = y * F.hardsigmoid(self.more(F.relu(self.less(F.adaptive_avg_pool2d(y, 1)))))
        return self.head(F.relu(x + self.last(y)).mean((2, 3)))


def fused(path: Any, x: Tensor) -> Counter[str]:
    """How often ONNX Runtime calls which operator for a model."""
    options, made = onnxruntime.SessionOptions(), path.with_suffix(".fused.onnx")
    options.optimized_model_filepath, options.log_severity_level = str(made), 3
    onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return Counter(node.op_type for node in onnx.load(str(made)).graph.node)


@pytest.mark.slow
def test_onnx_runtime_computes_all_layers_of_images_with_integers(tmp_path: Any) -> None:
    torch.manual_seed(0)
    model = Squeezed().eval()
    program = to_onnx(quantized(model, IMAGE), tmp_path / "m.onnx")
    x = torch.randn(IMAGE)
    assert sqnr(model(x), program(x)) > 25
    calls = fused(tmp_path / "m.onnx", x)
    wanted = {"QLinearConv": 5, "QGemm": 1, "QLinearAdd": 1, "QLinearMul": 1, "QLinearGlobalAveragePool": 2}
    assert wanted == {name: calls[name] for name in wanted}
    assert not calls.keys() & {"Conv", "FusedConv", "Gemm", "MatMul", "Add", "Pad", "Relu", "ReduceMean"}


@pytest.mark.slow
def test_onnx_runtime_computes_linear_layers_on_rows_with_integers(tmp_path: Any) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16, bias=False)).eval()
    program = to_onnx(quantized(model, (2, 5, 16)), tmp_path / "m.onnx")
    x = torch.randn(2, 5, 16)
    given = program(x)
    assert given.shape == (2, 5, 16) and sqnr(model(x), given) > 25
    calls = fused(tmp_path / "m.onnx", x)
    assert (calls["QGemm"], calls["Gelu"], calls["QuantizeLinear"]) == (2, 1, 2)
    assert not calls.keys() & {"Gemm", "MatMul", "DequantizeLinear", "Erf"}


def test_bad_input(tmp_path: Any) -> None:
    model = Residual().eval()
    with pytest.raises(QuantizationError, match="is not quantized"):
        to_onnx(graphwright.trace(model, torch.randn(IMAGE)), tmp_path / "m.onnx")
    with pytest.raises(QuantizationError, match="no dialect 'coreml'"):
        to_onnx(quantized(model, IMAGE), tmp_path / "m.onnx", "coreml")


@pytest.mark.slow
def test_programs_are_lowered_in_the_dialect_of_the_engine() -> None:
    torch.manual_seed(0)
    model, x = Residual().eval(), torch.randn(IMAGE)
    r = quantized(model, IMAGE)
    q = lower(r, x, engine="onnxruntime")
    assert q.meta["quantization"]["dialect"] == "ort"
    (add,) = [node for node in q.graph.nodes if node.name == "add"]
    assert [node.target for node in add.all_input_nodes] == [dequantize, dequantize]
    with torch.no_grad():
        assert sqnr(model(x), q(x)) > 25
        assert sqnr(model(x), lower(r, x)(x)) > 25


def test_a_program_in_a_dialect_is_not_put_into_another_one(tmp_path: Any) -> None:
    made = in_dialect(quantized(Residual().eval(), IMAGE), "ort")
    with pytest.raises(QuantizationError, match="in the dialect 'ort' already"):
        to_onnx(made, tmp_path / "m.onnx", "tensorrt")
    x = torch.randn(IMAGE)
    assert torch.equal(in_dialect(made, "ort")(x), made(x))


def test_the_module_stays_as_it_is() -> None:
    q = quantized(Residual().eval(), IMAGE)
    meta, x = dict(q.meta), torch.randn(IMAGE)
    expected = q(x)
    for dialect in ("ort", "openvino", "tensorrt"):
        in_dialect(q, dialect)
    assert q.meta == meta and torch.equal(q(x), expected)
