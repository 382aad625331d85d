"""How often calls are made to find the fastest: on a clock that only they move."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from graphwright.engines import fastest, measure


class Clock:
    """Gives the time, and calls that take some of it."""

    def __init__(self) -> None:
        self.now, self.counts = 0.0, dict[str, int]()

    def taking(self, **seconds: float) -> dict[str, Callable[[], None]]:
        """Calls by name, each of so many seconds."""
        self.counts = dict.fromkeys(seconds, 0)
        return {name: self._call(name, spent) for name, spent in seconds.items()}

    def _call(self, name: str, spent: float) -> Callable[[], None]:
        def call() -> None:
            self.counts[name] += 1
            self.now += spent

        return call


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    functions = dict.fromkeys(("thread_time", "perf_counter", "monotonic"), lambda: made.now)
    monkeypatch.setattr(measure, "time", SimpleNamespace(**functions))
    return made


def test_what_is_clear_is_not_asked_again(clock: Clock) -> None:
    assert fastest(clock.taking(here=0.01, other=0.008), 100.0).best == "other"
    assert clock.counts == {"here": 7, "other": 7}  # two to know how long they are, and five rounds


def test_the_slow_ones_are_given_up(clock: Clock) -> None:
    calls = clock.taking(here=0.01, slow=0.02, close=0.0099)
    assert fastest(calls, 100.0).best == "here"
    assert clock.counts == {"here": 42, "slow": 5, "close": 42}


def test_short_calls_are_warmed_up(clock: Clock) -> None:
    assert fastest(clock.taking(here=0.0005), 100.0).best == "here"
    assert clock.counts == {"here": 2 + 5 * 2}


def test_time_is_kept(clock: Clock) -> None:
    assert fastest(clock.taking(here=0.01, close=0.0099), 0.2).best == "here"
    assert clock.counts["here"] == 2 + 11


def test_calls_that_leave_something_start_from_the_same_each_time(clock: Clock) -> None:
    found: list[int] = []

    def call() -> None:
        found.append(len(left))
        left.append(0)
        clock.now += 0.0001

    left: list[int] = []
    fastest({"here": call}, 0.01, before=left.clear)
    assert len(found) >= 7 and set(found) == {0}
