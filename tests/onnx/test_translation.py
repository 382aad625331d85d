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


def rolled(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    shift = y.shape[0] // 2 if y.shape[0] > 4 else 0
    return x.roll((-shift, shift, 1), (0, 2, -1)), x.roll(2, 0), x.roll(shift, 1)


def test_rolls_by_sizes() -> None:
    """As windows of attention are shifted where images are larger than a window."""
    program = export(rolled, (torch.randn(5, 3, 4), torch.randn(6)), verify=True)
    for length in (3, 9, 20):
        x, y = torch.randn(5, 3, 4), torch.randn(length)
        torch.testing.assert_close(program(x, y), rolled(x, y), rtol=0, atol=0)
