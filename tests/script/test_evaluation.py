"""What is evaluated when, and how often: each part of a statement leaves a number in a list."""

from __future__ import annotations

from typing import Any, Dict, List

import pytest
import torch
from tests.script.checking import check

from graphwright import ScriptError, script


def told(log, number: int, value):  # type: ignore[no-untyped-def]
    log.append(number)
    return value


def targets(x, y):  # type: ignore[no-untyped-def]
    log: List[int] = []
    rows, counts = [0, 1, 2], {"a": 1}
    x = x.clone()
    told(log, 1, x)[told(log, 2, 0)] += told(log, 3, y)
    told(log, 4, x)[told(log, 5, 0) :, told(log, 6, 1)] *= told(log, 7, 2)
    x[rows.pop()] -= 1
    told(log, 8, x).data *= 2
    told(log, 9, x)[rows[0]][told(log, 10, 1)] += 1
    told(log, 11, counts)[told(log, 12, "a")] += told(log, 13, 1)
    rows[told(log, 14, 0)], rows[told(log, 15, 1)] = told(log, 16, 5), told(log, 17, 6)
    return x, log, rows, counts


def comprehensions(x):  # type: ignore[no-untyped-def]
    log: List[int] = []
    rows = [1, 2, 3]
    made: Dict[int, int] = {told(log, k, k): told(log, k + 10, k) for k in told(log, 0, rows)}
    log.append(sum(told(log, k, k) for k in rows))
    return x, log, made


def defaults(x, n: int):  # type: ignore[no-untyped-def]
    log: List[int] = []

    def scaled(v, by: int = told(log, 1, n), *, plus: int = told(log, 2, 3)):  # type: ignore[no-untyped-def]
        return v * by + plus

    n = 100
    late = lambda: n  # noqa: E731
    early = lambda n=n: n  # noqa: E731
    n = 7
    return scaled(x) + scaled(x, plus=1), log, late(), early()


def test_each_part_is_evaluated_once_and_in_order() -> None:
    check(targets, [(torch.randn(3, 3), torch.randn(3)) for _ in range(3)])
    check(comprehensions, [(torch.randn(3),)])
    check(defaults, [(torch.randn(3), n) for n in (2, 5)])


def any_of(x):  # type: ignore[no-untyped-def]
    log: List[int] = []
    found = any(told(log, k, k > 1) for k in [1, 2, 3])
    return x, log, found


def in_turn(x):  # type: ignore[no-untyped-def]
    log: List[int] = []
    for k in (told(log, k, k) for k in [1, 2]):
        log.append(k + 10)
    return x, log


def extended(x):  # type: ignore[no-untyped-def]
    log = [1, 2]
    log.extend(told(log, k, k) for k in [3, 4])
    return x, log


@pytest.mark.parametrize("program", [any_of, in_turn, extended])
def test_a_generator_that_acts_is_refused_where_it_may_stop_or_wait(program: Any) -> None:
    with pytest.raises(ScriptError, match="does more than to give items"):
        script(program)
