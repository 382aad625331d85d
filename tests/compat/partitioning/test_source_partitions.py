"""Nodes by the module or function that they came from, beside torch.fx's."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
import torch.fx
import torch.nn.functional as F
from torch import nn
from torch.fx.passes.utils import source_matcher_utils as torch_fx_sources

import graphwright
from graphwright.compat.partitioning import source_partitions

SIDES = [(torch.fx, torch_fx_sources), (graphwright, source_partitions)]
STACK = {"p": ("p", nn.Linear)}
METAS: list[dict[str, dict[str, Any]]] = [
    {},
    {name: {"source_fn_stack": [("lin", nn.Linear)]} for name in ("w", "t", "mm", "add")}
    | {"relu": {"source_fn_stack": [("a", nn.Sequential), ("relu_0", torch.relu)]}}
    | {"where": {"source_fn_stack": [("lin2", nn.Linear)]}},
    {name: {"torch_fn": ("linear_1", "function.linear")} for name in ("mm", "add")}
    | {"relu": {"torch_fn": ("linear_2", "function.linear"), "nn_module_stack": {"a": ("a", nn.ReLU)}}},
    {"mm": {"nn_module_stack": STACK}, "add": {"nn_module_stack": STACK, "torch_fn": ("f_1", "function.linear")}},
    {"mm": {"source_fn_stack": [("q", nn.Conv2d)], "torch_fn": ("f_1", "function.linear"), "nn_module_stack": STACK}},
    {"mm": {"nn_module_stack": {"a": ("a", "torch.nn.modules.linear.Linear")}}},
    {name: {"source_fn_stack": [(call, nn.Linear)]} for name, call in [("t", "1"), ("mm", "2"), ("add", "1")]},
    {name: {"source_fn_stack": [("q", nn.Linear)]} for name in ("x", "mm", "relu")},
]
WANTED: list[list[Any]] = [[nn.Linear], [nn.Linear, "linear"], ["linear"], [torch.relu, nn.ReLU, nn.Sequential], []]


def example(package: Any, meta: dict[str, dict[str, Any]]) -> Any:
    graph = package.Graph()
    x, y, w = graph.placeholder("x"), graph.placeholder("y"), graph.get_attr("w")
    a = graph.call_function(torch.t, (w,))
    b = graph.call_function(torch.mm, (x, a))
    c = graph.call_function(torch.add, (b, y))
    d = graph.call_function(torch.relu, (c,))
    graph.output((graph.call_function(torch.where, (d, b, w)), a))
    for node in graph.nodes:
        node.meta.update(meta.get(node.name, {}))
    return package.GraphModule({"w": torch.ones(2, 2)}, graph).graph


def facts_of(found: Any) -> Any:
    return {
        source: [
            [[n.name for n in part.nodes], sorted(n.name for n in part.input_nodes)]
            + [sorted(n.name for n in nodes) for nodes in (part.output_nodes, part.params)]
            + [part.source is source]
            for part in parts
        ]
        for source, parts in found.items()
    }


@pytest.mark.parametrize("wanted", WANTED, ids=range(len(WANTED)))
@pytest.mark.parametrize("number", range(len(METAS)))
def test_what_the_meta_says_is_found_as_in_torch_fx(number: int, wanted: list[Any]) -> None:
    found = []
    for package, module in SIDES:
        graph = example(package, METAS[number])
        parts = module.get_source_partitions(graph, wanted)
        refused = module.get_source_partitions(graph, wanted, lambda node: node.name != "add")
        every = [part for each in parts.values() for part in each]
        connected = [[module.check_subgraphs_connected(one, other) for one in every] for other in every]
        found.append((facts_of(parts), facts_of(refused), connected))
    if wanted[:1] == [torch.relu]:  # here calls are found without meta, too
        for part in found[1]:
            if isinstance(part, dict) and not METAS[number].get("relu"):
                assert part.pop(torch.relu)
        return
    assert found[0] == found[1]


def test_what_is_read_by_name_or_in_a_list_is_an_input() -> None:
    """torch.fx leaves it out."""
    found = []
    for package, module in SIDES:
        graph = package.Graph()
        x, y, z = (graph.placeholder(name) for name in "xyz")
        node = graph.call_function(torch.cat, ([x, y],), {"out": z})
        node.meta["source_fn_stack"] = [("cat", torch.cat)]
        graph.output(node)
        (part,) = module.get_source_partitions(graph, [torch.cat])[torch.cat]
        found.append([each.name for each in part.input_nodes])
    assert found == [[], ["x", "y", "z"]]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.linear(x)) + x.relu()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = Block()
        self.rest = nn.Sequential(Block())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.rest(self.first(self.first(x)))


@pytest.mark.parametrize("capture", [graphwright.symbolic_trace, lambda m: graphwright.trace(m, (torch.ones(2, 2),))])
def test_captured_programs_know_their_sources(capture: Any) -> None:
    graph = capture(Net()).graph

    def targets(*wanted: Any) -> dict[Any, list[list[str]]]:
        found = source_partitions.get_source_partitions(graph, list(wanted))
        return {s: [[getattr(n.target, "__name__", n.target) for n in p.nodes] for p in ps] for s, ps in found.items()}

    assert targets(nn.Linear) == {nn.Linear: [["first.linear"], ["first.linear"], ["rest.0.linear"]]}
    block = ["relu", "relu", "add"]
    calls = [["first.linear", *block], ["first.linear", *block], ["rest.0.linear", *block]]
    assert targets(Block) == {Block: calls}
    assert targets(nn.Sequential) == {nn.Sequential: [["rest.0.linear", *block]]}
    assert targets(torch.relu) == {torch.relu: [["relu"]] * 6}  # x.relu() and F.relu(x), too
    assert targets(operator.add, nn.Conv2d) == {operator.add: [["add"]] * 3}
    assert targets(Block, nn.Linear)[Block] == [block] * 3
    parts = source_partitions.get_source_partitions(graph, [Block])[Block]
    assert [[n.op for n in part.input_nodes] for part in parts] == [
        ["placeholder"],
        ["call_function"],
        ["call_function"],
    ]
    assert source_partitions.check_subgraphs_connected(parts[0], parts[1])
    assert not source_partitions.check_subgraphs_connected(parts[0], parts[2])


def test_exported_programs_have_torch_fx_s_partitions() -> None:
    exported = torch.export.export(Net(), (torch.ones(2, 2),)).graph
    for wanted in ([nn.Linear], ["linear", "relu"], [Block]):
        theirs = torch_fx_sources.get_source_partitions(exported, wanted)
        ours = source_partitions.get_source_partitions(exported, wanted)  # its nodes answer the same questions
        assert theirs and facts_of(theirs) == facts_of(ours)
