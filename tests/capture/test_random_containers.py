"""Random programs with containers: what is captured gives what eager gives, or says why not; nothing ends otherwise."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.capture.random_containers import random_program

from graphwright import GraphwrightError, script, trace

SEEDS = [*range(0, 400, 8)]


def plain(value: Any) -> Any:
    """Classes and contents of containers, tensors as lists."""
    if isinstance(value, torch.Tensor):
        return "tensor", [round(item, 4) + 0.0 for item in value.flatten().tolist()], value.shape
    if isinstance(value, dict):
        return type(value), [(plain(key), plain(item)) for key, item in value.items()]
    if isinstance(value, set):
        return set, sorted(map(repr, value))
    if hasattr(value, "__iter__") and not isinstance(value, str):
        return type(value), [plain(item) for item in value]
    return round(value, 4) if isinstance(value, float) else value


def outcome(function: Any, x: torch.Tensor, n: int) -> Any:
    try:
        return plain(function(x.clone(), n))
    except Exception as error:
        return error


def judge(seed: int, capture: Any) -> int:
    """Capture a program on the first call that works, and compare all; how many were the same."""
    program = random_program(seed)
    torch.manual_seed(seed)
    tensors = [*[torch.randn(2, 3) for _ in range(3)], torch.randn(4, 3), -torch.rand(3, 3), torch.rand(2, 3)]
    calls = [*zip(tensors, (2, 2, 0, 3, 5, 1), strict=True)]
    wanted = [outcome(program, *call) for call in calls]
    example = next(
        (call for call, result in zip(calls, wanted, strict=True) if not isinstance(result, Exception)), None
    )
    if example is None:
        return 0
    try:
        captured = capture(program, example)
    except GraphwrightError as error:
        if "passes" in str(error):  # it would have gone on for ever
            raise
        return 0
    count = 0
    for call, result in zip(calls, wanted, strict=True):
        given = outcome(captured, *call)
        if isinstance(given, Exception):
            assert isinstance(result, Exception) or isinstance(given, GraphwrightError), (seed, call, given)
        else:
            assert given == result, (seed, call, getattr(captured, "code", ""))
            count += 1
    return count


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [SEEDS[:10], pytest.param(SEEDS[10:], marks=pytest.mark.slow)], ids=["few", "many"])
def test_traced_programs_with_containers(seeds: list[int]) -> None:
    same = [judge(seed, trace) for seed in seeds]
    assert sum(same) > len(seeds)


@pytest.mark.parametrize("seeds", [SEEDS[:10], pytest.param(SEEDS[10:], marks=pytest.mark.slow)], ids=["few", "many"])
def test_scripted_programs_with_containers(seeds: list[int]) -> None:
    same = [judge(seed, lambda program, _: script(program)) for seed in seeds]
    assert sum(same) > 0
