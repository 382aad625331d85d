"""What torch.fx's public documentation shows, in programs of our own: each runs on both libraries."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
import torch.fx
from torch import nn


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((3, 4), 2.0))
        self.linear = nn.Linear(4, 5)

    def forward(self, x):
        return self.linear(x * self.scale).clamp(min=0.0, max=1.0)


def test_nodes_of_a_captured_module(fx: Any) -> None:
    nodes = [(node.op, node.target) for node in fx.symbolic_trace(Scaled()).graph.nodes]
    assert nodes == [
        ("placeholder", "x"), ("get_attr", "scale"), ("call_function", operator.mul), ("call_module", "linear"),
        ("call_method", "clamp"), ("output", "output"),
    ]  # fmt: skip


def test_a_graph_by_hand(fx: Any) -> None:
    graph = fx.Graph()
    x = graph.create_node("placeholder", "x")
    y = graph.create_node("placeholder", "y")
    joined = graph.create_node("call_function", torch.cat, args=([x, y],))
    graph.create_node("output", "output", args=(graph.create_node("call_method", "relu", args=(joined,)),))
    gm = fx.GraphModule(nn.Module(), graph)
    assert torch.equal(gm(torch.tensor([-1.0]), torch.tensor([2.0])), torch.tensor([0.0, 2.0]))


def test_a_branch_on_data_is_refused_or_captured(fx: Any) -> None:
    def program(x):
        return x if x.sum() > 0 else -x

    if fx is torch.fx:
        with pytest.raises(torch.fx.proxy.TraceError):
            fx.symbolic_trace(program)
    else:
        assert fx.symbolic_trace(program)(torch.tensor([-1.0])) == 1


def test_a_branch_on_a_flag_is_specialized(fx: Any) -> None:
    def program(x, flag):
        return x if flag else -x

    x = torch.ones(2)
    for flag in (True, False):
        gm = fx.symbolic_trace(program, concrete_args={"flag": flag})
        assert torch.equal(gm(x, flag), program(x, flag))
        assert ("neg" in gm.code) is not flag


def test_an_erased_call(fx: Any) -> None:
    gm = fx.symbolic_trace(lambda x: torch.relu(x) + 1)
    for node in gm.graph.nodes:
        if node.target is torch.relu:
            node.replace_all_uses_with(node.args[0])
            gm.graph.erase_node(node)
    gm.graph.lint()
    gm.recompile()
    assert torch.equal(gm(torch.tensor(-3.0)), torch.tensor(-2.0))


def test_code_runs_from_a_file(fx: Any, tmp_path: Any) -> None:
    gm = fx.symbolic_trace(Scaled())
    (tmp_path / "source.py").write_text(f"import torch\n{gm.code}")
    names: dict[str, Any] = {}
    exec((tmp_path / "source.py").read_text(), names)
    x = torch.rand(3, 4)
    assert torch.equal(names["forward"](gm, x), gm(x))
