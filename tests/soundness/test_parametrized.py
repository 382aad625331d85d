"""Layers parametrized after the capture: looking at them runs nothing, and what was asked of them is told."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from torch.nn.utils import parametrize

import graphwright
from graphwright import GraphModule, GuardError, passes

X = torch.ones(2, 3, 8, 8)


class Counting(nn.Module):
    """A parametrization with an effect at each read, as spectral norm has in training."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("reads", torch.zeros(()))
        self.scale = nn.Parameter(torch.tensor(1.5))

    def forward(self, weight: Tensor) -> Tensor:
        self.reads += 1
        return weight * self.scale


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.items = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.conv(x))).mean((2, 3))
        x = linear(x, self.items[0].weight, self.items[0].bias)
        return self.items[1](x) @ self.items[1].weight


def counted(model: nn.Module) -> nn.Module:
    """The module with layers that count how often their weights are read; none has been yet."""
    for name in ("conv", "items.0", "items.1"):
        parametrize.register_parametrization(model.get_submodule(name), "weight", Counting())
    for part in model.modules():
        if isinstance(part, Counting):
            part.reads.zero_()
    return model


LOOKS: dict[str, Callable[[GraphModule], Any]] = {
    "code": lambda gm: gm.code,
    "lint": lambda gm: gm.graph.lint(),
    "deepcopy": copy.deepcopy,
    "report": lambda gm: (str(gm.report), gm.guards),
    "a module of its graph": lambda gm: GraphModule(gm, copy.deepcopy(gm.graph)),
    "extract": lambda gm: graphwright.extract(gm, {"items.1": "value"}),
    "split": lambda gm: graphwright.split(gm, at=["items.1"]),
    "rewrite": lambda gm: graphwright.rewrite(gm, graphwright.rule(torch.relu, torch.sigmoid)),
    "to_fx": graphwright.to_fx,
    "fuse": passes.fuse_conv_batch_norm,
    "fuse_relu": passes.fuse_conv_relu,
    "delete": lambda gm: gm.delete_all_unused_submodules(),
}


@pytest.mark.parametrize("look", LOOKS)
def test_looking_at_a_program_reads_no_weight(look: str) -> None:
    gm = counted(graphwright.trace(Net().eval(), (X,)))
    LOOKS[look](gm)
    assert [part.reads.item() for part in gm.modules() if isinstance(part, Counting)] == [0, 0, 0]


def test_calls_read_weights_as_often_as_those_of_the_original() -> None:
    model = Net().eval()
    gm = counted(graphwright.trace(copy.deepcopy(model), (X,)))
    counted(model)
    for _ in range(2):
        assert torch.equal(gm(X), model(X))
    for name, value in model.state_dict().items():
        assert torch.equal(gm.state_dict()[name], value), name


def test_a_part_keeps_the_parametrization() -> None:
    gm = counted(graphwright.trace(Net().eval(), (X,)))
    for part in (GraphModule(gm, copy.deepcopy(gm.graph)), graphwright.split(gm, at=["items.1"]).module):
        part(X).sum().backward()
        scales = [below.scale for below in part.modules() if isinstance(below, Counting)]
        assert len(scales) == 3 and all(scale.grad is not None for scale in scales)
        part.zero_grad()


class Asking(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x * 2 if self.linear.weight.shape[0] == 4 else x)


class Wider(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return torch.cat([weight, weight])


@pytest.mark.parametrize("is_run_before", [False, True])
def test_what_a_program_asked_of_a_weight_is_no_more_known(is_run_before: bool) -> None:
    x = torch.ones(2, 4)
    gm = graphwright.trace(Asking(), (x,))
    if is_run_before:
        gm(x)
    parametrize.register_parametrization(gm.linear, "weight", Wider(), unsafe=True)
    with pytest.raises(GuardError, match="which the program asks something"):
        gm(x)
