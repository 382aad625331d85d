"""Variables that the sides of a branch leave in other kinds: nothing where nothing reads them, else what eager does."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
from torch import Tensor

from graphwright import GraphwrightError, trace


def of_no_use(rows: Tensor, ways: Tensor) -> Any:
    found = []
    for row in rows:
        if row.sum() > 0:
            places = row.nonzero()
            kept = row[places[:, 0], places[:, 1]]
        else:
            values, places = row.max(1, keepdim=True)
            kept = values[:, 0] * places[:, 0]
        found.append(kept.sum())
    return torch.stack(found)


def used_anew(rows: Tensor, ways: Tensor) -> Any:
    found = []
    for row in rows:
        if row.sum() > 0:
            part = row.sum(1)
            kept = part.sum()
        else:
            part = row
            kept = part.mean()
        part = row * kept
        found.append(part)
    return torch.stack(found)


def in_a_while(rows: Tensor, ways: Tensor) -> Any:
    total = rows.sum()
    while total < 8:
        if total > 2:
            step = rows.sum()
            total = total + step.abs() + 1
        else:
            step = rows.abs()
            total = total + step.sum() + 1
    return total


@pytest.mark.parametrize("program", [of_no_use, used_anew, in_a_while])
def test_a_loop_stays_one(program: Any) -> None:
    gm = trace(program, (torch.ones(2, 3, 2), torch.ones(2)))
    for rows in (torch.ones(4, 2, 2), -torch.ones(3, 2, 3), torch.randn(5, 3, 2), torch.ones(1, 1, 1) / 9):
        assert torch.equal(gm(rows, torch.ones(2)), program(rows, torch.ones(2)))


def next_time(rows: Tensor, ways: Tensor) -> Any:
    last = rows[0]
    for row in rows:
        if row.sum() > 0:
            row = row + last
            last = row
        else:
            last = row * 2
    return last


def before_its_value(rows: Tensor, ways: Tensor) -> Any:
    total, last = rows[0, 0], rows[0, 0]
    for row in rows:
        total = total + last
        if row.sum() > 0:
            last = row[0]
        else:
            last = row[-1] * 3
    return total


def in_a_handler(rows: Tensor, ways: Tensor) -> Any:
    last: Any = 0
    try:
        if rows.sum() > 0:
            last = rows.sum()
        else:
            last = rows.mean() * 2
        if ways.sum() > 0:
            raise ValueError
        last = 5
    except ValueError:
        return rows + last
    return rows


def at_the_end(rows: Tensor, ways: Tensor) -> Any:
    found: list[Any] = []
    last: Any = 0
    with contextlib.suppress(ValueError):
        try:
            if rows.sum() > 0:
                last = rows.sum()
            else:
                last = rows.mean() * 2
            if ways.sum() > 0:
                raise ValueError
            last = rows * 0
        finally:
            found.append(last)
    return [*found, last]


def behind_a_with(rows: Tensor, ways: Tensor) -> Any:
    last: Any = rows
    with contextlib.suppress(ValueError):
        if rows.sum() > 0:
            last = rows * 2
        else:
            last = rows * 3
        if ways.sum() > 0:
            raise ValueError
        last = rows * 5
    return last


def in_a_function(rows: Tensor, ways: Tensor) -> Any:
    if rows.sum() > 0:
        last = rows * 2
    else:
        last = rows * 3

    def later() -> Tensor:
        return last

    if ways.sum() > 0:
        last = rows * 5
    else:
        last = rows * 7
    return later()


def in_a_generator(rows: Tensor, ways: Tensor) -> Any:
    last = rows
    made = (last * i for i in range(2))
    if rows.sum() > 0:
        last = rows * 2
    else:
        last = rows * 3
    return list(made)


def deleted(rows: Tensor, ways: Tensor) -> Any:
    for row in rows:
        if row.sum() > 0:
            last = row.sum()
        else:
            last = row
        rows = rows + 1
        del last
    return rows


def in_else(rows: Tensor, ways: Tensor) -> Any:
    last = rows[0]
    for row in rows:
        if row.sum() > 0:
            last = row
        else:
            last = row * 2
        if row.sum() > 100:
            break
    else:
        return last
    return rows


def in_a_message(rows: Tensor, ways: Tensor) -> Any:
    if rows.sum() > 0:
        name = "positive"
    else:
        name = "negative"
    if ways.sum() > 5:
        raise ValueError(f"{name} rows")
    return rows


def by_all_variables(rows: Tensor, ways: Tensor) -> Any:
    if rows.sum() > 0:
        last = rows * 2
    else:
        last = rows * 3
    return sorted(locals())


def in_a_match(rows: Tensor, ways: Tensor) -> Any:
    last = rows
    for i in range(3):
        if rows.sum() > 0:
            last = last + 1
        else:
            last = last * 2
        match i:
            case 1:
                rows = last
            case _:
                rows = rows - 1
    return rows


READ = [
    next_time, before_its_value, in_a_handler, at_the_end, behind_a_with, in_a_function, in_a_generator, deleted,
    in_else, in_a_message, by_all_variables, in_a_match,
]  # fmt: skip


@pytest.mark.parametrize("program", READ)
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("way", [1, -1])
def test_what_is_read_is_what_the_side_left(program: Any, sign: int, way: int) -> None:
    try:
        gm = trace(program, (torch.ones(2, 3, 2) * sign, torch.ones(2) * way))
    except GraphwrightError:
        return
    for rows in (torch.ones(2, 3, 2), -torch.ones(2, 3, 2), torch.randn(4, 3, 2)):
        for ways in (torch.ones(2), -torch.ones(2), torch.ones(7)):
            answers: list[Any] = []
            for each in (gm, program):
                try:
                    answers.append(each(rows, ways))
                except GraphwrightError:
                    break
                except ValueError as error:
                    answers.append(error)
            if len(answers) == 2:
                assert repr(answers[0]) == repr(answers[1])
