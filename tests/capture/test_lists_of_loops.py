"""Lists that one loop makes and another goes over: for the example, they hold what they do for it."""

from __future__ import annotations

import torch

from graphwright import trace


def windows(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    pieces = []
    for start in range(0, x.size(1), 4):
        pieces.append((start, min(x.size(1), start + 4)))
    taken = []
    for start, end in pieces:
        taken.append(x[:, start:end] * mask[:, start:end])
    return torch.cat(taken, 1) + x  # has the size of x, for the example too


def test_pieces_of_one_loop_are_taken_by_another() -> None:
    gm = trace(windows, (torch.randn(2, 16), torch.randn(2, 16)))
    assert gm.guards == []
    for size in (4, 16, 22):
        inputs = torch.randn(3, size), torch.randn(3, size)
        assert torch.equal(gm(*inputs), windows(*inputs))
