"""`minimize` finds the part of a model that fails, and writes it as something that runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from graphwright import CaptureError, GraphModule, trace
from graphwright.errors import PassError
from graphwright.passes import minimize


class Block(nn.Module):
    def __init__(self, width: int, is_bad: bool = False) -> None:
        super().__init__()
        self.linear, self.is_bad = nn.Linear(width, width), is_bad

    def forward(self, x: Any, scale: float = 1.0) -> Any:
        x = self.linear(x)
        x = x * scale
        if self.is_bad:
            x = torch.log(-x.abs())
        return torch.relu(x + 1)


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(Block(4), nn.ModuleDict({"a": nn.ReLU()})["a"], nn.Sequential(Block(4), Block(4, True)))


def gives_nan(module: nn.Module, *args: Any, **kwargs: Any) -> bool:
    return bool(module(*args, **kwargs).isnan().any()) and not any(tensor.isnan().any() for tensor in args)


def test_the_operation_that_fails_is_found_and_runs(tmp_path: Path) -> None:
    found = minimize(model(), torch.ones(2, 4), gives_nan)
    assert found.path == "2.1"
    assert isinstance(found.module, GraphModule)
    calls = [node.target for node in found.module.graph.nodes if node.op not in ("placeholder", "output")]
    assert calls == [torch.log]
    program = found.write(tmp_path / "issue")
    done = subprocess.run([sys.executable, program.name], cwd=program.parent, capture_output=True, text=True)
    assert "nan" in done.stdout, done.stderr


def test_what_cannot_be_captured_is_a_module(tmp_path: Path) -> None:
    class Asking(nn.Module):
        def forward(self, x: Any) -> Any:
            self.last = object()
            return x * 2

    def fails(module: nn.Module, *args: Any) -> bool:
        try:
            trace(module, args)
        except CaptureError:
            return True
        return False

    found = minimize(nn.Sequential(nn.Linear(4, 4), Asking(), nn.ReLU()), torch.ones(2, 4), fails)
    assert (found.path, type(found.module).__name__, found.nodes) == ("1", "Asking", None)


def test_a_function_is_captured() -> None:
    found = minimize(lambda x: (x.abs() + 1).log().sqrt().neg().log(), torch.ones(2), gives_nan)
    assert found.nodes == 3


def test_a_model_that_does_not_fail_is_refused() -> None:
    with pytest.raises(PassError, match="the model does not fail"):
        minimize(nn.Linear(2, 2), torch.ones(1, 2), gives_nan)
