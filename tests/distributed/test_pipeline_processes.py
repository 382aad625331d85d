"""Stages in processes of their own: values and gradients are those of the whole program in one."""

from __future__ import annotations

import copy
import datetime
import os
import time
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
from graphwright.errors import PassError

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


def check_failing(rank: int, is_dead: bool, timeout_s: float) -> None:
    """Rank 1 ends, or waits for something else; rank 0 does not wait for it longer than the group's timeout."""
    program = programs.skip()
    stages = pipeline(graphwright.trace(program.model, program.args), 2, args=program.args, output="out")
    schedule = ScheduleGPipe(stages.stage(rank), n_microbatches=1, loss_fn=program.loss)
    if rank == 1:
        time.sleep(0 if is_dead else 3 * timeout_s)
        os._exit(0)
    started = time.monotonic()
    with pytest.raises(RuntimeError):
        schedule.step(*program.args)
    assert time.monotonic() - started < 2 * timeout_s
    os._exit(0)


@pytest.mark.slow
@pytest.mark.parametrize("is_dead", [True, False], ids=["dead", "busy"])
def test_nobody_waits_longer_than_the_timeout(is_dead: bool) -> None:
    run_in_processes(check_failing, 2, is_dead, 5.0, timeout=datetime.timedelta(seconds=5))


def check_parts(rank: int) -> None:
    """Two stages for three processes: no rank waits for what another one cannot make."""
    program = programs.skip()
    stages = pipeline(graphwright.trace(program.model, program.args), 2, args=program.args, output="out")
    with pytest.raises(PassError, match=r"there are 2 stages for 3 processes|there is no stage 2: the program has 2"):
        stages.stage(rank)


@pytest.mark.slow
def test_a_rank_without_a_part_is_an_error_on_every_rank() -> None:
    run_in_processes(check_parts, 3)
