"""Watching a pass: what is noted, and what is drawn, compared with torch.fx's observer."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.fx
from torch.fx.passes import graph_transform_observer as torch_fx_observer

import graphwright
from graphwright.passes import graph_transform_observer

SIDES = [(torch.fx, torch_fx_observer), (graphwright, graph_transform_observer)]


def program(x):
    return torch.relu(x + 1) * torch.relu(x)


def relu_to_neg(graph: Any) -> str:
    for node in graph.find_nodes(op="call_function", target=torch.relu):
        with graph.inserting_after(node):
            new = graph.call_function(torch.neg, node.args)
        node.replace_all_uses_with(new)
        graph.erase_node(node)
    return "done"


def one_for_two(graph: Any) -> None:
    first, second = graph.find_nodes(op="call_function", target=torch.relu)
    with graph.inserting_after(second):
        new = graph.call_function(torch.cos, (first.args[0],))
    first.replace_all_uses_with(new)
    second.replace_all_uses_with(new)
    with graph.inserting_after(new):
        graph.node_copy(new)
        graph.call_function(torch.sin, (new,))
        new.replace_all_uses_with(graph.node_copy(new))


def of_what_is_there(graph: Any) -> None:
    first, second = graph.find_nodes(op="call_function", target=torch.relu)
    first.replace_all_uses_with(second)
    second.replace_input_with(second.args[0], graph.find_nodes(op="call_function", target=operator.add)[0])


def nothing(graph: Any) -> None:
    list(graph.nodes)


def told(sources: list[Any]) -> list[Any]:
    return [(one.name, one.pass_name, [kind.value for kind in one.action], told(one.from_node)) for one in sources]


@pytest.mark.parametrize("change", [relu_to_neg, one_for_two, of_what_is_there, nothing])
def test_what_a_pass_did_is_noted_and_drawn(change: Callable[[Any], Any], tmp_path: Path) -> None:
    pytest.importorskip("pydot")
    found: list[Any] = []
    for package, tools in SIDES:
        folder = tmp_path / package.__name__
        folder.mkdir()
        gm = package.symbolic_trace(program)
        for name in ("first", "second"):
            try:
                with tools.GraphTransformObserver(gm, name, "room", str(folder)) as observer:
                    change(gm.graph)
            except ValueError:  # nothing is left to be changed
                assert name == "second"
            found.append([(node.name, told(node.meta.get("from_node", []))) for node in gm.graph.nodes])
            found.append((observer.created_nodes, observer.erased_nodes, sorted(observer.name_to_node)))
        count = observer.get_current_pass_count()
        names = {f"pass_{count - 1}_first_", f"pass_{count}_second_"}
        files = sorted(folder.iterdir())
        assert all(any(file.name.startswith(name) for name in names) for file in files)
        found.append([(file.name.split("_", 2)[2], file.read_text()) for file in files])
    half = len(found) // 2
    assert found[:half] == found[half:]


def test_without_a_log_the_pass_just_runs() -> None:
    found = []
    for package, tools in SIDES:
        gm = package.symbolic_trace(program)
        observer = tools.GraphTransformObserver(gm, "swap")
        facts: list[Any] = [sorted(vars(observer)), observer.active, observer.apply_graph_pass(relu_to_neg)]
        facts += [observer.apply_gm_pass(lambda gm: len(gm.graph.nodes)), str(gm.graph)]
        found.append(facts)
    assert found[0] == found[1]


def test_copies_are_watched_too(tmp_path: Path) -> None:
    pytest.importorskip("pydot")
    found = []
    for package, tools in SIDES:
        gm = package.symbolic_trace(program)
        with tools.GraphTransformObserver(gm, "swap", log_url=str(tmp_path)) as observer:
            copied = copy.deepcopy(gm)
            relu_to_neg(copied.graph)
        assert observer.copied_gms == [copied]
        assert not (copied._create_node_hooks or gm._erase_node_hooks or copied._deepcopy_hooks)
        found.append([(node.name, told(node.meta.get("from_node", []))) for node in copied.graph.nodes])
    assert found[0] == found[1]
