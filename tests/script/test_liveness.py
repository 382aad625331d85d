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
