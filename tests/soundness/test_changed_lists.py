"""Lists, dicts and sets of a run that change between two questions, and lists that change under a loop over them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from graphwright import GraphwrightError, trace


def emptied(x: Tensor) -> Tensor:
    rows = []
    for row in x:
        rows.append(row)
    if not rows:
        return x - 1
    rows.pop()
    if not rows:
        return x + 1
    return x * 2


def asked_twice(x: Tensor) -> Tensor:
    rows = []
    for row in x:
        rows.append(row)
    before = bool(rows)
    rows.clear()
    return (x if before else x + 1) * (2 if rows else 3)


def grown_on_one_side(x: Tensor) -> Tensor:
    sums = [x.sum()]
    if x.sum() > 0:
        sums.append(x.sum() + 1)
    if not sums:
        return x - 1
    sums.pop()
    return x * 2 if sums else x + 1


def table(x: Tensor) -> Tensor:
    rows = {}
    for i, row in enumerate(x):
        rows[i] = row
    if not rows:
        return x
    rows.pop(0)
    return x * 2 if rows else x + 1


def longer_while_gone_over(x: Tensor) -> tuple[Tensor, int]:
    numbers: list[Any] = [1.0, 2]
    for number in numbers:
        if x.sum() > number:
            break
        if len(numbers) < 4:
            numbers.append(number + 1)
    return x * number, len(numbers)


def shorter_while_gone_over(x: Tensor) -> tuple[Tensor, int]:
    values = [x, x + 1]
    for value in values:
        if value.sum() > 3:
            values.pop()
    return value, len(values)


def numbered_while_longer(x: Tensor) -> tuple[Tensor, int, int]:
    values: list[Any] = [x, 2, x + 1]
    for i, value in enumerate(values):  # noqa: B007
        if x.sum() > 3:
            values.insert(0, value)
        if len(values) > 4:
            break
    return x * value, len(values), i


PROGRAMS: list[Callable[..., Any]] = [
    emptied, asked_twice, grown_on_one_side, table, longer_while_gone_over, shorter_while_gone_over,
    numbered_while_longer,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_what_is_asked_again_is_asked_of_what_is_there_now(program: Callable[..., Any]) -> None:
    try:
        gm = trace(program, (torch.zeros(3, 1),))
    except GraphwrightError:
        assert program is numbered_while_longer  # refused: it forks too often
        return
    for rows in (1, 2, 3):
        for value in (-2.0, 0.0, 1.0, 4.0):
            x = torch.full((rows, 1), value)
            torch.testing.assert_close(gm(x), program(x), rtol=0, atol=0)


def searching(x: Tensor) -> tuple[Tensor, int]:
    waiting, count = [x], 0
    while waiting and count < 6:
        last = waiting.pop()
        count = count + 1
        if last.sum() > 4:
            waiting.append(last - 1)
            waiting.append(last - 2)
    return x * count, len(waiting)


def test_a_list_that_ends_a_loop_with_something_else_is_refused_in_words() -> None:
    with pytest.raises(GraphwrightError, match="forks into more than 8 paths"):
        trace(searching, (torch.ones(3, 1),))
