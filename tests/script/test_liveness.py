"""What a branch gives to the ways that leave a loop, and to those that stay in it."""

from __future__ import annotations

import torch

from graphwright import script


def leaves_two_ways_and_stays(x: torch.Tensor, n: int) -> torch.Tensor:
    count = 0
    while count < 4:
        count = count + 1
        if x.sum() > 3:
            if x[0] < x[1]:
                return x
            else:
                break
        if n > 5:
            return x + 1
        x = x + count
    return x * 2


def test_a_variable_that_only_one_way_needs_stays_what_it_is() -> None:
    gm = script(leaves_two_ways_and_stays)
    for x in (torch.tensor([-9.0, 1.0]), torch.tensor([1.0, 3.0]), torch.tensor([3.0, 1.0]), torch.tensor([-3.0, 1.0])):
        for n in (0, 9):
            assert torch.equal(gm(x, n), leaves_two_ways_and_stays(x, n))


def assigns_what_it_had_left_out(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    if x.sum() > 0:
        if x.max() > 9:
            return x
        elif x.min() > 0:
            if x.sum() > 5:
                return x - 1
        y = x + 1
    return x + y


def test_what_follows_an_early_return_assigns_a_variable_for_all_that_comes_after() -> None:
    gm = script(assigns_what_it_had_left_out)
    for values in ([1.0, 2.0], [1.0, 12.0], [3.0, 4.0], [-1.0, 2.0], [-1.0, -2.0]):
        x = torch.tensor(values)
        assert torch.equal(gm(x), assigns_what_it_had_left_out(x))


def never_breaks(x: torch.Tensor, n: int) -> torch.Tensor:
    for _ in range(n):
        x = x + 1
        continue
        break
    else:
        x = x * 2
    return x


def test_a_break_that_is_never_reached_leaves_the_else_of_a_loop_alone() -> None:
    gm = script(never_breaks)
    for n in (0, 3):
        assert torch.equal(gm(torch.ones(2), n), never_breaks(torch.ones(2), n))


def leaves_before_another_value_is_given(x: torch.Tensor, n: int) -> torch.Tensor:
    b = n
    for row in x:
        if row.sum() > 0:
            if row[0] > row[1]:
                b = b + 1
                break
            else:
                b = b + 2
            if row[0] < -1:
                b = b + 3
                x = x * 2
        b = 1
    return x * b


def test_a_value_that_only_what_follows_reads_ends_with_that() -> None:
    gm = script(leaves_before_another_value_is_given)
    for x in (torch.tensor([[-2.0, 3.0], [3.0, 1.0]]), torch.tensor([[1.0, 3.0], [-3.0, 1.0]]), torch.ones(0, 2)):
        for n in (0, 5):
            assert torch.equal(gm(x, n), leaves_before_another_value_is_given(x, n))
