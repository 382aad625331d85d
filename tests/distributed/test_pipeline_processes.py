"""Stages in processes of their own: values and gradients are those of the whole program in one."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from tests.distributed import programs
from tests.distributed.processes import run_in_processes
from tests.distributed.programs import Program
from torch.distributed.pipelining import Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B

import graphwright
from graphwright.distributed import pipeline

SCHEDULES = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B, "interleaved": ScheduleInterleaved1F1B}


def check(rank: int, cases: list[tuple[Callable[[], Program], str, int]]) -> None:
    for make, schedule, parts in cases:
        check_step(rank, make(), schedule, parts)


def check_step(rank: int, program: Program, schedule: str, parts: int) -> None:
    """Compare a step of a schedule, of four microbatches, with one of the program as it is."""
    reference = copy.deepcopy(program.model)
    gm = graphwright.trace(program.model, program.args, program.kwargs, **program.capture)
    stages = pipeline(gm, parts, args=program.args, kwargs=program.kwargs, microbatches=4, output=program.output)
    size = dist.get_world_size()
    mine = range(rank, parts, size)
    made = [stages.stage(index) for index in mine]
    given: Any = made if schedule == "interleaved" else made[0]
    step = SCHEDULES[schedule](given, n_microbatches=4, loss_fn=program.loss).step
    losses: list[torch.Tensor] = []
    args, kwargs = (program.args, program.kwargs) if rank == 0 else ((), {})
    last = {"target": program.target, "losses": losses} if parts - 1 in mine else {}
    found = step(*args, **kwargs, **last)
    stages.reduce_tied_gradients()

    result = reference(*program.args, **program.kwargs)[program.output]
    loss = program.loss(result, program.target)
    loss.backward()
    if parts - 1 in mine:
        assert abs(torch.stack(losses).mean() - loss) < 1e-6
        if result.dim():
            assert torch.allclose(found, result, atol=1e-6)
    for index in mine:
        for name, parameter in stages[index].module.named_parameters():
            wanted = reference.get_parameter(name).grad
            assert (parameter.grad is None) == (wanted is None), name
            assert wanted is None or (parameter.grad - wanted).abs().max() < 1e-6, name


@pytest.mark.slow
def test_a_skip_over_two_stages_with_tied_weights() -> None:
    run_in_processes(check, 4, [(programs.skip, "gpipe", 4), (programs.skip, "1f1b", 4)])


@pytest.mark.slow
def test_models_of_transformers_in_two_processes() -> None:
    cases = [
        (programs.llama, "gpipe", 2),
        (programs.llama, "interleaved", 4),
        (programs.gpt2, "1f1b", 2),
        (programs.bert, "1f1b", 2),
        (programs.skip, "interleaved", 4),
    ]
    run_in_processes(check, 2, cases)


@pytest.mark.slow
def test_models_of_transformers_in_four_processes() -> None:
    run_in_processes(check, 4, [(programs.llama, "1f1b", 4), (programs.gpt2, "gpipe", 4)])
