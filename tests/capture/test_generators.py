"""Generator functions of the program with conditions on data, whose values are gathered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from graphwright import CaptureError, trace


def some(x: Tensor, count: int = 3) -> Iterator[Tensor]:
    for i in range(count):
        if x.sum() > i:
            yield x * i


def ends(x: Tensor) -> Iterator[Tensor]:
    if x.sum() > 0:
        yield x
        return
    for i in range(2):
        if x[0].sum() < -i:
            yield from some(x - i)
        yield x - i


def written(x: Tensor) -> Iterator[Tensor]:
    total = x.clone()
    for i in range(2):
        if x.sum() > i:
            total.add_(1)
        yield total


class Rows:
    def above(self, x: Tensor, bound: float) -> Iterator[Tensor]:
        for row in x:
            if row.sum() > bound:
                yield row
        yield x[0]


def used_twice(x: Tensor) -> Any:
    return x + sum(some(x)) + sum(some(x + 1, count=4))


def used_in_turn(x: Tensor) -> Any:
    return x + sum(ends(x)) + sum(ends(-x))


def listed(x: Tensor) -> Any:
    return torch.stack(list(ends(x))) * len(tuple(some(x)))


def methods(x: Tensor) -> Any:
    return x + sum(Rows().above(x, 1.0)) + len(list(Rows().above(-x, bound=2.0)))


def inner(x: Tensor) -> Any:
    def both() -> Iterator[Tensor]:
        if x.sum() > 2:
            yield x * 2
        yield x

    return x + sum(both()) + sum(both())


@pytest.mark.parametrize("program", [used_twice, used_in_turn, listed, methods, inner])
def test_generators_are_gathered(program: Callable[..., Any]) -> None:
    gm = trace(program, (torch.ones(2, 3),))
    torch.manual_seed(0)
    for x in (torch.ones(2, 3), -torch.ones(2, 3), *torch.randn(6, 2, 3)):
        assert torch.equal(gm(x), program(x))


@pytest.mark.parametrize("gather", [sum, lambda values: torch.stack(list(values))])
def test_what_is_written_between_two_values_is_seen_in_turn(gather: Any) -> None:
    def program(x: Tensor) -> Any:
        return sum(written(x)) if gather is sum else torch.stack(list(written(x)))

    gm = trace(program, (torch.ones(2, 3),))
    for x in (torch.ones(2, 3), -torch.ones(2, 3), torch.full((2, 3), 0.1)):
        assert torch.equal(gm(x), program(x))


def test_one_that_is_gone_over_forks() -> None:
    """What a loop does between two values may change what the generator gives next."""

    def program(x: Tensor) -> Any:
        total = x * 0
        for value in some(x):
            total = total + value
        return total

    gm = trace(program, (torch.ones(2, 3),))
    for x in (torch.ones(2, 3), -torch.ones(2, 3), torch.full((2, 3), 0.1)):
        assert torch.equal(gm(x), program(x))
    with pytest.raises(CaptureError, match="forks into more than 8 paths"):
        trace(lambda x: program(x) + program(x + 1), (torch.ones(2, 3),))
