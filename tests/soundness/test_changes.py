"""A program, an example, and a change of the world: the captured program gives eager's answer, or says why not."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

from changes import CHANGES, STEPS, World, copy_inputs, draw

from graphwright import CaptureError, GraphwrightError, trace


def outcome(world: World, program: Any) -> Any:
    """What a call gives; what it raises, by class; "loud" for an error of ours."""
    try:
        return world.call(program)
    except GraphwrightError:
        return "loud"
    except Exception as error:
        return type(error)


def is_same(captured: Any, eager: Any) -> bool:
    if isinstance(captured, torch.Tensor) and isinstance(eager, torch.Tensor):
        is_alike = type(captured) is type(eager) and captured.dtype == eager.dtype and captured.shape == eager.shape
        return (
            is_alike
            and captured.requires_grad == eager.requires_grad
            and torch.allclose(captured, eager, equal_nan=True)
        )
    return bool(captured == eager)


def check(world: World, name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            world.captured = trace(world.module, (), copy_inputs(world.inputs))
        except CaptureError:
            return  # loud
        CHANGES[name](world)
        for _ in range(2):
            eager, captured = outcome(world, world.module), outcome(world, world.captured)
            if isinstance(captured, str):
                return
            story = f"{name} after capture of\n{world.body}\neager {eager}\ncaptured {captured}\n{world.captured.code}"
            assert is_same(captured, eager), story


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(60))
def test_a_change_of_the_world_is_followed_or_loud(seed: int) -> None:
    check(*draw(seed))


@pytest.mark.slow
@pytest.mark.parametrize("name", CHANGES)
def test_each_change_under_each_step(name: str) -> None:
    for step in STEPS:
        check(World([step]), name)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(60, 860, 100))
def test_many_changes_of_the_world(start: int) -> None:
    for seed in range(start, start + 100):
        check(*draw(seed))
