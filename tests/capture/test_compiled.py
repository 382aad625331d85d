"""Programs that call functions of `torch.compile`: what these were written as is captured."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from graphwright import trace

COMPILED: list[int] = []


def backend(graph: Any, examples: Any) -> Callable[..., Any]:
    COMPILED.append(1)
    return graph.forward  # type: ignore[no-any-return]


def decorated() -> Callable[..., Any]:
    @torch.compile(backend=backend)  # in here, since it takes seconds to load the compiler
    def shifted(x: torch.Tensor, n: float) -> torch.Tensor:
        if x.sum() > 0:
            x = x + 1
        return x * n

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 3)

        def forward(self, x: torch.Tensor) -> Any:
            return self.linear(shifted(x, 2.0))

    return Model()


def made_inside(x: torch.Tensor) -> torch.Tensor:
    return torch.compile(lambda y: y.sin() * 2, backend=backend)(x)  # type: ignore[no-any-return]


def method() -> Callable[..., Any]:
    class Model(nn.Module):
        @torch.compile(backend=backend)
        def doubled(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.doubled(x) + 1

    return Model()


MADE = [decorated, lambda: made_inside, method]


@pytest.mark.parametrize("make", MADE, ids=["decorated", "made inside", "method"])
@pytest.mark.slow
def test_compiled_functions_are_captured_as_they_are_written(make: Callable[[], Callable[..., Any]]) -> None:
    program = make()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.compile looks at stand-ins first
        gm = trace(program, (torch.ones(2, 3),))
    assert not gm.report.opaque and "torch_dynamo" not in gm.code
    with torch.compiler.set_stance("force_eager"):
        for x in (torch.ones(4, 3), -torch.ones(1, 3)):
            assert torch.equal(gm(x), program(x))
    COMPILED.clear()
    program(torch.ones(2, 3))
    assert COMPILED  # it is compiled again where it was
