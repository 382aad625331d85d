"""Dead code goes, and nothing else: what is written in place, drawn, checked or not known stays."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from graphwright import Graph, GraphModule, Node


def left(graph: Graph) -> list[str]:
    graph.lint()
    return [node.name for node in graph.nodes]


def test_a_dead_chain_goes_at_once() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    graph.placeholder("unused")
    dead = graph.get_attr("weight")
    for _ in range(3):
        dead = graph.call_function(torch.add, (x, dead))
    graph.output(graph.call_method("relu", (x,)))
    assert graph.eliminate_dead_code() is True
    assert left(graph) == ["x", "unused", "relu", "output"]
    assert graph.eliminate_dead_code() is False


def test_what_a_write_needs_stays() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    view = graph.call_method("view", (x, -1))
    part = graph.call_function(operator.getitem, (view, 0))
    graph.call_method("add_", (part, 1))
    graph.call_method("add", (part, 1))
    graph.output(x)
    assert graph.eliminate_dead_code()
    assert left(graph) == ["x", "view", "getitem", "add_", "output"]


def test_a_write_that_nobody_can_see_goes() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    total = graph.call_function(torch.add, (x, x))
    graph.call_method("relu_", (graph.call_method("add_", (total, 1)),))
    shared = graph.call_function(torch.add, (x, 1))
    graph.call_method("relu_", (shared,))
    graph.call_method("relu_", (graph.call_method("view", (x, -1)),))
    graph.output(shared)
    assert graph.eliminate_dead_code()
    assert left(graph) == ["x", "add_1", "relu__1", "view", "relu__2", "output"]


def test_the_caller_may_decide() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    graph.call_method("add_", (x, 1))
    graph.call_method("add", (x, 1))
    graph.output(x)
    assert graph.eliminate_dead_code(lambda node: True) is False
    assert graph.eliminate_dead_code(lambda node: node.op in ("placeholder", "output"))
    assert left(graph) == ["x", "output"]


def test_modules_are_looked_at() -> None:
    root = nn.ModuleDict(
        {"norm": nn.BatchNorm1d(2), "linear": nn.Linear(2, 2), "drop": nn.Dropout(), "drop_": nn.Dropout(inplace=True)}
    )
    graph = Graph()
    x = graph.placeholder("x")
    for name in root:
        graph.call_module(name, (x,))
    graph.output(x)
    alone = copy.deepcopy(graph)
    assert alone.eliminate_dead_code() is False  # without a module nobody knows what these are
    module = GraphModule(root, graph)
    module.graph.eliminate_dead_code()
    assert left(module.graph) == ["x", "norm", "drop", "drop_", "output"]
    module.eval()
    module.graph.eliminate_dead_code()
    assert left(module.graph) == ["x", "output"]


def test_nodes_say_themselves_whether_they_are_impure() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    assert graph.call_method("add_", (x, 1)).is_impure()
    assert not graph.call_method("add", (x, 1)).is_impure()
    assert not GraphModule(nn.Sequential(nn.ReLU()), one_call("0")).graph.find_nodes(op="call_module")[0].is_impure()


def one_call(target: str) -> Graph:
    graph = Graph()
    graph.output(graph.call_module(target, (graph.placeholder("x"),)))
    return graph


# ---- a property: with the dead code gone, everything that can be seen is as before

Make = Callable[[Graph, Node, Node], Node]
STEPS: dict[str, Make] = {
    "relu": lambda g, a, b: g.call_function(torch.relu, (a,)),
    "add": lambda g, a, b: g.call_function(operator.add, (a, b)),
    "method": lambda g, a, b: g.call_method("mul", (a, b)),
    "clone": lambda g, a, b: g.call_method("clone", (a,)),
    "view": lambda g, a, b: g.call_method("view", (a, 2, 2)),
    "transpose": lambda g, a, b: g.call_method("t", (a,)),
    "row": lambda g, a, b: g.call_method("expand", (g.call_function(operator.getitem, (a, 0)), 2, 2)),
    "buffer": lambda g, a, b: g.get_attr("mean"),
    "add_": lambda g, a, b: g.call_method("add_", (a, 1)),
    "iadd": lambda g, a, b: g.call_function(operator.iadd, (a, 1)),
    "setitem": lambda g, a, b: (g.call_function(operator.setitem, (a, 0, 3.0)), a)[1],
    "out": lambda g, a, b: g.call_function(torch.add, (b, 1), {"out": a}),
    "relu in place": lambda g, a, b: g.call_function(F.relu, (a, True)),
    "copy_ a row": lambda g, a, b: (g.call_method("zero_", (g.call_function(operator.getitem, (a, 1)),)), a)[1],
    "dropout": lambda g, a, b: g.call_function(F.dropout, (a,)),
    "dropout off": lambda g, a, b: g.call_function(F.dropout, (a, 0.5, False)),
    "rand_like": lambda g, a, b: g.call_function(torch.rand_like, (a,)),
    "batch norm": lambda g, a, b: g.call_function(
        F.batch_norm, (a, g.get_attr("mean_of"), g.get_attr("var_of")), {"training": True}
    ),
    "module": lambda g, a, b: g.call_module("norm", (a,)),
    "module in place": lambda g, a, b: g.call_module("relu_", (a,)),
    "relu in place, of a sum": lambda g, a, b: g.call_module("relu_", (g.call_function(torch.add, (a, b)),)),
    "pure module": lambda g, a, b: g.call_module("linear", (a,)),
}


class Root(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        for name in ("mean", "mean_of", "var_of"):
            self.register_buffer(name, torch.ones(2, 2) if name == "mean" else torch.ones(2))
        self.norm = nn.BatchNorm1d(2)
        self.relu_ = nn.ReLU(inplace=True)
        self.linear = nn.Linear(2, 2)


def seen(module: GraphModule) -> list[Any]:
    """Run a module; return all that is left to see: the result or the error, the inputs, the buffers, the next draw."""
    torch.manual_seed(2)
    inputs = [torch.tensor([[0.5, -1.0], [2.0, -3.0]]), torch.tensor([[1.0, 0.0], [-2.0, 4.0]])]
    with torch.no_grad():
        result = module(*inputs)
    return [result, *inputs, *module.buffers(), torch.rand(3)]


@given(st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 9), st.integers(0, 9)), max_size=10))
def test_removing_dead_code_cannot_be_seen(steps: list[tuple[str, int, int]]) -> None:
    graph = Graph()
    values = [graph.placeholder("x"), graph.placeholder("y")]
    for name, a, b in steps:
        values.append(STEPS[name](graph, values[-1 - a % len(values)], values[-1 - b % len(values)]))
    graph.output(values[len(values) // 2])
    try:
        before = seen(GraphModule(Root(), copy.deepcopy(graph)))
    except RuntimeError:  # a write into an expanded or overlapping tensor, say: torch refuses the program itself
        return
    module = GraphModule(Root(), graph)
    module.graph.eliminate_dead_code()
    module.graph.lint()
    after = seen(module)
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
    pure = {"relu", "add", "method", "clone", "view", "transpose", "row", "buffer", "dropout off", "pure module"}
    if {name for name, _, _ in steps} <= pure:
        assert all(node.users or node.op in ("placeholder", "output") for node in module.graph.nodes)


@pytest.mark.parametrize("name", STEPS)
def test_every_step_of_the_property_runs(name: str) -> None:
    graph = Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    graph.output(STEPS[name](graph, x, y))
    seen(GraphModule(Root(), graph))
