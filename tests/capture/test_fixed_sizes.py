"""Sizes that the program itself fixes are plain numbers; all others stay open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from graphwright import trace

FIXED: list[tuple[str, Callable[[Any], Any], int]] = [
    ("view", lambda x: x.view(x.shape[0], -1, 4), -1),
    ("reshape to a tuple", lambda x: x.reshape((-1, 4, 2)), 1),
    ("transposed", lambda x: x.view(-1, 4, 2).transpose(0, 2), 0),
    ("permuted", lambda x: x.view(-1, 4, 2).permute(2, 0, 1), 2),
    ("a row of it", lambda x: x.view(-1, 4, 2)[0], 0),
    ("a slice", lambda x: x.view(-1, 4)[..., 1:], 1),
    ("a slice of another dimension", lambda x: x.view(-1, 4)[1:], 1),
    ("a new dimension", lambda x: x[:, None], 1),
    ("a dimension put in", lambda x: x.unsqueeze(-1), 2),
    ("expanded", lambda x: x[:, None].expand(-1, 5, -1), 1),
    ("added", lambda x: x.view(-1, 4) + 1, 1),
    ("broadcast", lambda x: x.view(-1, 1, 1) * torch.arange(2)[:, None].view(2, 1), 1),
    ("joined", lambda x: torch.cat((x.view(-1, 4), x.view(-1, 4)), -1), -1),
    ("joined along another", lambda x: torch.cat((x.view(-1, 4), x.view(-1, 4))), -1),
    ("joined to an empty list", lambda x: torch.cat((torch.tensor([]), x.view(-1, 4)), -2), -1),
    ("cast", lambda x: x.view(-1, 4).double().contiguous(), 1),
]
STRIDED: list[Callable[[Any], Any]] = [
    lambda x: x.as_strided((x.shape[0], x.shape[1] // 2), x.stride()),
    lambda x: x.as_strided((x.stride(0),), (1,), x[1:].storage_offset()),
    lambda x: x * 2 if x.t().stride(1) > 4 else x,
]


@pytest.mark.parametrize("program", STRIDED)
def test_strides_and_offsets_are_those_of_the_call(program: Callable[[Any], Any]) -> None:
    gm = trace(program, torch.arange(8.0).view(2, 4))
    for x in (torch.arange(18.0).view(3, 6), torch.arange(8.0).view(2, 4)):
        assert torch.equal(gm(x), program(x))


OPEN: list[tuple[str, Callable[[Any], Any], int]] = [
    ("an input", lambda x: x, 1),
    ("what -1 stands for", lambda x: x.view(-1, 4), 0),
    ("a size of the input", lambda x: x.view(-1, x.shape[1]), 1),
    ("a slice of an open one", lambda x: x[:, :4], 1),
    ("broadcast against an open one", lambda x: x + torch.zeros(1, 1), 1),
    ("joined with an open one", lambda x: torch.cat((x.view(-1, 8), x), 1), 1),
    ("an open dimension of a mask", lambda x: torch.zeros(1, 1).masked_fill(x > 0, 1.0), 1),
    ("a slice between tensors", lambda x: x[torch.tensor(0) : torch.tensor(2)], 0),
    ("taken by a tensor", lambda x: x[x.sum(1) > -1e9], 0),
]


@pytest.mark.parametrize(("make", "dim"), [case[1:] for case in FIXED], ids=[case[0] for case in FIXED])
def test_a_size_that_the_program_says(make: Callable[[Any], Any], dim: int) -> None:
    def program(x: Any) -> Any:
        y = make(x)
        return y * 2 if y.shape[dim] > 2 else y - 1

    gm = trace(program, torch.randn(4, 8))
    assert not gm.graph.has_bodies
    for rows in (4, 6):
        x = torch.randn(rows, 8)
        assert torch.equal(gm(x), program(x))


@pytest.mark.parametrize(("make", "dim"), [case[1:] for case in OPEN], ids=[case[0] for case in OPEN])
def test_a_size_that_inputs_change(make: Callable[[Any], Any], dim: int) -> None:
    def program(x: Any) -> Any:
        y = make(x)
        return y * 2 if y.shape[dim] > 5 else y - 1

    gm = trace(program, torch.randn(4, 8))
    assert gm.graph.has_bodies
    for shape in ((4, 8), (8, 8), (16, 8), (4, 4)):
        x = torch.randn(shape)
        try:
            expected = program(x)
        except RuntimeError:
            continue
        assert torch.equal(gm(x), expected)


def test_a_tensor_reshaped_in_place_has_no_fixed_sizes() -> None:
    def program(x: Any) -> Any:
        y = x.clone().view(-1, 4).clone()
        y.transpose_(0, 1)
        return y * 2 if y.shape[1] > 4 else y

    gm = trace(program, torch.randn(8))
    for n in (8, 40):
        x = torch.randn(n)
        assert torch.equal(gm(x), program(x))


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        x = self.linear(x)
        if x.shape[0] == 1:  # what it then does makes no sense for the example
            x = x.view(1, 2, 2).sum(1, keepdim=True).expand(1, 2, 2).reshape(1, 4)
        return x


def test_layers_of_a_stack_are_captured_in_as_many_passes_as_one() -> None:
    passes = []
    for depth in (1, 12):
        model = nn.Sequential(*[Layer() for _ in range(depth)])
        gm = trace(model, torch.randn(3, 4))
        passes.append(gm.report.facts.passes)
        assert torch.equal(gm(torch.ones(5, 4)), model(torch.ones(5, 4)))
        assert len(gm.graph.find_nodes(op="call_module")) == depth
    assert passes[0] == passes[1]
