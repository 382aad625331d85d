"""What a program asks of an item of a list that it has filled itself is guarded in what it has put there."""

from __future__ import annotations

import collections
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from graphwright import GuardError, trace


def of_a_list(x: Tensor) -> Tensor:
    rows = []
    for i in range(x.size(0)):
        rows.append(x[i])
    return rows[0] + 1 if rows[0].dim() < 3 and rows[0].is_floating_point() else rows[0]


def of_a_dict(x: Tensor) -> Tensor:
    rows = {}
    for i in range(x.size(0)):
        rows[i] = x[i]
    return rows[0] + 1 if rows[0].dim() < 3 and rows[0].is_floating_point() else rows[0]


def of_a_queue(x: Tensor) -> Tensor:
    rows: collections.deque[Tensor] = collections.deque(maxlen=2)
    for i in range(x.size(0)):
        rows.appendleft(x[i])
    return rows[0] + 1 if rows[0].dim() < 3 and rows[0].is_floating_point() else rows[0]


def of_pairs(x: Tensor) -> Tensor:
    rows = []
    for i in range(x.size(0)):
        rows.append((x[i], i))
    row, _ = rows[-1]
    return row + 1 if row.dim() < 3 and row.is_floating_point() else row


def of_all(x: Tensor) -> Tensor:
    rows = []
    for i in range(x.size(0)):
        rows.append(x[i])
    whole = torch.stack(rows)
    return whole + 1 if whole.dim() < 4 and whole.is_floating_point() else whole


def of_a_part(x: Tensor) -> Tensor:
    rows = [row * 2 for row in x]
    part = rows[:1]
    return part[0] + 1 if part[0].dim() < 3 and part[0].is_floating_point() else part[0]


def of_lists_in_a_list(x: Tensor) -> Tensor:
    rows: list[list[Tensor]] = [[], []]
    for i in range(x.size(0)):
        for k in range(x.size(1)):
            rows[1].append(x[i, k])
    return rows[1][0] + 1 if rows[1][0].dim() < 2 and rows[1][0].is_floating_point() else rows[1][0]


def of_what_is_sorted(x: Tensor) -> Tensor:
    rows = []
    for i in range(x.size(0)):
        rows.append(x[i])
    first = sorted(rows, key=lambda row: row.sum().item())[0]
    return first + 1 if first.dim() < 3 and first.is_floating_point() else first


def of_a_made_list(x: Tensor) -> Tensor:
    rows: Any = [None] * x.size(0)
    for i in range(x.size(0)):
        rows[i] = x[i]
    return rows[0] + 1 if rows[0].dim() < 3 and rows[0].is_floating_point() else rows[0]


def of_groups(x: Tensor) -> Tensor:
    rows = collections.defaultdict(list)
    for i in range(x.size(0)):
        rows[i % 2].append(x[i])
    return rows[0][0] + 1 if rows[0][0].dim() < 3 and rows[0][0].is_floating_point() else rows[0][0]


def doubled(row: Tensor) -> Tensor:
    return row * 2


def of_what_is_mapped(x: Tensor) -> Tensor:
    rows = list(map(doubled, x.unbind(0)))
    return rows[0] + 1 if rows[0].dim() < 3 and rows[0].is_floating_point() else rows[0]


PROGRAMS = [
    of_a_made_list, of_groups, of_what_is_mapped,
    of_a_list, of_a_dict, of_a_queue, of_pairs, of_all, of_a_part, of_lists_in_a_list, of_what_is_sorted,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_is_asked_of_items_is_guarded(program: Any) -> None:
    gm, loud = trace(program, (torch.ones(2, 3, 4),)), 0
    for x in (torch.ones(2, 3, 4), torch.ones(5, 2, 4), torch.ones(2, 1, 3, 4), torch.ones(2, 3, 4).long()):
        try:
            given = gm(x)
        except GuardError:
            loud += 1
            continue
        assert torch.equal(given, program(x)) and given.dtype == program(x).dtype
    assert loud == 2


def mapped(x: list[Tensor]) -> Tensor:
    rows = [row * 2 for row in x]
    return rows[0] + 1 if rows[0].dim() < 3 and rows[0].is_floating_point() else rows[0]


def test_lists_of_tensors_are_followed_to_the_inputs() -> None:
    gm, loud = trace(mapped, ([torch.ones(2, 4)],)), 0
    for x in ([torch.ones(2, 4)], [torch.ones(2)] * 3, [torch.ones(1, 2, 2)], [torch.ones(2, 4).long()]):
        try:
            given = gm(x)
        except GuardError:
            loud += 1
            continue
        assert torch.equal(given, mapped(x))
    assert loud >= 2


def of_size(size: Tensor) -> Tensor:
    made = size + 0
    return size * 2 if made.is_floating_point() and made.dim() == 1 else size


def of_item(item: Tensor) -> Tensor:
    made = item + 0
    return item * 2 if made.is_floating_point() and made.dim() == 1 else item


def of_shape(shape: Tensor) -> Tensor:
    made = shape + 0
    return shape * 2 if made.is_floating_point() and made.dim() == 1 else shape


@pytest.mark.parametrize("program", [of_size, of_item, of_shape])
def test_inputs_may_be_called_like_what_tells_of_a_tensor(program: Any) -> None:
    gm = trace(program, (torch.ones(2),))
    assert torch.equal(gm(torch.ones(3)), program(torch.ones(3)))
    for x in (torch.ones(2).long(), torch.ones(2, 2)):
        with pytest.raises(GuardError):
            gm(x)


class Named(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("size", torch.ones(2))

    def forward(self, x: Tensor) -> Tensor:
        made = self.size + 0
        return x * 2 if made.is_floating_point() else x


def test_attributes_may_be_called_so_too() -> None:
    gm: Any = trace(Named(), (torch.ones(2),))
    gm.size = torch.ones(2).long()
    with pytest.raises(GuardError):
        gm(torch.ones(2))
