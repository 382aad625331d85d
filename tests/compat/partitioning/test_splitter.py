"""Splitters for accelerators, beside torch.fx's: supported nodes, parts, previews, and the log of decisions."""

from __future__ import annotations

import operator
import random
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.fx
from torch import nn
from torch.fx.passes import operator_support as torch_fx_support
from torch.fx.passes import split_utils as torch_fx_split
from torch.fx.passes import splitter_base as torch_fx_splitter

import graphwright
from graphwright.passes import operator_support, split_utils, splitter_base

SIDES = [
    (torch.fx, torch_fx_splitter, torch_fx_support, torch_fx_split),
    (graphwright, splitter_base, operator_support, split_utils),
]
INPUTS = [torch.ones(1, 3), torch.ones(1, 3)]
SETTINGS: list[dict[str, Any]] = [
    {},
    {"allow_non_tensor": True},
    {"min_acc_module_size": 3, "skip_fusion": True},
    {"allow_non_tensor": True, "skip_fusion": True, "move_non_tensor_nodes_on_boundary": True},
]


def names(nodes: Any) -> list[str]:
    return sorted(node.name for node in nodes)


def random_module(package: Any, seed: int) -> tuple[Any, set[str]]:
    """A module in which tensors, sizes and tuples pass from node to node, and the names of unsupported nodes."""
    pick = random.Random(seed)
    graph = package.Graph()
    tensors, numbers, tuples = [graph.placeholder("a"), graph.placeholder("b"), graph.get_attr("w")], [], []
    for _ in range(pick.randint(3, 14)):
        kind, x = (
            pick.choice(["relu", "sin", "add", "add", "size", "plus", "times", "split", "item"]),
            pick.choice(tensors),
        )
        if kind in ("relu", "sin"):
            tensors.append(graph.call_function(getattr(torch, kind), (x,)))
        elif kind == "add":
            tensors.append(graph.call_function(operator.add, (x, pick.choice(tensors))))
        elif kind == "size":
            numbers.append(graph.call_method("size", (x, 0)))
        elif kind == "plus" and numbers:
            tensors.append(graph.call_function(operator.add, (x, pick.choice(numbers))))
        elif kind == "times" and numbers:
            numbers.append(graph.call_function(operator.mul, (pick.choice(numbers), 2)))
        elif kind == "split":
            tuples.append(graph.call_method("split", (x, 1)))
        elif kind == "item" and tuples:
            tensors.append(graph.call_function(operator.getitem, (pick.choice(tuples), 0)))
    results = [tensors[-1], pick.choice(numbers + tensors), *(node for node in graph.nodes if not node.users)]
    graph.output(tuple(results))
    unsupported = {node.name for node in graph.nodes if pick.random() < 0.3}
    return package.GraphModule({"w": torch.ones(3)}, graph), unsupported


def untag(gm: Any) -> None:
    for node in gm.graph.nodes:
        if hasattr(node, "tag"):
            del node.tag


@pytest.mark.sampled(5)
@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("seed", range(15))
def test_random_modules_are_split_alike(
    seed: int, settings: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    found = []
    for package, base, support, _ in SIDES:
        gm, unsupported = random_module(package, seed)
        is_supported = support.create_op_support(lambda _, node, names=unsupported: node.name not in names)
        splitter = base._SplitterBase(gm, INPUTS, is_supported, base._SplitterSettingBase(**settings))
        facts: list[Any] = [names(splitter.acc_nodes), [names(nodes) for nodes in splitter.starter_nodes()]]
        facts += [{node.name: names(deps) for node, deps in splitter.deps.items() if deps}]
        facts += [{node.name: names(group) for node, group in splitter.fusions.items()}]
        parts = splitter.remove_small_acc_subgraphs(splitter.put_nodes_into_subgraphs())
        facts += [[(part.is_acc, names(part.nodes)) for part in parts]]
        splitter.tag(parts)
        facts += [[names(splitter.find_parent_nodes_of_subgraph(tag)) for tag in splitter.tags]]
        facts += [{node.name: names(users) for node, users in splitter.find_reverse_deps(1).items()}]
        splitter.extend_acc_subgraph(splitter.tags[-1])
        facts += [{node.name: node.tag for node in gm.graph.nodes if hasattr(node, "tag")}]
        untag(gm)
        facts += [splitter.get_node_submodule_map().copy(), sorted(splitter.node_support_preview().splitlines())]
        try:
            facts += [sorted(splitter.split_preview().splitlines())]
        except ZeroDivisionError:  # a part that moves no tensors has no rate in torch.fx
            facts += [None]
            untag(gm)
        capsys.readouterr()
        split = splitter()
        facts += [sorted(capsys.readouterr().out.splitlines()), [name for name, _ in split.named_children()]]
        torch.testing.assert_close(split(*INPUTS), gm(*INPUTS))
        found.append(facts)
    found[1] = [None if theirs is None else ours for theirs, ours in zip(*found, strict=True)]
    assert found[0] == found[1]


@pytest.mark.parametrize("seed", range(40))
def test_non_tensors_move_to_their_readers(seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    found = []
    for package, base, _, tools in SIDES:
        pick = random.Random(seed)
        graph = package.Graph()
        nodes = [graph.placeholder("a")]
        for _ in range(pick.randint(3, 9)):
            nodes.append(graph.call_function(operator.add, (pick.choice(nodes), pick.choice(nodes))))
        for node in nodes:
            node.meta["type"] = pick.choice([int, torch.Tensor])
        places = sorted(pick.randint(0, 3) for _ in nodes[1:])
        parts = [
            base.Subgraph(
                pick.random() < 0.6, [node for node, at in zip(nodes[1:], places, strict=True) if at == place]
            )
            for place in range(4)
        ]
        graph.output(nodes[-1])
        tools.move_non_tensor_nodes_on_boundary(parts)
        found.append([names(part.nodes) for part in parts] + sorted(capsys.readouterr().out.splitlines()))
    assert found[0] == found[1]


def sizes_and_sums(a: Any, b: Any) -> Any:
    size = torch.sin(a).size(0)
    total = torch.relu(b) + size
    result = torch.cos(a.split(1)[0] + total)
    return result.flatten() * result.sum().item(), size


@pytest.mark.parametrize("mode", ["0", "1", "2", "3", "4"])
@pytest.mark.parametrize("allow", [False, True])
def test_decisions_are_logged_alike(
    allow: bool, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FX_NET_ACC_SPLITTER_TRACKER_TRACKED_NODES", "size,add")
    found = []
    for package, base, support, _ in SIDES:
        gm = package.symbolic_trace(sizes_and_sums)
        base.ShapeProp(gm).propagate(torch.ones(2, 3), torch.ones(2, 3))
        monkeypatch.setattr(base, "TRACKER_MODE", mode)
        monkeypatch.setattr(base, "DUMP_PREFIX", str(tmp_path / "log"))
        finder = base.FxNetAccNodesFinder(gm, support.create_op_support(lambda _, node: node.name != "cos"), allow)
        facts: list[Any] = [names(finder()), finder.tracker.to_dict(), finder.tracker.node_events]
        finder.tracker.print_node("add", recursive=True, tab="> ")
        finder.tracker.print_all()
        facts += [capsys.readouterr().out]
        for path in sorted(tmp_path.iterdir()):
            facts += [path.name, path.read_text()]
            path.unlink()
        found.append(facts)
    assert found[0] == found[1]
    assert allow or "add: acc_del|user_of_new_cpu_node size" in found[1][1]["add"]


class Calls(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.inner = nn.Linear(2, 2), nn.Sequential(nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(self.linear(x)) * self.linear(x + 1)


def test_inputs_of_submodules() -> None:
    model, x = Calls(), torch.ones(1, 2)
    theirs, ours = (
        base.generate_inputs_for_submodules(model, [x], ["linear", "inner.0", "nothing"], deepcopy=True)
        for _, base, _, _ in SIDES
    )
    torch.testing.assert_close(ours, theirs)
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_split_results_and_reports_of_backends(capsys: pytest.CaptureFixture[str]) -> None:
    found = []
    for package, base, support, _ in SIDES:

        class Failing(base._SplitterBase):  # type: ignore[misc, name-defined]
            def _lower_model_to_backend(self, mod: Any, inputs: Any) -> Any:
                raise RuntimeError("not today")

        gm = package.symbolic_trace(lambda a, b: (a.sin() + torch.cos(b)).relu())
        arguments = INPUTS, support.create_op_support(lambda _, node: node.name != "cos"), base._SplitterSettingBase()
        report = Failing(gm, *arguments).split_preview()
        result = base._SplitterBase(
            gm, *arguments, non_acc_submodule_name="_cpu_", return_tuple=True
        ).generate_split_results()
        shapes = {name: [tuple(x.shape) for x in values] for name, values in result.submodule_inputs.items()}
        found.append([report, type(result).__name__, result._fields, shapes, result.non_acc_submodule_prefix])
        found[-1] += [str(result.split_module.graph), capsys.readouterr().out]
        with pytest.raises(AssertionError):
            base._SplitterBase(nn.ReLU(), *arguments)
        graph = package.Graph()
        graph.output(3)
        empty = base._SplitterBase(package.GraphModule({}, graph), [], *arguments[1:])
        with pytest.raises(base.FxNetSplitterInternalError, match="Couldn't create subgraphs"):
            empty()
    assert found[0] == found[1]
