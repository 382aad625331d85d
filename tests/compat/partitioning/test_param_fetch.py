"""What backends read of called modules, held to torch.fx."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import torch
import torch.fx
from torch import nn

import graphwright

LIBRARIES = [torch.fx, graphwright]


def outcome(fx: Any, module: nn.Module) -> Any:
    fetch = importlib.import_module(f"{fx.__name__}.passes.param_fetch")
    try:
        return fetch.extract_attrs_for_lowering(module)
    except RuntimeError as error:
        return str(error).partition(",")[0].partition("\n")[0]


def later(module: nn.Module) -> nn.Module:
    module._version = 3
    return module


@pytest.mark.parametrize(
    "module",
    [
        nn.Linear(2, 3), nn.Linear(2, 3, bias=False), nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.BatchNorm1d(2),
        nn.AdaptiveAvgPool2d(2), nn.MaxPool2d(2), nn.ReLU(), nn.Dropout(), later(nn.Linear(1, 1)),
        later(nn.BatchNorm2d(1)),
    ],
    ids=repr,
)  # fmt: skip
def test_attributes_of_modules(module: nn.Module) -> None:
    want, got = (outcome(fx, module) for fx in LIBRARIES)
    assert got == want


def test_attributes_are_put_on_nodes() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    told = []
    for fx in LIBRARIES:
        fetch = importlib.import_module(f"{fx.__name__}.passes.param_fetch")
        inner = fx.symbolic_trace(model)
        graph = fx.Graph()
        graph.output(graph.call_module("inner", (graph.placeholder("x"),)))
        outer = fx.GraphModule({"inner": inner}, graph)
        fetch.lift_lowering_attrs_to_nodes(outer)
        nodes = [*outer.graph.nodes, *outer.inner.graph.nodes]
        told.append([(node.name, getattr(node, "attrs_for_lowering", None)) for node in nodes])
        assert fetch.default_matching("weight", 3) == "weight"
    assert told[1] == told[0]
