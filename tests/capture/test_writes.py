"""Numbers and truths that the program reads from tensors to which it writes in place."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from graphwright import symbolic_trace, trace

INPUTS = [torch.ones(2, 3), -torch.ones(3, 3), torch.linspace(-1.0, 4.0, 6).view(2, 3)]


def read_before_and_after(x: torch.Tensor) -> Any:
    total = x.sum()
    before = total.item()
    total.add_(1)
    return x * before, x * total.item()


def read_through_a_view(x: torch.Tensor) -> Any:
    y = x.flatten() * 1.0
    first = y[0]
    before = float(first)
    y[0] = 9.0
    return x * before + float(first)


def used_in_a_branch(x: torch.Tensor) -> Any:
    total = x.sum()
    before = total.item()
    if x.max() > 2:
        total.mul_(3)
    return x * before + total.item()


def asked_again(x: torch.Tensor) -> Any:
    flag = x.sum() > 0
    n = 0
    if flag:
        flag.logical_not_()
        n = 1 if flag else 2
    return x * n


def kept_truth(x: torch.Tensor) -> Any:
    flag = x.sum() > 0
    before = bool(flag)
    flag.logical_not_()
    return x * 2 if before else x * 3


def written_in_a_loop(x: torch.Tensor) -> Any:
    count = torch.zeros(())
    total = x.sum() * 0
    for row in x:
        total = total + row.sum() * count.item()
        count += 1
    return total, count


def known_around_a_loop(x: torch.Tensor) -> Any:
    flag = x.max() > 0
    if flag:
        for row in x:
            if flag:
                x = x + row
            flag.logical_not_()
    return x


PROGRAMS = [
    read_before_and_after, read_through_a_view, used_in_a_branch, asked_again, kept_truth, written_in_a_loop,
    known_around_a_loop,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_number_is_what_it_was_when_it_was_read(program: Any) -> None:
    gm = trace(program, INPUTS[0])
    for x in INPUTS:
        torch.testing.assert_close(gm(x), program(x), rtol=0, atol=0, msg=lambda text: f"{text}\n{gm.code}")


@pytest.mark.parametrize("program", [asked_again, kept_truth, known_around_a_loop])
def test_symbolic_tracing_asks_again_too(program: Any) -> None:
    gm = symbolic_trace(program)
    for x in INPUTS:
        torch.testing.assert_close(gm(x), program(x), rtol=0, atol=0, msg=lambda text: f"{text}\n{gm.code}")


def adds_up_and_lists(x: torch.Tensor) -> Any:
    total, out = torch.zeros(1), []
    for row in x:
        total = total + row
        out.append(total)
    return torch.stack(out) + x, total


def test_a_list_beside_a_tensor_that_broadcasts_once_has_the_examples_length() -> None:
    gm = trace(adds_up_and_lists, torch.ones(5, 3))
    assert gm.report.facts.attempt == "captured"
    for x in INPUTS:
        torch.testing.assert_close(gm(x), adds_up_and_lists(x), rtol=0, atol=0)
