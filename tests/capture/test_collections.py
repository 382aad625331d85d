"""Python's garbage collector during a capture: it looks at what is new, and everything else is left as it was."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from graphwright import Tracer
from graphwright.garbage import rare_collections

USUAL = (700, 10, 10)
WHILE_CAPTURING = (10_000, 1_000, 1_000)


@pytest.fixture(autouse=True)
def _usual_thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(*USUAL)
    yield
    gc.set_threshold(*before)


def _chain(x: Any) -> Any:
    for _ in range(3_000):
        x = torch.relu(x)
    return x


def _started(work: Any) -> list[int]:
    """The generations that the collector goes over while something runs."""
    generations: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            generations.append(info["generation"])

    Tracer().trace(lambda x: x)  # what is imported at first use
    gc.collect()
    gc.callbacks.append(note)
    try:
        work()
    finally:
        gc.callbacks.remove(note)
    return generations


def test_a_long_capture_is_gone_over_once_or_twice() -> None:
    # Some 12,000 objects: a list of as many has the collector start 17 times.
    started = _started(lambda: Tracer().trace(_chain))
    assert len(started) <= 2, started
    assert max(started, default=0) < 2, "a full collection"
    assert len(_started(lambda: [[] for _ in range(12_000)])) >= 15


def test_thresholds_are_put_back_by_the_last_capture_that_ends() -> None:
    with rare_collections():
        with rare_collections():
            assert gc.get_threshold() == WHILE_CAPTURING
        assert gc.get_threshold() == WHILE_CAPTURING
    assert gc.get_threshold() == USUAL


def test_thresholds_are_put_back_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError):
        Tracer().trace(lambda x: x + 1 // 0)
    assert gc.get_threshold() == USUAL


def test_cycles_are_found_meanwhile() -> None:
    with rare_collections():
        assert gc.isenabled()
        assert _started(lambda: [[[]] for _ in range(12_000)])


@pytest.mark.parametrize("thresholds", [(0, 10, 10), (200_000, 5, 5)])
def test_thresholds_of_the_user_stay(thresholds: tuple[int, int, int]) -> None:
    gc.set_threshold(*thresholds)
    with rare_collections():
        assert gc.get_threshold() == thresholds
    assert gc.get_threshold() == thresholds


def test_thresholds_that_somebody_sets_meanwhile_stay() -> None:
    with rare_collections():
        gc.set_threshold(500, 5, 5)
    assert gc.get_threshold() == (500, 5, 5)


def test_a_paused_collector_stays_paused_and_one_paused_meanwhile_too() -> None:
    gc.disable()
    try:
        Tracer().trace(_chain)
        assert not gc.isenabled()
        gc.enable()
        with rare_collections():
            gc.disable()
        assert not gc.isenabled()
    finally:
        gc.enable()
