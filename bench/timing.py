"""Time contenders against each other: interleaved rounds, CPU time, ratios.

In goes a list of cases that do the same work, out comes one measurement per case. A time is never read on its own:
every round runs each case once, in rotating order, in one process, and a result is the median over the rounds of
(time of the case / time of the baseline in the same round).
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

# CPU time of this process: what other programs do on the same cores does not count. One thread only.
_clock = time.process_time

# Where every case takes less than this, each is run once, untimed, before each of its samples.
SHORT_S = 0.1


@dataclass(frozen=True, slots=True)
class Case:
    """One contender: `work(*prepare())` is run, and only `work` is timed.

    With `collector` off Python's garbage collector is paused while the work is timed.
    """

    name: str
    work: Callable[..., object]
    prepare: Callable[[], tuple[Any, ...]] = tuple
    collector: bool = True


@dataclass(frozen=True, slots=True)
class Measurement:
    """Seconds of CPU time for one run of a case, and its ratio to the baseline's."""

    name: str
    median_s: float
    best_s: float
    ratio: float
    lowest_ratio: float
    highest_ratio: float
    rounds: int


def interleave(cases: Sequence[Case], baseline: str, rounds: int, budget_s: float = 120.0) -> list[Measurement]:
    """Time the cases round by round and compare each with the baseline of the same round.

    Every case runs once first, untimed. After `budget_s` seconds of wall-clock time no further round starts, but three
    are run.
    """
    if not cases:
        return []
    warm = max(_sample(case, warm=False) for case in cases) < SHORT_S
    times: dict[str, list[float]] = {case.name: [] for case in cases}
    start = time.monotonic()
    for turn in range(rounds):
        if turn >= 3 and time.monotonic() - start > budget_s:
            break
        first = turn % len(cases)
        for case in (*cases[first:], *cases[:first]):
            times[case.name].append(_sample(case, warm))
    return [_compare(case.name, times[case.name], times[baseline]) for case in cases]


def rounds_for(nodes: int) -> int:
    """Return how many rounds are worth their time for a graph of that size."""
    return {1_000: 15, 10_000: 7}.get(nodes, 3)


def runnable(cases: Sequence[Case]) -> list[Case]:
    """Return the cases that run, and say of the others why not; none at all without the first, the baseline."""
    kept = []
    for case in cases:
        try:
            case.work(*case.prepare())
        except Exception as error:
            print(f"   {case.name}: absent or failed: {error!r:.150}")
        else:
            kept.append(case)
    return kept if kept and kept[0] is cases[0] else []


def _sample(case: Case, warm: bool) -> float:
    """Run a case once, or when `warm` twice, and return the seconds of the last run.

    Graphs are cycles, left to the collector, and a full collection walks all of torch, which takes longer than building
    a thousand nodes. So what earlier runs left is collected before, and what this one makes is kept until the clock has
    stopped. Repeating work within a sample would charge the faster side, which repeats more, for the collections.

    The collection also empties the processor's caches, which made work of a millisecond 10 to 25 % slower and work of
    ten milliseconds hardly at all: hence the run before. What that one makes is frozen, or it would bring a full
    collection about.
    """
    gc.collect()
    gc.disable()
    try:
        made = [case.work(*case.prepare())] if warm else []
        arguments = case.prepare()
        if warm:
            gc.freeze()
        else:
            gc.collect()
        if case.collector:
            gc.enable()
        start = _clock()
        made.append(case.work(*arguments))
        return _clock() - start
    finally:
        gc.enable()
        gc.unfreeze()


def _compare(name: str, times: list[float], baseline: list[float]) -> Measurement:
    ratios = [own / base for own, base in zip(times, baseline, strict=True)]
    return Measurement(
        name, statistics.median(times), min(times), statistics.median(ratios), min(ratios), max(ratios), len(times)
    )
