"""Models that captures run on, and a check that captures leave everything as it was."""

from __future__ import annotations

import builtins
import contextlib
import random
import sys
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import torch
import torch._dynamo  # which gives torch functions of its own when it is first imported
import torch.overrides
from torch import nn
from torch.utils import _python_dispatch

WATCHED: list[Any] = [
    builtins, random, sys.modules["torch"], torch.Tensor, torch.nn, torch.nn.functional, torch.nn.Module,
    torch.compiler, torch.autograd.Function, torch.overrides, _python_dispatch, nn.Linear, nn.GRU, nn.Dropout,
    nn.BatchNorm1d,
]  # fmt: skip


def normalize(x: Any, limit: float = 1.0) -> Any:
    """A helper that several models share, and that asks."""
    if x.abs().max() > limit:
        x = x / x.abs().max()
    return x if x.shape[0] > 1 else x + 0.0


class Perceptron(nn.Module):
    """Dropout and batch norm, and the training flag."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.linear = nn.Linear(4, width)
        self.norm = nn.BatchNorm1d(width)
        self.dropout = nn.Dropout(0.5)
        self.scale = 2.0 if width > 4 else 1.0

    def forward(self, x: Any) -> Any:
        hidden = self.dropout(self.norm(normalize(self.linear(x))))
        if self.training:
            return hidden * self.scale
        return hidden


class Recurrent(nn.Module):
    """A GRU, and a branch on data."""

    def __init__(self, layers: int = 1) -> None:
        super().__init__()
        self.gru = nn.GRU(4, 4, layers, batch_first=True)

    def forward(self, x: Any) -> Any:
        with torch.no_grad():
            start = normalize(x.sum(0, keepdim=True))
        output, state = self.gru(x[:, None])
        if output.sum() > 0:
            output = output + start
        return output, state


class Selecting(nn.Module):
    """Sizes that depend on data: captured on real values."""

    def __init__(self, times: int = 1) -> None:
        super().__init__()
        self.times = times
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        x = self.linear(x)
        for _ in range(self.times):
            x = x[torch.rand(x.shape[0]) > -1]
        return normalize(x[x.sum(-1) < 1e9])


class Exported(nn.Module):
    """A program that can be captured only where torch.compiler says that it is exported."""

    def __init__(self, bias: float = 1.0) -> None:
        super().__init__()
        self.bias = bias
        self.register_buffer("offset", torch.ones(4))

    def forward(self, x: Any) -> Any:
        if not getattr(torch.compiler, "is_exporting", torch.compiler.is_compiling)():  # the first since torch 2.7
            x.sum().tolist()
        return x * self.bias + self.offset


class Mixed(nn.Module):
    """Modules in a list, a dict of numbers, sizes."""

    def __init__(self, depth: int = 2) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(depth)])
        self.table = {"first": [1.0, 2.0], "second": depth}

    def forward(self, x: Any) -> Any:
        batch = x.size(0)
        for layer in self.layers:
            x = normalize(layer(x), self.table["first"][1])
        return x.view(batch, 2, 2).transpose(1, 2).reshape(batch, 4) if batch < 100 else x


def models() -> list[nn.Module]:
    """Ten models in eval mode, two of each class."""
    torch.manual_seed(1)
    pairs = [(kind, option) for kind, options in _KINDS for option in options]
    return [kind(option).eval() for kind, option in pairs]


_KINDS: list[tuple[Callable[..., nn.Module], tuple[Any, ...]]] = [
    (Perceptron, (4, 6)), (Recurrent, (1, 2)), (Selecting, (1, 2)), (Exported, (1.0, 2.0)), (Mixed, (2, 3)),
]  # fmt: skip


def touched_functions() -> list[FunctionType]:
    """The functions of the models that a capture converts or may convert."""
    return [normalize, *(kind.forward for kind, _ in _KINDS)]  # type: ignore[attr-defined]


@contextlib.contextmanager
def untouched(*modules: nn.Module) -> Iterator[Callable[[], None]]:
    """Check at the end, and whenever the function that it gives is called, that nothing has changed."""
    before = _snapshot(modules)

    def check() -> None:
        now = _snapshot(modules)
        for key, value in before.items():
            assert key in now, f"{key} is gone"
            assert now[key] is value or (type(value) in (int, bool, str) and now[key] == value), f"{key} has changed"

    yield check
    check()


def _snapshot(modules: tuple[nn.Module, ...]) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for owner in WATCHED:
        for name, value in list(vars(owner).items()):
            found[getattr(owner, "__name__", owner), name] = value
    for function in touched_functions():
        found[function.__qualname__, "code"] = function.__code__
        for i, cell in enumerate(function.__closure__ or ()):
            found[function.__qualname__, "cell", i] = cell.cell_contents
    for root in modules:
        for path, module in root.named_modules():
            known = (id(root), type(root).__name__, path)
            for name, value in list(module.__dict__.items()):
                found[(*known, name)] = value
                if isinstance(value, dict):
                    found[(*known, name, "keys")] = str(list(value))
                    for key, item in value.items():
                        found[(*known, name, key)] = item
    found["grad"] = torch.is_grad_enabled()
    found["modes"] = str((torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack()))
    found["dispatch"] = str((torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()))
    found["function state"] = str(torch._C._get_torch_function_state())
    found["autocast"] = torch.is_autocast_enabled("cpu")
    found["profiler"] = str(sys.getprofile())
    return found
