"""Which of several calls is the fastest: each round samples all of them in turn, and a new one has to win by a margin.

Times are the processor's, of this thread, where torch computes in one; with several threads they are those of a clock.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

MARGIN = 0.03  # of the time of what is there already
_SAMPLE_S = 0.0005
_LONG_S = 0.002  # a call that needs no other one before it to have its caches warm
_ROUNDS_AT_LEAST, _ROUNDS_AT_MOST = 5, 40
_ROUNDS_OF_ALL = 3
_HOPELESS = 1.25  # in each of the first rounds this much slower than the best
_CLEAR = 0.9  # in each round at most this much of the time of each other one


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured: the name of what to use, and of each call its typical time in microseconds."""

    best: str
    times_us: Mapping[str, float]


def fastest(
    calls: Mapping[str, Callable[[], Any]],
    seconds: float,
    margin: float = MARGIN,
    before: Callable[[], Any] | None = None,
) -> Measured:
    """Measure calls against the first of them, for about so many seconds.

    `before` runs before each call, and is not measured: what puts state back that calls leave, or they would not do the
    same each time, or go on as far as they cannot.

    The first is kept, unless another one takes less than `1 - margin` of its time, in its typical and its best rounds.
    It ends before its time where one is faster than each other one by far in every round.

    >>> import math
    >>> fastest({"slow": lambda: sum(range(20000)), "fast": lambda: 0}, 0.05).best
    'fast'
    >>> fastest({"here": lambda: sum(range(999)), "same": lambda: sum(range(999))}, 0.05).best
    'here'
    """
    names = list(calls)
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    once = {name: _sample(clock, calls[name], 1, before=before) for name in names}
    counts = {name: 1 if before else max(1, math.ceil(_SAMPLE_S / max(once[name], 1e-7))) for name in names}
    samples: dict[str, list[float]] = {name: [] for name in names}
    start, turn = time.monotonic(), 0
    while turn < _ROUNDS_AT_LEAST or (turn < _ROUNDS_AT_MOST and time.monotonic() - start < seconds):
        turned = turn % len(names)
        for name in (*names[turned:], *names[:turned]):
            samples[name].append(_sample(clock, calls[name], counts[name], once[name] < _LONG_S, before))
        turn += 1
        if turn == _ROUNDS_OF_ALL:
            names = _hopeful(names, samples)
        if turn >= _ROUNDS_AT_LEAST and _is_clear([samples[name] for name in names]):
            break
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


def _is_clear(samples: Sequence[Sequence[float]]) -> bool:
    """Tell whether one call has been faster by far than each other one, in every round.

    >>> _is_clear([[2.0, 3.0], [1.0, 2.0]]), _is_clear([[2.0, 1.0], [1.0, 2.0]])
    (True, False)
    """
    best = min(samples, key=min)
    return all(
        time < _CLEAR * other
        for others in samples
        if others is not best
        for time, other in zip(best, others, strict=True)
    )


def _typical(times: list[float]) -> float:
    """The lower quartile: what else runs on the machine makes times longer, and never shorter."""
    return sorted(times)[len(times) // 4]


def _sample(
    clock: Callable[[], float],
    call: Callable[[], Any],
    count: int,
    warm: bool = True,
    before: Callable[[], Any] | None = None,
) -> float:
    """Seconds of one call, of so many in a row."""
    if warm:
        _put_back(before)
        call()  # for the caches
    _put_back(before)
    start = clock()
    for _ in range(count):
        call()
    return (clock() - start) / count


def _put_back(before: Callable[[], Any] | None) -> None:
    if before is not None:
        before()
