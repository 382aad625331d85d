"""Watching a pass; torch.fx's own observer needs pydot to watch, so it is compared where it does not."""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.fx
from torch.fx.passes import graph_transform_observer as torch_fx_observer

import graphwright
from graphwright.passes import graph_transform_observer

SIDES = [(torch.fx, torch_fx_observer), (graphwright, graph_transform_observer)]


def relu_to_neg(graph: Any) -> str:
    node = graph.find_nodes(op="call_function", target=torch.relu)[0]
    with graph.inserting_after(node):
        new = graph.call_function(torch.neg, node.args)
    node.replace_all_uses_with(new)
    graph.erase_node(node)
    return "done"


def test_without_a_log_the_pass_just_runs() -> None:
    found = []
    for package, tools in SIDES:
        gm = package.symbolic_trace(lambda x: torch.relu(x + 1))
        observer = tools.GraphTransformObserver(gm, "swap")
        facts: list[Any] = [sorted(vars(observer)), observer.active, observer.apply_graph_pass(relu_to_neg)]
        facts += [observer.apply_gm_pass(lambda gm: len(gm.graph.nodes)), str(gm.graph)]
        found.append(facts)
    assert found[0] == found[1]


def test_nodes_are_watched() -> None:
    gm = graphwright.symbolic_trace(lambda x: torch.relu(x + 1))
    count = graph_transform_observer.GraphTransformObserver.get_current_pass_count()
    with graph_transform_observer.GraphTransformObserver(gm, "swap", log_url="nowhere") as observer:
        copied = copy.deepcopy(gm)
        relu_to_neg(gm.graph)
    assert (observer.created_nodes, observer.erased_nodes) == ({"neg"}, {"relu"})
    assert set(observer.name_to_node) == {"x", "add", "neg", "output"} and observer.copied_gms == [copied]
    assert observer.get_current_pass_count() == count + 1
    for module in (gm, copied):
        assert not (module._create_node_hooks or module._erase_node_hooks or module._deepcopy_hooks)
