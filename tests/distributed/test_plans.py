"""Plans for tensor parallelism and for fully_shard: what they say, and training by them in two processes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.distributed import programs
from tests.distributed.processes import run_in_processes
from tests.distributed.programs import Program
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import parallelize_module

from graphwright import trace
from graphwright.distributed import shard_plan, tensor_parallel_plan
from graphwright.errors import PassError

X = torch.randn(2, 6, 8, generator=torch.Generator().manual_seed(0))


class Attention(nn.Module):
    """Attention of `heads` heads, which reads their number from where `view` says, or from the layer's width."""

    def __init__(self, heads: int = 4, fixed: bool = False, fused: bool = False, normed: bool = False) -> None:
        super().__init__()
        self.heads, self.fixed, self.fused, self.normed = heads, fixed, fused, normed
        self.qkv = nn.Linear(8, 24)
        self.q, self.k, self.v, self.o = (nn.Linear(8, 8) for _ in range(4))
        self.norm = nn.LayerNorm(8)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1) if self.fused else (self.q(x), self.k(x), self.v(x))
        size = 8 // self.heads
        shape = (*x.shape[:2], self.heads if self.fixed else -1, size)
        q, k, v = (each.view(shape).transpose(1, 2) for each in (q, k, v))
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return self.o(self.norm(mixed) if self.normed else mixed)


def test_what_is_split() -> None:
    plan = tensor_parallel_plan(trace(Attention(), X), 4, X)
    assert {path: type(style).__name__ for path, style in plan.items()} == {
        "q": "ColwiseParallel", "k": "ColwiseParallel", "v": "ColwiseParallel", "o": "RowwiseParallel",
    }  # fmt: skip
    assert not plan.refusals


@pytest.mark.parametrize(
    ("options", "count", "reason"),
    [
        pytest.param({"heads": 2}, 4, "2 heads do not divide by 4 processes", id="heads that do not divide"),
        pytest.param({"fixed": True}, 2, "with one of 2 parts of the channels", id="a number of heads in the program"),
    ],
)
def test_what_does_not_divide_is_an_error(options: dict[str, Any], count: int, reason: str) -> None:
    gm = trace(Attention(**options), X)
    with pytest.raises(PassError, match=reason) as caught:
        tensor_parallel_plan(gm, count, X)
    assert "in Attention.forward" in str(caught.value)
    plan = tensor_parallel_plan(gm, count, X, partial=True)
    assert not {"q", "k", "v"} & plan.keys()
    assert [refusal.reason for refusal in plan.refusals if reason in refusal.reason]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        pytest.param({"fused": True}, "as those of several layers made one", id="one layer for three"),
        pytest.param({"normed": True}, "computed over all its channels", id="a norm between"),
    ],
)
def test_what_is_left_whole(options: dict[str, Any], reason: str) -> None:
    plan = tensor_parallel_plan(trace(Attention(**options), X), 2, X)
    assert "q" not in plan and "qkv" not in plan
    assert any(reason in refusal.reason for refusal in plan.refusals), plan


def test_layers_are_refused_once() -> None:
    plan = tensor_parallel_plan(trace(Attention(fused=True), X), 2, X)
    modules = [refusal.modules for refusal in plan.refusals]
    assert len(set(modules)) == len(modules)


def test_tied_layers_are_left_whole() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    model[2].weight = model[0].weight
    assert not tensor_parallel_plan(trace(model, X), 2, X)


def test_more_memory_makes_fewer_units() -> None:
    gm = trace(nn.Sequential(*[nn.Linear(64, 64) for _ in range(8)]), torch.ones(4, 64))
    plans = [shard_plan(gm, torch.ones(4, 64), memory=size, processes=8) for size in (140_000, 180_000, 10**6)]
    assert [len(plan.units) for plan in plans] == [8, 4, 0]
    with pytest.raises(PassError, match="the least is 124,672"):
        shard_plan(gm, torch.ones(4, 64), memory=100_000, processes=8)


# ---- in two processes


def check_tensor_parallel(rank: int, makes: list[Callable[[], Program]]) -> None:
    mesh = init_device_mesh("cpu", (2,))
    for make in makes:
        program = make()
        reference = copy.deepcopy(program.model)
        gm = trace(program.model, program.args, program.kwargs, **program.capture)
        plan = tensor_parallel_plan(gm, mesh, program.args, program.kwargs)
        assert len(plan) > 10 and not plan.refusals, plan
        parallelize_module(gm, mesh, dict(plan))
        compare(gm, reference, program)


def check_fully_shard(rank: int, makes: list[Callable[[], Program]]) -> None:
    mesh = init_device_mesh("cpu", (2,))
    for make in makes:
        program = make()
        reference = copy.deepcopy(program.model)
        gm = trace(program.model, program.args, program.kwargs, **program.capture)
        layers = [name for name, module in gm.named_modules() if type(module).__name__.endswith(("Layer", "Block"))]
        plan = shard_plan(gm, program.args, program.kwargs, at=layers, processes=mesh)
        assert sum(unit.is_wrapped for unit in plan) >= 3
        whole = plan.apply(mesh)
        assert all(isinstance(parameter, DTensor) for parameter in whole.parameters())
        compare(whole, reference, program, lambda name: name.partition(".")[2])


def compare(
    module: nn.Module, reference: nn.Module, program: Program, name_of: Callable[[str], str] = lambda name: name
) -> None:
    """Compare a step, in which all processes see the same inputs, with that of the model as it is."""
    results = []
    for each in (module, reference):
        result = each(*program.args, **program.kwargs)[program.output]
        program.loss(result, program.target).backward()
        results.append(result.full_tensor() if isinstance(result, DTensor) else result)
    assert torch.allclose(*results, atol=1e-5)
    for name, parameter in module.named_parameters():
        wanted, found = reference.get_parameter(name_of(name)).grad, parameter.grad
        found = found.full_tensor() if isinstance(found, DTensor) else found
        assert (found is None) == (wanted is None), name
        assert wanted is None or (found - wanted).abs().max() < 1e-6, name


@pytest.mark.slow
def test_tensor_parallel_in_two_processes() -> None:
    run_in_processes(check_tensor_parallel, 2, [programs.llama, programs.bert])


@pytest.mark.slow
def test_fully_shard_in_two_processes() -> None:
    run_in_processes(check_fully_shard, 2, [programs.llama, programs.gpt2])
