"""What a program catches where an operation or a number fails for some sizes, captured for each of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.capture.programs_that_fail_by_size import GUARDED, RIGHT

from graphwright import GuardError, trace

SIZES = (2, 3, 4, 5)


@pytest.mark.parametrize("example", [2, 3, 4])
@pytest.mark.parametrize("program", RIGHT, ids=lambda program: program.__name__)
def test_each_size_does_what_eager_does(program: Callable[[Any], Any], example: int) -> None:
    gm = trace(program, (torch.arange(1.0, 1 + example),))
    for size in SIZES:
        x = torch.arange(1.0, 1 + size)
        if example in GUARDED.get(program, ()) and size != example:
            with pytest.raises(GuardError):
                gm(x)
        else:
            assert torch.equal(gm(x), program(x))


def test_what_fails_where_the_example_does_not_go_leaves_the_loop_a_loop() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        total = x.sum()
        try:
            for row in x:
                if x.shape[0] == 1:
                    row = row.view(3)
                total = total + row.sum()
        except KeyError:
            total = total * 2
        return total

    gm = trace(program, (torch.ones(3, 2),))
    for size in (2, 5):
        x = torch.rand(size, 2)
        assert torch.equal(gm(x), program(x))
    with pytest.raises(GuardError):
        gm(torch.ones(1, 3))


@pytest.mark.parametrize("index", [5, (5, 4), (Ellipsis, 5), (None, 5)])
def test_an_index_that_the_example_does_not_have_leaves_a_branch_a_branch(index: Any) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] > 5 and x.shape[1] > 5:
            return x[index].sum()
        return x.sum()

    gm = trace(program, (torch.ones(3, 3),))
    for size in (3, 7):
        x = torch.rand(size, size)
        assert torch.equal(gm(x), program(x))


def written_in_place(x: torch.Tensor) -> torch.Tensor:
    try:
        x[:, 0] += 1
    except RuntimeError:
        return x - 1
    return x


def as_an_array(x: torch.Tensor) -> torch.Tensor:
    try:
        return x * float(x.numpy().sum())
    except RuntimeError:
        return x


def differentiated(x: torch.Tensor) -> torch.Tensor:
    try:
        return torch.autograd.grad((x * x).sum(), x)[0]
    except RuntimeError:
        return x


@pytest.mark.parametrize("wants_gradient", [True, False])
@pytest.mark.parametrize("program", [written_in_place, as_an_array, differentiated])
def test_what_fails_by_gradients_is_guarded_by_them(program: Any, wants_gradient: bool) -> None:
    gm = trace(program, (torch.ones(2, 3).requires_grad_(wants_gradient),))
    for wants in (True, False):
        want, x = (torch.full((2, 3), 2.0).requires_grad_(wants) for _ in range(2))
        try:
            assert torch.equal(gm(x), program(want)) and torch.equal(x, want)
        except GuardError:
            assert wants is not wants_gradient
