"""Rows of tensors at places that only a run knows: views in eager, and written to as such in every target."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from graphwright import onnx, to_export, trace


def negated(x: Tensor) -> Tensor:
    y = x.clone()
    for i in range(y.shape[0]):
        if y[i].sum() < 0:
            y[i].neg_()
        else:
            y[i, 0] = 0
    return y


def parts_of_rows(x: Tensor) -> Tensor:
    y = x.clone()
    for i in range(y.shape[0]):
        row = y[i]
        if row.sum() > 0:
            row[1:].mul_(3)
    return y


def elements(x: Tensor) -> Tensor:
    y = x.clone()
    for i in range(y.shape[0]):
        for j in range(y.shape[1]):
            if y[i, j] > 0:
                y[i, j].neg_()
    return y


def rows_of_two(x: Tensor) -> tuple[Tensor, Tensor]:
    y, z = x.clone(), x * 2
    for one, other in zip(y, z, strict=True):
        if one.sum() > 0:
            one.add_(other)
            other.zero_()
    return y, z


def numbered(x: Tensor) -> Tensor:
    y = x.clone()
    for i, row in enumerate(y):
        row.mul_(i)
    return y


def from_behind(x: Tensor) -> Tensor:
    y = x.clone()
    for row in reversed(y):
        if row.sum() > 0:
            row[0] = 7
    return y


def read_again(x: Tensor) -> tuple[Tensor, Tensor]:
    y, total = x.clone(), torch.zeros(())
    for i in range(y.shape[0]):
        row = y[i]
        if row.sum() > 0:
            y[i] = 0
        total = total + row.sum()
    return y, total


def at_one_place(x: Tensor) -> Tensor:
    y = x.clone()
    y[(x.sum() > 0).long()].mul_(5)
    return y


QUICK = [negated, rows_of_two]
SLOW = [parts_of_rows, elements, numbered, from_behind, read_again, at_one_place]
PROGRAMS = [*QUICK, *[pytest.param(each, marks=pytest.mark.slow) for each in SLOW]]


@pytest.mark.parametrize("target", ["torch.export", "onnx"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_row_that_is_written_to_is_a_view(program: Callable[[Tensor], Any], target: str) -> None:
    x = torch.tensor([[1.0, 2.0], [-3.0, 1.0], [2.0, -1.0]])
    gm = trace(program, (x,))
    run = onnx.export(gm, (x,)) if target == "onnx" else to_export(gm, (x,)).module()
    for given in (x, -x, x.abs()):
        torch.testing.assert_close(run(given), program(given))
