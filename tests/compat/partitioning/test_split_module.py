"""`split_module`, beside torch.fx's on random programs cut at random."""

from __future__ import annotations

import operator
import random
from typing import Any

import pytest
import torch
import torch.fx
from graphwright.passes.split_module import Partition, split_module, split_module_simple
from torch import nn
from torch.amp.autocast_mode import _enter_autocast, _exit_autocast
from torch.fx.passes import split_module as torch_fx_split

import graphwright

SIDES = [(torch.fx, torch_fx_split.split_module), (graphwright, split_module)]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"keep_original_node_name": True},
    {"keep_original_input_name": False},
    {"partition_affix": "of"},
    {"tuple_return": True},
]


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.rand(4))
        self.register_buffer("offset", torch.rand(4))
        self.blocks = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        self.last = nn.Linear(4, 4)


def random_module(package: Any, model: nn.Module, seed: int) -> Any:
    """A program over matrices with four columns, the same for each package."""
    pick = random.Random(seed)
    graph = package.Graph()
    values = [graph.placeholder(name) for name in ("x", "y")]
    for name in ("scale", "offset", "scale"):
        values.append(graph.get_attr(name))
    for _ in range(pick.randint(3, 25)):
        a, b = pick.choice(values), pick.choice(values)
        kind = pick.randrange(5)
        if kind == 0:
            values.append(graph.call_function(operator.add, (a, b)))
        elif kind == 1:
            values.append(graph.call_function(torch.mul, (a,), {"other": b}))
        elif kind == 2:
            values.append(graph.call_method("clamp", (a,), {"min": -1.0}))
        elif kind == 3:
            values.append(graph.call_module(pick.choice(["blocks.0", "blocks.1", "last"]), (a,)))
        else:
            values.append(graph.call_function(torch.stack, ([a, a],)))
            values[-1] = graph.call_method("sum", (values[-1], 0))
    graph.output((values[-1], {"more": [pick.choice(values), values[0]]}))
    return package.GraphModule(model, graph)


def description(split: Any) -> list[Any]:
    """Everything that a split module is made of, in comparable form."""
    found = [str(split.graph), split.code.strip(), sorted(name for name, _ in split.named_parameters())]
    for name, child in split.named_children():
        found += [name, str(child.graph), child.code.strip(), sorted(name for name, _ in child.named_children())]
    return found


@pytest.mark.sampled(7)
@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: next(iter(options), "plain"))
@pytest.mark.parametrize("seed", range(40))
def test_contiguous_parts_are_those_of_torch_fx(seed: int, options: dict[str, Any]) -> None:
    model = Model()
    found = []
    for package, split in SIDES:
        gm = random_module(package, model, seed)
        pick = random.Random(seed + 1)
        cuts = sorted(pick.sample(range(len(gm.graph.nodes)), pick.randint(0, 4)))
        position = {node: i for i, node in enumerate(gm.graph.nodes)}
        names: dict[str, str] = {}
        part = split(gm, model, lambda node: sum(position[node] >= cut for cut in cuts), names, **options)  # noqa: B023
        x, y = torch.ones(2, 4), torch.arange(4.0)
        torch.testing.assert_close(part(x, y), gm(x, y))
        found.append([*description(part), names])
    assert found[0] == found[1]


@pytest.mark.sampled(7)
@pytest.mark.parametrize("keep_order", [False, True])
@pytest.mark.parametrize("seed", range(150))
def test_scattered_parts_are_those_of_torch_fx(seed: int, keep_order: bool) -> None:
    model = Model()
    found: list[Any] = []
    for package, split in SIDES:
        gm = random_module(package, model, seed)
        pick = random.Random(seed)
        count = pick.randint(2, 6)
        depth: dict[Any, int] = {}  # parts follow data, not position; some seeds make cycles
        for node in gm.graph.nodes:
            depth[node] = max((depth[used] for used in node.all_input_nodes), default=0) + (pick.random() < 0.2)
        try:
            part = split(gm, model, lambda node: str(depth[node] % count), keep_original_order=keep_order)  # noqa: B023
            found.append(description(part))
        except (RuntimeError, KeyError) as error:
            found.append("cycle" if "cycle" in str(error) else "order")
    if found[0] == "order" and any(node.op == "get_attr" for node in gm.graph.output_node().all_input_nodes):
        return  # torch.fx does not find an attribute that only the output reads
    assert found[0] == found[1]


def test_a_cycle_names_the_parts() -> None:
    gm = graphwright.symbolic_trace(lambda x: (x + 1) * 2 - x)
    with pytest.raises(RuntimeError, match=r"cycle exists between partitions! .*submod_0, submod_1"):
        split_module(gm, gm, lambda node: 1 if node.name == "mul" else 0)


def effects(package: Any) -> Any:
    graph = package.Graph()
    x = graph.placeholder("x")
    graph.call_method("add_", (x, 1))
    graph.output(graph.call_function(operator.mul, (x, 2)))
    return package.GraphModule(nn.Module(), graph)


def test_parts_with_effects_keep_their_order() -> None:
    results = []
    for package, split in SIDES:
        gm = effects(package)
        part = split(gm, gm, lambda node: 0 if node.name == "add_" else 1)
        results.append(part(torch.ones(1)).item())
    assert results == [2.0, 4.0], "torch.fx runs the second part first"


@pytest.mark.parametrize("package_and_split", SIDES, ids=["torch.fx", "graphwright"])
def test_autocast_is_entered_and_left_in_every_part(package_and_split: Any) -> None:
    package, split = package_and_split
    graph = package.Graph()
    x = graph.placeholder("x")
    entered = graph.call_function(_enter_autocast, ("cpu", torch.bfloat16, True, None))
    first = graph.call_function(torch.matmul, (x, x))
    second = graph.call_function(torch.matmul, (first, x))
    graph.call_function(_exit_autocast, (entered,))
    third = graph.call_function(torch.matmul, (x, x))
    graph.output((first, second, third))
    gm = package.GraphModule(nn.Module(), graph)
    part = split(gm, gm, lambda node: 0 if node in (entered, first) else 1)
    for child in part.children():
        targets = [node.target for node in child.graph.nodes]
        assert targets.count(_enter_autocast) == targets.count(_exit_autocast) == 1
    assert [value.dtype for value in part(torch.ones(2, 2))] == [torch.bfloat16, torch.bfloat16, torch.float32]
    assert not torch.is_autocast_enabled("cpu")


def test_grad_mode_holds_in_later_parts() -> None:
    texts = []
    for package, split in SIDES:
        graph = package.Graph()
        x = graph.placeholder("x")
        graph.call_function(torch._C._set_grad_enabled, (False,))
        a = graph.call_function(operator.add, (x, x))
        b = graph.call_function(operator.mul, (a, a))
        graph.call_function(torch._C._set_grad_enabled, (True,))
        graph.output(b)
        gm = package.GraphModule(nn.Module(), graph)
        part = split(gm, gm, lambda node: {"mul": 1, "_set_grad_enabled_1": 1}.get(node.name, 0))
        texts.append([sorted(str(child.graph).splitlines()) for child in part.children()])
        with pytest.raises(AssertionError, match="monotonically increasing partitions"):
            split(gm, gm, lambda node: 1 if node.name == "add" else 0)
    assert texts[0] == texts[1]


def test_submodules_that_are_read_move_into_the_part() -> None:
    texts = []
    for package, split in SIDES:
        root = nn.Module()
        root.inner = package.symbolic_trace(lambda x: x + 1)
        graph = package.Graph()
        x = graph.placeholder("x")
        y = graph.call_function(operator.add, (x, 1))
        graph.output(graph.call_function(map, (graph.get_attr("inner"), [y])))
        gm = package.GraphModule(root, graph)
        part = split(gm, gm, lambda node: 0 if node is y else 1)  # noqa: B023
        texts.append([str(part.graph), *(str(child.graph) for child in part.children())])
        assert [float(value) for value in part(torch.ones(()))] == [3.0]
    assert texts[0] == texts[1]


def test_meta_goes_with_the_nodes() -> None:
    metas = []
    for package, split in SIDES:
        gm = package.symbolic_trace(lambda x: (x + 1).relu())
        for node in gm.graph.nodes:
            node.meta["mine"] = node.name
        part = split(gm, gm, lambda node: node.op)
        metas.append(
            [
                {node.name: node.meta.get("mine") for node in graph.nodes}
                for graph in (part.graph, part.submod_call_function.graph, part.submod_call_method.graph)
            ]
        )
    assert metas[1][1] == {"x": "x", "add": "add", "output": None}
    metas[1][0]["output"] = metas[0][0]["output"]
    assert metas[0] == metas[1]


def test_defaults_and_starred_inputs_stay() -> None:
    def program(x: Any, y: Any = 3, *rest: Any, **named: Any) -> Any:
        return (x + y) * rest[0] - named["z"]

    for keep in (False, True):
        gm = graphwright.symbolic_trace(program)
        part = split_module(gm, gm, lambda node: node.name == "sub", keep_original_node_name=keep)
        assert part(1, 2, 5, z=4) == 11


def test_paths_that_would_collide() -> None:
    root = nn.Module()
    root.a, root.a_b = nn.Module(), nn.Linear(1, 1)
    root.a.b = nn.ReLU()
    graph = graphwright.Graph()
    graph.output(graph.call_module("a_b", (graph.call_module("a.b", (graph.placeholder("x"),)),)))
    names: dict[str, str] = {}
    part = split_module(graphwright.GraphModule(root, graph), root, lambda node: 0, names)
    assert names == {"submod_0.a_b": "a.b", "submod_0.a_b_1": "a_b"}
    torch.testing.assert_close(part(torch.ones(1, 1)), root.a_b(torch.ones(1, 1)))


def test_split_module_simple() -> None:
    texts = []
    for package, split in [(torch.fx, torch_fx_split.split_module_simple), (graphwright, split_module_simple)]:
        gm = package.symbolic_trace(lambda x, y: (x + 1) * y - x)
        calls = [node for node in gm.graph.nodes if node.op == "call_function"]
        texts.append(description(split(gm, {node: i for i, node in enumerate(calls)}, partition_affix="p")))
        with pytest.raises(KeyError):
            split(gm, {calls[0]: 0})
    assert texts[0] == texts[1]


def test_partition_has_the_attributes_of_torch_fx() -> None:
    assert vars(torch_fx_split.Partition("0")).keys() <= vars(Partition("0")).keys()
    assert "partition dependents" in repr(Partition("0"))


def sizes(x, y):
    rows, columns = x.size(0), x.shape[1]
    summed = x.view(rows * columns) + rows
    return (summed.view(rows, columns) + y).sum() + rows, x.shape


@pytest.mark.parametrize("options", [*OPTIONS, {"keep_original_order": True}], ids=str)
@pytest.mark.parametrize("cut", [1, 2, 3, 4])
def test_sizes_cross_parts_as_in_torch_fx(cut: int, options: dict[str, Any]) -> None:
    found = []
    for package, split in SIDES:
        gm = package.symbolic_trace(sizes)
        number = {node: index // cut for index, node in enumerate(gm.graph.nodes)}
        parts = split(gm, None, number.__getitem__, **options)
        found.append([str(parts.graph), *(f"{name} {part.graph}" for name, part in parts.named_children())])
        result = parts(torch.ones(2, 3), torch.ones(3))
        assert float(result[0]) == 26.0 and tuple(result[1]) == (2, 3)
    assert found[0] == found[1]


class Bodies(nn.Module):
    """Names modules, tensors and the training flag inside a branch and inside a function given to vmap."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
        self.scale = nn.Parameter(torch.rand(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            x = self.layers[0](x) if self.training else x * 3
        else:
            x = self.layers[0](x + 1) * self.scale
        x = x.sin()
        return torch.vmap(lambda v: self.layers[1](v) * self.scale)(x)


@pytest.mark.parametrize("step", [1, 2, 3])
def test_parts_have_what_bodies_name(step: int) -> None:
    model = Bodies()
    gm = graphwright.trace(model, (torch.rand(2, 4),))
    places = {node: i for i, node in enumerate(gm.graph.nodes)}
    split = split_module(gm, model, lambda node: places[node] // step)
    for is_training in (True, False):
        for x in (torch.rand(3, 4), -torch.rand(2, 4)):
            torch.testing.assert_close(split.train(is_training)(x), model.train(is_training)(x))
    assert str(gm.graph) == str(graphwright.trace(model.train(), (torch.rand(2, 4),)).graph)
