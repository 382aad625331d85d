"""Copying nodes and graphs."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
import torch.fx
from hypothesis import given
from tests.random_edits import apply_all, edits, facts

import graphwright
from graphwright import Graph
from graphwright.errors import GraphError
from graphwright.ir import Origin

PACKAGES = [pytest.param(graphwright, id="graphwright"), pytest.param(torch.fx, id="torch.fx")]


def source(package: Any) -> Any:
    graph = package.Graph()
    x = graph.placeholder("x", torch.Tensor)
    relu = graph.call_function(torch.relu, (x,))
    cat = graph.call_function(torch.cat, ([x, relu],), {"dim": 1})
    relu.meta["shape"] = [2, 3]
    graph.output({"cat": cat, "x": (x,)})
    return graph


@pytest.mark.parametrize("package", PACKAGES)
def test_node_copy(package: Any) -> None:
    graph = source(package)
    x, relu, cat, _ = graph.nodes
    target = package.Graph()
    y = target.placeholder("relu")
    copied = target.node_copy(relu, lambda node: y)
    assert (copied.name, copied.op, copied.target, copied.args) == ("relu_1", "call_function", torch.relu, (y,))
    assert copied.meta == {"shape": [2, 3]}
    assert copied.meta is not relu.meta
    second = target.node_copy(cat, {x: y, relu: copied}.__getitem__)
    assert str(second.args) + str(second.kwargs) == "([relu, relu_1],){'dim': 1}"
    assert list(copied.users) == [second]
    assert target.node_copy(x).type is torch.Tensor


def test_node_copy_keeps_the_origin() -> None:
    graph = source(graphwright)
    _x, relu, *_ = graph.nodes
    relu.origin = Origin("model.py", 3, "forward", "y = relu(x)")
    target = Graph()
    assert target.node_copy(relu, lambda node: target.placeholder("p")).origin == relu.origin


def test_node_copy_without_a_map_is_refused_across_graphs() -> None:
    _, relu, *_ = source(graphwright).nodes
    target = Graph()
    with pytest.raises(GraphError, match=r"^Argument 'x' of Node .* does not belong to this Graph"):
        target.node_copy(relu)
    assert len(target.nodes) == 0


@pytest.mark.parametrize("package", PACKAGES)
def test_graph_copy(package: Any) -> None:
    graph = source(package)
    target = package.Graph()
    values: dict[Any, Any] = {}
    result = target.graph_copy(graph, values)
    assert [node.name for node in target.nodes] == ["x", "relu", "cat"]
    assert str(result) == "{'cat': cat, 'x': (x,)}"
    assert [node.name for node in values] == ["x", "relu", "cat"]
    again = target.graph_copy(graph, {}, return_output_node=True)
    assert str(again[0]) == "{'cat': cat_1, 'x': (x_1,)}"
    assert again[1] is next(reversed(graph.nodes))
    assert package.Graph().graph_copy(package.Graph(), {}) is None


@pytest.mark.parametrize("package", PACKAGES)
def test_graph_copy_into_given_values(package: Any) -> None:
    graph = source(package)
    target = package.Graph()
    y = target.placeholder("y")
    x = next(iter(graph.nodes))
    assert str(target.graph_copy(graph, {x: y})) == "{'cat': cat, 'x': (y,)}"
    assert [node.name for node in target.nodes] == ["y", "relu", "cat"]


@pytest.mark.parametrize("package", PACKAGES)
def test_deepcopy(package: Any) -> None:
    graph = source(package)
    twin = copy.deepcopy(graph)
    assert str(twin) == str(graph)
    assert facts(twin) == facts(graph)
    assert not set(twin.nodes) & set(graph.nodes)
    for one, other in zip(graph.nodes, twin.nodes, strict=True):
        assert (one.type, one.meta) == (other.type, other.meta)
    twin.erase_node(next(reversed(twin.nodes)))
    assert len(graph.nodes) == 4


@given(edits)
@pytest.mark.slow
def test_deepcopy_of_random_graphs(edits: list[Any]) -> None:
    graph = apply_all(graphwright, edits)
    twin = copy.deepcopy(graph)
    twin.lint()
    assert str(twin) == str(graph)
    for one in (graph, twin):
        with one.inserting_after(list(one.nodes)[1]):
            one.call_method("relu")
            one.call_method("weight_1")
    assert str(twin) == str(graph)  # new names, too, are the same


def test_deepcopy_leaves_functions_and_constants_shared() -> None:
    graph = Graph()
    weight = torch.ones(2)
    graph.call_function(torch.add, (graph.placeholder("x"), weight))
    twin = copy.deepcopy(graph)
    assert list(twin.nodes)[1].args[1] is weight


def test_deepcopy_keeps_what_belongs_to_the_whole() -> None:
    class Tracer: ...

    graph = Graph(tracer_cls=Tracer)
    graph.meta["scheme"] = "per tensor"
    twin = copy.deepcopy(graph)
    assert (twin._tracer_cls, twin.meta, twin.owning_module) == (Tracer, {"scheme": "per tensor"}, None)
    twin.meta["scheme"] = "per channel"
    assert graph.meta["scheme"] == "per tensor"


def test_a_copy_follows_its_memo() -> None:
    graph = source(graphwright)
    pair = copy.deepcopy([graph, graph])
    assert pair[0] is pair[1]
    assert pair[0] is not graph


def through_pickle(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


@pytest.mark.parametrize(
    ("package", "twin_of"),
    [(graphwright, copy.deepcopy), (graphwright, through_pickle), (torch.fx, through_pickle)],
)
def test_nodes_are_copied_with_their_graph(package: Any, twin_of: Any) -> None:
    graph = source(package)
    relu = list(graph.nodes)[1]
    twins = twin_of({"node": relu, "graph": graph, "more": [graph, (relu, graph.output_node())]})
    twin, output = twins["more"][1]
    assert twins["graph"] is not graph
    assert twins["more"][0] is twins["graph"] is twin.graph
    assert twins["node"] is twin
    assert list(twins["graph"].nodes)[1] is twin
    assert twins["graph"].output_node() is output
    assert (str(twin.graph), twin.meta) == (str(graph), relu.meta)
    assert twin_of(relu).graph is not graph


@pytest.mark.parametrize("twin_of", [copy.deepcopy, through_pickle])
@pytest.mark.parametrize("module_first", [False, True])
def test_a_graph_is_copied_with_its_module(twin_of: Any, module_first: bool) -> None:
    gm = graphwright.symbolic_trace(torch.nn.ReLU())
    pair = twin_of((gm, gm.graph) if module_first else (gm.graph, gm))
    graph, twin = pair[::-1] if module_first else pair
    assert twin is not gm
    assert twin.graph is graph
    assert graph.owning_module is twin


@pytest.mark.parametrize("twin_of", [copy.deepcopy, through_pickle])
def test_an_erased_node_is_not_copied(twin_of: Any) -> None:
    graph = source(graphwright)
    node = graph.call_function(torch.relu, (next(iter(graph.nodes)),))
    graph.erase_node(node)
    with pytest.raises(GraphError, match="relu_1 was erased from its graph, and cannot be"):
        twin_of(node)
