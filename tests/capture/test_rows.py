"""`list(tensor)`: the rows of a tensor as a list of the program, as many as a run has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from graphwright import GuardError, trace


def joined(x: torch.Tensor) -> Any:
    rows = list(x)
    return torch.cat(rows, 0)


def given(x: torch.Tensor) -> Any:
    return list(x)


def gone_over(x: torch.Tensor) -> Any:
    doubled = []
    for row in list(x):
        doubled.append(row * 2)
    return torch.stack(doubled)


def changed(x: torch.Tensor) -> Any:
    rows = list(x)
    rows[0] = rows[0] * 2
    return torch.stack(rows), len(rows)


@pytest.mark.parametrize("program", [joined, given, gone_over, changed])
def test_as_many_rows_as_a_run_has(program: Callable[..., Any]) -> None:
    gm = trace(program, (torch.randn(2, 4),))
    assert gm.guards == []
    for count in (1, 2, 5):
        x = torch.randn(count, 4)
        torch.testing.assert_close(gm(x), program(x), rtol=0, atol=0)


def test_rows_that_are_taken_apart_are_as_many_as_the_example_has() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        first, second = list(x)
        return first + second

    gm = trace(program, (torch.randn(2, 4),))
    x = torch.randn(2, 4)
    assert torch.equal(gm(x), program(x))
    with pytest.raises(GuardError):
        gm(torch.randn(3, 4))
