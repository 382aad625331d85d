"""torch.compile runs graphs that passes of this library have edited."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch._dynamo
import torch.utils.checkpoint
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter

import graphwright
from graphwright import compile_backend
from graphwright.errors import PassError
from graphwright.passes import MergeSubexpressions


def program(x: Tensor, scale: float = 2.0) -> Tensor:
    y = (x + 1) * (x + 1)
    if x.shape[0] > 3:
        y = y * scale
    return y @ y.transpose(-1, -2)


@pytest.fixture(autouse=True)
def _fresh() -> Any:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("then", ["eager", "aot_eager"])
def test_programs_give_what_they_give(then: str) -> None:
    compiled = torch.compile(program, backend=compile_backend([MergeSubexpressions()], then=then))
    for rows in (2, 3, 5, 8):
        x = torch.randn(rows, 3, requires_grad=True)
        assert torch.equal(compiled(x), program(x))
        compiled(x).sum().backward()
        gradient, x.grad = x.grad, None
        program(x).sum().backward()
        assert torch.equal(gradient, x.grad)  # type: ignore[arg-type]


def test_passes_edit_what_another_backend_gets() -> None:
    seen: list[torch.fx.GraphModule] = []

    def keep(module: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        seen.append(module)
        return module.forward

    x = torch.randn(2, 3)
    assert torch.equal(torch.compile(program, backend=compile_backend([MergeSubexpressions()], keep))(x), program(x))
    calls = [node.target.__name__ for node in seen[0].graph.nodes if node.op == "call_function"]
    assert calls.count("add") == 1


def test_nothing_is_compiled_more_often() -> None:
    counts = []
    for passes in ([], [MergeSubexpressions()]):
        counter = CompileCounter()
        compiled = torch.compile(program, backend=compile_backend(passes, then=counter) if passes else counter)
        for rows in (2, 3, 5, 8, 2):
            compiled(torch.randn(rows, 3))
        counts.append(counter.frame_count)
        torch._dynamo.reset()
    assert counts[0] == counts[1]


def test_modules_and_their_buffers() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.ReLU()).train()
    other = graphwright.trace(model, (torch.randn(4, 3),), copy=True)
    compiled = torch.compile(model, backend=compile_backend([MergeSubexpressions()], then="eager"))
    x = torch.randn(4, 3)
    assert torch.equal(compiled(x), other(x))
    assert torch.equal(model[1].running_mean, other.get_buffer("1.running_mean"))  # type: ignore[arg-type]


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.utils.checkpoint.checkpoint(self.linear, x, use_reentrant=False) + x  # type: ignore[no-any-return]


@pytest.mark.parametrize("then", ["eager", "aot_eager"])
def test_operators_run_the_graphs_that_they_are_given(then: str) -> None:
    model, x = Checkpointed(), torch.randn(4, 3)
    compiled = torch.compile(model, backend=compile_backend([MergeSubexpressions()], then=then))
    torch.testing.assert_close(compiled(x), model(x))


def test_the_name_is_one_of_torch_s_backends() -> None:
    assert "graphwright" in torch._dynamo.list_backends(exclude_tags=None)


@pytest.mark.slow
def test_inductor_runs_what_is_left() -> None:
    x = torch.randn(5, 3)
    assert torch.allclose(torch.compile(program, backend="graphwright")(x), program(x), atol=1e-6)


def test_bad_input() -> None:
    with pytest.raises(PassError, match="3 is no pass"):
        compile_backend([3])
    with pytest.raises(PassError, match="3 is no backend"):
        compile_backend(then=3)  # type: ignore[arg-type]
