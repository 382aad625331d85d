"""Lists whose length is a size - `list(x)`, `x.unbind()`, `x.split(2)`, `x.tolist()` - are as long as in each run."""

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


def unbound(x: torch.Tensor) -> Any:
    total: Any = 0
    for row in x.unbind(0):
        total = total * 2 + row
    return total


def sliced(x: torch.Tensor) -> Any:
    rows = x.unbind()
    total = rows[0] + rows[-1]
    for row in rows[1:]:
        total = total * row
    return total, len(rows), rows


def zipped(x: torch.Tensor) -> Any:
    known = [x[0] + i for i in range(3)]
    total = x[0]
    for row, other in zip(x.unbind(0), reversed(known), strict=False):
        total = total + row * other
    return total


def cut(x: torch.Tensor) -> Any:
    return torch.stack([piece.sum() for piece in x.split(2)]), x.chunk(x.size(0))


def lengths(x: torch.Tensor) -> Any:
    found = []
    for i, length in enumerate(x[:, 0].abs().long().clamp(1, 3).tolist()):
        found.append(x[i, :length].mean())
    return torch.stack(found)


def numbers(x: torch.Tensor) -> Any:
    sizes = x[:, 0].abs().long().tolist()
    return x.new_zeros(max(sizes) + 1), torch.tensor(sizes), sizes


def pairs(x: torch.Tensor) -> Any:
    found = []
    for i, (a, b) in enumerate(x.abs()[:, [0, 1]].tolist()):
        found.append(x[i, int(a) % 3] * b)
    return found


def places(x: torch.Tensor) -> Any:
    positions = list(range(x.shape[0]))
    return x * torch.tensor(positions)[:, None], [position * 2 for position in positions], positions[::-1]


@pytest.mark.parametrize("program", [unbound, sliced, zipped, cut, lengths, numbers, pairs, places])
def test_as_many_pieces_and_numbers_as_a_run_has(program: Callable[..., Any]) -> None:
    gm = trace(program, (torch.randn(2, 4),))
    for count in (2, 1, 3, 5):
        x = torch.randn(count, 4)
        torch.testing.assert_close(gm(x), program(x), rtol=0, atol=0)


class Heads(torch.nn.Module):
    """A layer for each piece: there is no loop over layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = x.sum()
        for layer, row in zip(self.layers, x.unbind(0), strict=False):
            total = total + layer(row)
        return total


def test_pieces_with_a_layer_each_are_as_many_as_the_example_has() -> None:
    model = Heads()
    gm = trace(model, (torch.randn(2, 4),))
    x = torch.randn(2, 4)
    assert torch.equal(gm(x), model(x))
    with pytest.raises(GuardError, match=r"was captured where this was 2; now it is 3\n.*test_rows.py.*zip"):
        gm(torch.randn(3, 4))


def starred(x: torch.Tensor) -> Any:
    return torch.cat([*x.unbind(0)])


def test_a_list_with_all_items_of_another_is_as_long_as_that() -> None:
    gm = trace(starred, (torch.randn(2, 4),))
    for rows in (2, 3, 1):
        x = torch.randn(rows, 4)
        assert torch.equal(gm(x), starred(x))


def test_rows_that_are_taken_apart_are_as_many_as_the_example_has() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        first, second = list(x)
        return first + second

    gm = trace(program, (torch.randn(2, 4),))
    x = torch.randn(2, 4)
    assert torch.equal(gm(x), program(x))
    with pytest.raises(GuardError):
        gm(torch.randn(3, 4))
