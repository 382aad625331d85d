"""`split_by_tags`, beside torch.fx's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.fx
from torch import nn
from torch.fx.passes import split_utils as torch_fx_split

import graphwright
from graphwright.passes import split_utils

SIDES = [(torch.fx, torch_fx_split), (graphwright, split_utils)]
TAGS = {"linear1": "a", "linear2": "b", "linear3": "b", "cat": "c", "linear4": "c", "add": "c"}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear1, self.linear2, self.linear3 = nn.Linear(2, 3), nn.Linear(4, 5), nn.Linear(6, 7)
        self.linear4 = nn.Linear(15, 6)
        self.w = nn.Parameter(torch.ones(6))

    def forward(self, x1, x2, x3):  # type: ignore[no-untyped-def]
        both = torch.cat([self.linear1(x1), self.linear2(x2), self.linear3(x3)], 1)
        return self.linear4(both) + self.w, {"both": both, "w": self.w}


def tagged(package: Any, net: nn.Module) -> Any:
    gm = package.symbolic_trace(net)
    for node in gm.graph.nodes:
        if node.name in TAGS:
            node.tag = TAGS[node.name]
    return gm


@pytest.mark.parametrize("return_tuple", [False, True])
def test_parts_are_those_of_torch_fx(return_tuple: bool) -> None:
    net, found = Net(), []
    inputs = torch.ones(1, 2), torch.ones(1, 4), torch.ones(1, 6)
    for package, tools in SIDES:
        split, paths = tools.split_by_tags(tagged(package, net), ["a", "b", "c"], True, return_tuple)
        parts = [(name, sorted(str(part.graph).splitlines())) for name, part in split.named_children()]
        found.append([str(split.graph).replace("w_1", "w"), parts, paths])
        torch.testing.assert_close(split(*inputs), net(*inputs))
    assert found[0] == found[1]
    split.graph.lint()


def test_missing_and_unknown_tags() -> None:
    for package, tools in SIDES:
        with pytest.raises(AssertionError, match="Node does not have tag"):
            tools.split_by_tags(package.symbolic_trace(Net()), ["a"])
    with pytest.raises(AssertionError, match="not among"):
        split_utils.split_by_tags(tagged(graphwright, Net()), ["a"])
    with pytest.raises(AssertionError, match=r"(cat|linear4|add), of tag|of tag c"):
        split_utils.split_by_tags(tagged(graphwright, Net()), ["c", "b", "a"])


def test_attributes_by_path() -> None:
    for _, tools in SIDES:
        net = Net()
        assert tools.getattr_recursive(net, "linear1.weight") is net.linear1.weight
        assert tools.getattr_recursive(net, "linear1.nothing") is None
        tools.setattr_recursive(net, "linear1.mine", 3)
        assert net.linear1.mine == 3
        with pytest.raises(AttributeError):
            tools.setattr_recursive(net, "nothing.mine", 3)
