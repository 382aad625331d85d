"""Quantized programs on the grids of other backends, and as ONNX models in ONNX Runtime."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.quantization.test_steps import IMAGE, Residual, quantized
from torch import Tensor

import graphwright
from graphwright.errors import QuantizationError
from graphwright.quantization import dequantize, in_dialect, lower, quantize, sqnr, to_onnx

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")


def run(path: Any, x: Tensor) -> Tensor:
    session = onnxruntime.InferenceSession(str(path))
    return torch.from_numpy(session.run(None, {session.get_inputs()[0].name: x.numpy()})[0])


@pytest.mark.slow
@pytest.mark.parametrize("dialect", ["ort", "openvino", "tensorrt"])
def test_models_run(tmp_path: Any, dialect: str) -> None:
    torch.manual_seed(0)
    model = Residual().eval()
    q = quantized(model, IMAGE)
    to_onnx(q, tmp_path / "m.onnx", dialect)
    onnx.checker.check_model(str(tmp_path / "m.onnx"), full_check=True)
    for count in (2, 5):
        x = torch.randn(count, *IMAGE[1:])
        assert sqnr(model(x), run(tmp_path / "m.onnx", x)) > 25
    weights = {each.name: each for each in onnx.load(str(tmp_path / "m.onnx")).graph.initializer}
    assert weights["conv1.weight"].data_type == onnx.TensorProto.INT8


def test_grids_of_tensorrt(tmp_path: Any) -> None:
    torch.manual_seed(0)
    made = in_dialect(quantized(Residual().eval(), IMAGE), "tensorrt")
    rounded = [node for node in made.graph.nodes if node.target is quantize]
    assert rounded and all(node.args[2] == 0 and node.kwargs["dtype"] is torch.int8 for node in rounded)
    (add,) = [node for node in made.graph.nodes if node.name == "add"]
    assert [node.target for node in add.all_input_nodes] == [dequantize, dequantize]


def test_grids_of_onnx_runtime_cut_off_what_relu_does() -> None:
    torch.manual_seed(0)
    q = quantized(
        torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Conv2d(8, 8, 3)).eval(), IMAGE
    )
    made = in_dialect(q, "ort")
    assert not [node for node in made.graph.nodes if node.target == "1"]
    x = torch.randn(IMAGE)
    torch.testing.assert_close(made(x), q(x))


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
