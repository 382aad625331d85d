"""Parts of graphs as submodules, beside torch.fx's."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
import torch.fx
from torch import nn
from torch.fx.passes import tools_common as torch_fx_tools
from torch.fx.passes.utils import fuser_utils as torch_fx_fuser

import graphwright
from graphwright.compat.partitioning import fuser_utils
from graphwright.passes import tools_common

SIDES = [
    (torch.fx, torch_fx_fuser, getattr(torch_fx_tools, "stable_topological_sort", None)),  # there since torch 2.7
    (graphwright, fuser_utils, tools_common.stable_topological_sort),
]


def example(package: Any) -> tuple[Any, dict[str, Any]]:
    """relu -> sin -> add (y) -> add_1 (w) -> add_2 (relu), of which add_2 and sin are returned; its nodes by name."""
    graph = package.Graph()
    x, y, w = graph.placeholder("x"), graph.placeholder("y"), graph.get_attr("w")
    a = graph.call_module("net.act", (x,))
    b = graph.call_function(torch.sin, (a,))
    c = graph.call_function(torch.add, (b, y))
    d = graph.call_function(torch.add, (c,), {"other": w})
    graph.output((graph.call_function(torch.add, (a, d)), b))
    root = nn.Module()
    root.net = nn.Module()
    root.net.act = nn.PReLU()
    root.w = nn.Parameter(torch.ones(2))
    gm = package.GraphModule(root, graph)
    for node in graph.nodes:
        node.meta = {"val": node.name, "size": 2}
    return gm, {node.name: node for node in graph.nodes}


def spelled(gm: Any, is_inner: bool = False) -> Any:
    """A graph by names; the order of inputs of a part is that of what is passed."""
    lines = [(n.name, n.op, str(n.target), str(n.args), str(n.kwargs), str(n.meta), n.type) for n in gm.graph.nodes]
    return sorted(map(repr, lines)) if is_inner else list(map(repr, lines))


PARTS = ["net_act sin", "sin add add_1", "add add_1", "add_2", "w add_1", "net_act sin add add_1 add_2 w"]


@pytest.mark.parametrize("as_tuple", [False, True])
@pytest.mark.parametrize("part", PARTS)
def test_a_part_is_that_of_torch_fx(part: str, as_tuple: bool) -> None:
    found = []
    for package, module, sort in SIDES:
        gm, nodes = example(package)
        members = [nodes[name] for name in part.split()]
        if part.startswith("w") or part.endswith("w"):
            members = sorted(members)
        sub, inputs, outputs = module.fuse_as_graphmodule(gm, members, "Part", always_return_tuple=as_tuple)
        names = [node.name for node in (*inputs, *outputs)]
        facts: list[Any] = [type(sub).__name__, names, spelled(sub, is_inner=True)]
        facts.append([name for name, _ in sub.named_parameters()])
        assert all(value is gm.get_parameter(name) for name, value in sub.named_parameters())
        before = [value.clone() for value in gm(torch.ones(2), torch.ones(2))]
        assert module.insert_subgm(gm, sub, inputs, outputs) is gm
        facts.append(spelled(gm))
        module.erase_nodes(gm, members)
        sort(gm)
        gm.graph.lint()
        facts.append(spelled(gm, is_inner=True))
        gm.recompile()
        for one, other in zip(gm(torch.ones(2), torch.ones(2)), before, strict=True):
            torch.testing.assert_close(one, other)
        found.append(facts)
    assert found[0] == found[1]


@pytest.mark.parametrize("as_tuple", [False, True])
@pytest.mark.parametrize(
    "parts", [["net_act sin"], ["sin add", "add_2"], ["net_act", "sin", "add_1 add"], ["add_1", "net_act sin"]]
)
def test_parts_are_fused_as_in_torch_fx(parts: list[str], as_tuple: bool) -> None:
    found = []
    for package, module, _ in SIDES:
        gm, nodes = example(package)
        chosen = [dict.fromkeys(nodes[name] for name in part.split()) for part in parts]
        before = [value.clone() for value in gm(torch.ones(2), torch.ones(2))]
        assert module.fuse_by_partitions(gm, chosen, "part_", as_tuple) is gm
        gm.graph.lint()
        for one, other in zip(gm(torch.ones(2), torch.ones(2)), before, strict=True):
            torch.testing.assert_close(one, other)
        inner = [(name, spelled(child, is_inner=True)) for name, child in gm.named_children() if name != "net"]
        found.append((spelled(gm, is_inner=True), inner))
    assert found[0] == found[1]


@pytest.mark.parametrize("seed", range(60))
def test_orders_and_whether_a_part_is_possible(seed: int) -> None:
    found = []
    for package, module, _ in SIDES:
        pick = random.Random(seed)
        graph = package.Graph()
        nodes = [graph.placeholder("x")]
        for _ in range(pick.randint(2, 25)):
            nodes.append(graph.call_function(torch.add, (pick.choice(nodes[-6:]), pick.choice(nodes[-6:]))))
        graph.output(nodes[-1])
        facts = []
        for _ in range(20):
            some = pick.sample(nodes, pick.randint(1, min(len(nodes), 5)))
            facts.append([node.name for node in module.topo_sort(some)])
            facts.append(module.validate_partition(some))
        found.append(facts)
    assert found[0] == found[1]


@pytest.mark.parametrize("side", SIDES, ids=["torch.fx", "graphwright"])
def test_what_cannot_be_fused(side: Any) -> None:
    package, module, _ = side
    gm, nodes = example(package)
    other, _ = example(package)
    with pytest.raises(AssertionError, match="dependency cycles"):
        module.fuse_as_graphmodule(gm, [nodes["net_act"], nodes["add_2"]], "Part")
    with pytest.raises(AssertionError, match="doesn't belong to passed in graph module"):
        module.fuse_as_graphmodule(other, [nodes["sin"]], "Part")
    with pytest.raises(AssertionError, match="dependency cycles"):
        module.fuse_by_partitions(gm, [{nodes["sin"]: None, nodes["add_2"]: None}])
    with pytest.raises(RuntimeError, match="still had 1 users"):
        module.erase_nodes(gm, [nodes["add"]])
    module.fuse_by_partitions(gm, [{nodes["sin"]: None}])
    with pytest.raises(AssertionError, match=r"removed from owning graph|doesn't belong"):
        module.fuse_by_partitions(gm, [{nodes["sin"]: None}])


def test_parts_that_need_each_other_leave_the_module_as_it_was() -> None:
    """torch.fx has made the first part when it finds out: the graph then reads what is not there yet."""
    graph = graphwright.Graph()
    x = graph.placeholder("x")
    a, b = graph.call_function(torch.relu, (x,)), graph.call_function(torch.neg, (x,))
    c, d = graph.call_function(torch.sin, (a,)), graph.call_function(torch.cos, (b,))
    graph.output((c, d))
    gm = graphwright.GraphModule({}, graph)
    before = str(gm.graph)
    with pytest.raises(AssertionError, match="dependency cycles: cos, neg, relu, sin"):
        fuser_utils.fuse_by_partitions(gm, [[a, d], [b, c]])
    with pytest.raises(AssertionError, match="two of the partitions"):
        fuser_utils.fuse_by_partitions(gm, [[a, c], [c]])
    with pytest.raises(AssertionError, match="x is placeholder x, which cannot be part"):
        fuser_utils.fuse_by_partitions(gm, [[x, a]])
    assert str(gm.graph) == before and not list(gm.children())


def test_a_module_of_the_part_s_name_stays() -> None:
    """torch.fx puts the part in the place of a module that the program still calls."""
    found = []
    for package, module, _ in SIDES:
        gm = package.symbolic_trace(lambda x: x.neg().abs())
        for _ in range(2):  # the second part is called fused_0, too
            module.fuse_by_partitions(gm, [{gm.graph.find_nodes(op="call_method")[0]: None}])
            gm.recompile()
        found.append(gm(torch.ones(1)).item())
    assert found == [1, 1]
    assert [name for name, _ in gm.named_children()] == ["fused_0", "fused_0_1"]


def test_a_branch_becomes_part_with_the_modules_that_it_calls() -> None:
    class Gate(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.act = nn.PReLU()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.act(x) * 2 if x.sum() > 0 else x - 1
            return y + 1

    gate = Gate()
    gm = graphwright.trace(gate, (torch.ones(3),))
    branch = [node for node in gm.graph.nodes if node.op == "call_function" and "cond" in str(node.target)]
    fuser_utils.fuse_by_partitions(gm, [[branch[0], *branch[0].users]])
    gm.graph.lint()
    assert len(gm.graph.find_nodes(op="call_module")) == 1
    for x in (torch.ones(3), -torch.ones(3)):
        assert torch.equal(gm(x), gate(x))
