"""Parts for a backend: the ones that torch.fx proposes, and none that need each other or change what is computed."""

from __future__ import annotations

import operator
import random
from typing import Any

import pytest
import torch
import torch.fx
from torch import nn
from torch.fx.passes import operator_support as torch_fx_support
from torch.fx.passes.infra import partitioner as torch_fx_partitioner

import graphwright
from graphwright.compat.partitioning import partitioner
from graphwright.compat.partitioning.fuser_utils import fuse_by_partitions
from graphwright.compat.partitioning.kept_order import kept_order
from graphwright.passes import operator_support

SIDES = [
    (torch.fx, torch_fx_partitioner, torch_fx_support),
    (graphwright, partitioner, operator_support),
]
FUNCTIONS = [torch.relu, torch.add, torch.where]
NAMES = ["torch.relu", "torch.add", "_operator.getitem", "torch.where"]


def random_module(package: Any, seed: int, items: bool = False) -> tuple[Any, set[str]]:
    """A module of up to forty calls and the names of the supported ones; it is not there to be run."""
    pick = random.Random(seed)
    graph = package.Graph()
    values = [graph.placeholder("x"), graph.placeholder("y")]
    reach = pick.choice([3, 5, 50])
    for _ in range(pick.randint(3, 40)):
        args = tuple(pick.choice(values[-reach:]) for _ in range(pick.choice([1, 1, 2, 2, 3])))
        if items and pick.random() < 0.3:
            values.append(graph.call_function(operator.getitem, (pick.choice(values), pick.randint(0, 2))))
        else:
            values.append(graph.call_function(FUNCTIONS[len(args) - 1], args))
    graph.output(tuple(value for value in values if not value.users or pick.random() < 0.15))
    chance = pick.choice([0.3, 0.6, 0.85])
    supported = {value.name for value in values[2:] if pick.random() < chance}
    return package.GraphModule({}, graph), supported


def by_name(partitions: Any) -> list[Any]:
    return [(part.id, [(node.name, order) for node, order in part.nodes.items()]) for part in partitions]


def partitioner_of(side: Any, gm: Any, supported: set[str], *args: Any, **kwargs: Any) -> Any:
    _, module, support = side
    has = support.create_op_support(lambda _, node: node.name in supported)
    return module.CapabilityBasedPartitioner(gm, has, *args, **kwargs)


@pytest.mark.sampled(9)
@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("seed", range(80))
def test_random_modules_have_torch_fx_s_parts(seed: int, skip: bool) -> None:
    found = []
    for side in SIDES:
        gm, supported = random_module(side[0], seed, items=not skip and seed % 2 == 0)
        chosen = partitioner_of(side, gm, supported, True, skip_horizontal_fusion=skip)
        parts = chosen.propose_partitions()
        found.append(by_name(parts))
        fused = chosen.fuse_partitions(parts)
        fused.graph.lint()
        found[-1] += [
            {node.name: (node.op, str(node.target), str(node.args)) for node in each.graph.nodes}
            for each in (fused, *fused.children())
        ]
    assert found[0] == found[1]


@pytest.mark.parametrize("seed", range(80))
def test_small_parts_and_ends_are_left_out_as_in_torch_fx(seed: int) -> None:
    found = []
    for side in SIDES:
        pick = random.Random(seed)
        gm, supported = random_module(side[0], seed, items=True)
        idle, allowed = ([name for name in NAMES if pick.random() < chance] for chance in (0.4, 0.2))
        few = partitioner_of(side, gm, supported, False, idle, allowed).propose_partitions()
        chosen = partitioner_of(side, gm, supported, True, idle)
        parts = chosen.propose_partitions()
        chosen.remove_bookend_non_compute_ops(parts)
        found.append((by_name(few), by_name(parts)))
    assert found[0] == found[1]


def test_parts_that_need_each_other_are_not_proposed() -> None:
    """torch.fx puts `first` with `relu` and `last`: these then need `where`, whose part they also need."""
    found = []
    for side in SIDES:
        graph = side[0].Graph()
        x, y = graph.placeholder("x"), graph.placeholder("y")
        calls = {}
        for name, function, args in [
            ("first", torch.add, (y, x)),
            ("relu", torch.relu, ("first",)),
            ("second", torch.neg, (y,)),
            ("where", torch.add, ("first", "second")),
            ("abs", torch.abs, ("second",)),
            ("last", torch.add, ("relu", "abs")),
        ]:
            args = tuple(calls.get(arg, arg) for arg in args)
            calls[name] = graph.create_node("call_function", function, args, name=name)
        graph.output((calls["where"], calls["last"]))
        gm = side[0].GraphModule({}, graph)
        chosen = partitioner_of(side, gm, set(calls) - {"abs"}, True, skip_horizontal_fusion=True)
        found.append([sorted(node.name for node in part.nodes) for part in chosen.propose_partitions()])
        if side is SIDES[0]:
            with pytest.raises(AssertionError, match="dependency cycles"):
                chosen.partition_and_fuse()
        else:
            fused = chosen.partition_and_fuse()
            assert [value.item() for value in fused(torch.ones(1), torch.ones(1))] == [1, 3]
    assert found == [
        [["second", "where"], ["first", "last", "relu"]],
        [["first", "second", "where"], ["last", "relu"]],
    ]


def test_items_by_a_computed_place_stay_behind_it() -> None:
    graph = graphwright.Graph()
    x = graph.placeholder("x")
    numbers = graph.call_function(torch.relu, (x,))
    place = graph.call_function(torch.argmax, (numbers,))
    item = graph.call_function(operator.getitem, (numbers, place))
    graph.output(item)
    gm = graphwright.GraphModule({}, graph)
    parts = partitioner_of(SIDES[1], gm, {"relu", "getitem"}, True).propose_partitions()
    assert [list(part.nodes) for part in parts] == [[item], [numbers]]


def test_inputs_and_outputs_are_in_no_part() -> None:
    gm = graphwright.symbolic_trace(lambda x: x.relu().neg())
    everything = operator_support.create_op_support(lambda modules, node: True)
    fused = partitioner.CapabilityBasedPartitioner(gm, everything, True).partition_and_fuse("part_")
    assert [node.name for node in fused.graph.nodes] == ["x", "part_0", "output"]
    assert fused(torch.ones(1)) == -1


def test_partitions_are_those_of_torch_fx() -> None:
    found = []
    for _, module, _ in SIDES:
        part = module.Partition(3, ["a", "b"], [1, 2])
        part.add_node("c")
        part.add_node("d", 4)
        part.remove_node("a")
        with pytest.raises(AssertionError, match="same length"):
            module.Partition(3, ["a"], [1, 2])
        with pytest.raises(KeyError):
            part.remove_node("a")
        found.append((repr(part), part.nodes, part.id, part.size(), module.Partition().__dict__))
    assert found[0] == found[1]


# ---- effects


class Steps(nn.Module):
    """Modules for random programs with effects."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.drop = nn.Dropout()
        self.act = nn.ReLU(inplace=True)
        self.register_buffer("total", torch.zeros(3, 4))


def random_effects(seed: int) -> tuple[Any, set[str]]:
    """A program over matrices that reads and writes them, through views too, in a random order."""
    pick = random.Random(seed)
    graph = graphwright.Graph()
    root = Steps()
    total = graph.placeholder("x"), graph.placeholder("y"), graph.get_attr("total")
    values = list(total)
    for _ in range(pick.randint(4, 24)):
        value, other = pick.choice(values), pick.choice(values)
        kind = pick.choice(["neg", "add", "add", "view", "add_", "relu", "norm", "drop", "act", "rand", "mean"])
        if kind in ("norm", "drop", "act"):
            values.append(graph.call_module(kind, (value,)))
        elif kind == "view":
            values.append(graph.call_method("view", (value, 3, 4)))
        elif kind in ("add", "add_"):
            values.append(graph.call_method(kind, (value, other)))
        elif kind == "rand":
            values.append(graph.call_function(torch.rand_like, (value,)))
        elif kind == "mean":
            values.append(graph.call_function(operator.add, (value, graph.get_attr("norm.running_mean"))))
        else:
            values.append(graph.call_function(getattr(torch, kind), (value,)))
    graph.output(tuple(value for value in values if not value.users or pick.random() < 0.2))
    supported = {value.name for value in values if value.op != "placeholder" and pick.random() < 0.6}
    return graphwright.GraphModule(root, graph), supported


def run(gm: Any) -> list[torch.Tensor]:
    torch.manual_seed(0)
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    return [*gm(x, y), x, y, gm.total if hasattr(gm, "total") else x, torch.rand(1)]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("skip", [False, True])
def test_programs_that_write_compute_the_same_in_parts(skip: bool) -> None:
    fused = 0
    for seed in range(100):
        before, after = random_effects(seed)[0], random_effects(seed)
        result = partitioner_of(SIDES[1], *after, True, skip_horizontal_fusion=skip).partition_and_fuse()
        result.graph.lint()
        fused += len(result.graph.find_nodes(op="call_module"))
        with torch.no_grad():
            for expected, found in zip(run(before), run(result), strict=True):
                torch.testing.assert_close(found, expected, rtol=0, atol=0)
    assert fused > 200


def test_a_write_stays_behind_a_read() -> None:
    """relu reads x before add_ writes to it: torch.fx moves the read behind the write."""

    def program(x: Any) -> Any:
        first = torch.relu(x)
        x.add_(1)
        return first * x

    found = []
    for side in SIDES:
        gm = side[0].symbolic_trace(program)
        parts = partitioner_of(side, gm, {"relu", "mul"}, True).partition_and_fuse()
        found.append(parts(torch.tensor([2.0])).item())
    assert found == [9.0, 6.0]


def test_regions_of_ambient_state_keep_what_is_in_them() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            y = x.exp()
        return y * x.exp()

    gm = graphwright.trace(program, (torch.ones(2),))
    x = torch.ones(2, requires_grad=True)
    everything = operator_support.create_op_support(lambda modules, node: True)
    fused = partitioner.CapabilityBasedPartitioner(gm, everything, True).partition_and_fuse()
    assert len(fused.graph.find_nodes(op="call_module")) == 2
    assert torch.equal(*[torch.autograd.grad(f(x).sum(), x)[0] for f in (program, fused)])


def test_what_is_not_known_may_write_to_its_arguments() -> None:
    def unknown(x: torch.Tensor) -> torch.Tensor:
        return x.mul_(2)

    graph = graphwright.Graph()
    x = graph.placeholder("x")
    before = graph.call_function(torch.neg, (x,))
    call = graph.call_function(unknown, (x,))
    graph.output(graph.call_function(torch.add, (before, call)))
    gm = graphwright.GraphModule({}, graph)
    assert kept_order(gm)[before] == [call]
    with pytest.raises(AssertionError, match="add, neg wait for each other"):
        fuse_by_partitions(gm, [[before, *call.users]])
    assert partitioner_of(SIDES[1], gm, {"neg", "add"}, True).partition_and_fuse()(torch.ones(1)) == 1


# ---- cost


def test_a_long_chain_is_walked_once() -> None:
    """Supported and unsupported calls in turn: torch.fx tries each pair of the 5,000 parts."""
    graph = graphwright.Graph()
    value = graph.placeholder("x")
    asked = 0
    for i in range(10_000):
        value = graph.call_function((torch.relu, torch.neg)[i % 2], (value,))
    graph.output(value)
    gm = graphwright.GraphModule({}, graph)

    def is_supported(modules: Any, node: Any) -> bool:
        nonlocal asked
        asked += 1
        return bool(node.target is torch.relu)

    support = operator_support.create_op_support(is_supported)
    parts = partitioner.CapabilityBasedPartitioner(gm, support, True).propose_partitions()
    assert len(parts) == 5_000 and asked == 10_000
