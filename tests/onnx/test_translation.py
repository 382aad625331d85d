"""Operators of ours, and of libraries, as operators of ONNX."""

import importlib

import pytest
import torch
from tests.runtime.declare_torchvision import declare_torchvision
from torch import Tensor

pytest.importorskip("onnxruntime")

from graphwright.onnx import export


def test_the_experts_of_hugging_face_s_models() -> None:
    """Each expert has its rows: some have none, and some rows are of no expert."""
    _load_experts()
    weights = torch.randn(3, 4, 5)

    def program(rows: Tensor, ends: Tensor) -> Tensor:
        return torch.ops.transformers.grouped_mm_fallback(rows, weights, ends)  # type: ignore[no-any-return]

    exported = export(program, (torch.randn(6, 4), torch.tensor([2, 4, 6], dtype=torch.int32)))
    for count, ends in ((6, [2, 4, 6]), (7, [0, 7, 7]), (5, [1, 1, 3]), (1, [0, 0, 1])):
        rows, given = torch.randn(count, 4), torch.tensor(ends, dtype=torch.int32)
        torch.testing.assert_close(exported(rows, given), program(rows, given))


def _load_experts() -> None:
    """The operator, which a test need not load all of Hugging Face's models for."""
    if not hasattr(torch.ops.transformers, "grouped_mm_fallback"):
        pytest.importorskip("transformers")
        declare_torchvision()
        importlib.import_module("transformers.integrations.moe")
