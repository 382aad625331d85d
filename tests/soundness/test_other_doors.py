"""What `script` and `symbolic_trace` capture follows a change of the world, or says why not, as what `trace` does."""

from __future__ import annotations

import random
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from changes import CHANGES, STEPS, World, draw
from test_changes import is_same, outcome

from graphwright import CaptureError, ScriptError, script, symbolic_trace


def check(capture: Callable[[Any], Any], world: World, change: str) -> bool:
    """Capture, change the world, and compare; tell whether there was anything to compare."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            world.captured = capture(world.module)
        except (CaptureError, ScriptError):
            return False  # loud
        CHANGES[change](world)
        for _ in range(2):
            eager, captured = outcome(world, world.module), outcome(world, world.captured)
            if isinstance(captured, str):
                return False
            story = (
                f"{change} after capture of\n{world.body}\neager {eager}\ncaptured {captured}\n{world.captured.code}"
            )
            assert is_same(captured, eager), story
    return True


DECLARED = "x: torch.Tensor, y: torch.Tensor, n: int, items: list[torch.Tensor], options: dict[str, int]"


# What `symbolic_trace` takes for granted: questions of Python, and not of torch, are answered for the proxy (its class,
# its identity, its place in a dict); attributes of modules and globals are constants, and so is the gradient mode.
TAKEN_FOR_GRANTED = (
    *("isinstance", "type(", "is_tensor", "hasattr", "finfo", " is y", ".get(", "is_grad_enabled"),
    *("self.", "SCALE", "MODE", "helper"),
)
OF_INPUTS = [*CHANGES][: [*CHANGES].index("train")] + ["no grad", "autocast"]


def scripted(start: int, stop: int) -> int:
    """Check some programs; tell how many could be compared."""
    return sum(check(script, *draw(seed, DECLARED)) for seed in range(start, stop))


def traced(start: int, stop: int) -> int:
    """Check some programs that `symbolic_trace` takes nothing for granted of; tell how many could be compared."""
    steps = [step for step in STEPS if not any(part in step for part in TAKEN_FOR_GRANTED)]
    found = 0
    for seed in range(start, stop):
        chance = random.Random(seed)
        world = World(chance.sample(steps, chance.choice((1, 1, 2, 3))))
        found += check(symbolic_trace, world, chance.choice(OF_INPUTS))
    return found


@pytest.mark.parametrize("program", [scripted, traced])
def test_programs_follow_a_change_or_are_loud(program: Callable[[int, int], int]) -> None:
    assert program(0, 30) > 20


@pytest.mark.slow
@pytest.mark.parametrize("program", [scripted, traced])
@pytest.mark.parametrize("start", range(30, 530, 100))
def test_many_programs_follow_changes_or_are_loud(program: Callable[[int, int], int], start: int) -> None:
    assert program(start, start + 100) > 70
