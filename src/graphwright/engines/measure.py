"""Which of several calls is the fastest: each round samples all of them in turn, and a new one has to win by a margin.

Times are the processor's, of this thread, where torch computes in one; with several threads they are those of a clock.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

__all__ = ["Measured", "fastest"]

MARGIN = 0.03  # of the time of what is there already
_SAMPLE_S = 0.0005
_ROUNDS_AT_LEAST, _ROUNDS_AT_MOST = 5, 40
_HOPELESS = 1.25  # in each of the first rounds this much slower than the best


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured: the name of what to use, and of each call its typical time in microseconds."""

    best: str
    times_us: Mapping[str, float]


def fastest(calls: Mapping[str, Callable[[], Any]], seconds: float, margin: float = MARGIN) -> Measured:
    """Measure calls against the first of them, for about so many seconds.

    The first is kept, unless another one takes less than `1 - margin` of its time, in its typical and its best rounds.

    >>> import math
    >>> fastest({"slow": lambda: sum(range(20000)), "fast": lambda: 0}, 0.05).best
    'fast'
    >>> fastest({"here": lambda: sum(range(999)), "same": lambda: sum(range(999))}, 0.05).best
    'here'
    """
    names = list(calls)
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    counts = {name: max(1, math.ceil(_SAMPLE_S / max(_sample(clock, calls[name], 1), 1e-7))) for name in names}
    samples: dict[str, list[float]] = {name: [] for name in names}
    start, turn = time.monotonic(), 0
    while turn < _ROUNDS_AT_LEAST or (turn < _ROUNDS_AT_MOST and time.monotonic() - start < seconds):
        turned = turn % len(names)
        for name in (*names[turned:], *names[:turned]):
            samples[name].append(_sample(clock, calls[name], counts[name]))
        turn += 1
        if turn == _ROUNDS_AT_LEAST:
            names = _hopeful(names, samples)
    first = next(iter(calls))
    typical = {name: _typical(samples[name]) for name in names}
    least = {name: min(samples[name]) for name in names}
    winners = [name for name in names if all(each[name] < (1 - margin) * each[first] for each in (typical, least))]
    best = min(winners, key=typical.__getitem__, default=first)
    return Measured(best, {name: _typical(each) * 1e6 for name, each in samples.items()})


def _hopeful(names: list[str], samples: dict[str, list[float]]) -> list[str]:
    """The first, and those that are not slower than the best by far."""
    best = min(min(samples[name]) for name in names)
    return [name for i, name in enumerate(names) if i == 0 or min(samples[name]) <= best * _HOPELESS]


def _typical(times: list[float]) -> float:
    """The lower quartile: what else runs on the machine makes times longer, and never shorter."""
    return sorted(times)[len(times) // 4]


def _sample(clock: Callable[[], float], call: Callable[[], Any], count: int) -> float:
    """Seconds of one call, of so many in a row."""
    call()  # for the caches
    start = clock()
    for _ in range(count):
        call()
    return (clock() - start) / count
