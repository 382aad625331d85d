"""Walking a graph: safe while it changes; order answered without a walk; nodes found by opcode and target."""

from __future__ import annotations

import itertools
import math
import operator
from typing import Any

import pytest
import torch
import torch.fx
from hypothesis import given
from tests.random_edits import CALLS, apply, edits, new_graph

import graphwright
from graphwright import Graph, Node
from graphwright.ir import order

PACKAGES = [pytest.param(graphwright, id="graphwright"), pytest.param(torch.fx, id="torch.fx")]


def chain(package: Any, length: int) -> Any:
    graph = package.Graph()
    for i in range(length):
        graph.call_method(f"n{i}")
    return graph


# ---- iterating while editing


@pytest.mark.parametrize("package", PACKAGES)
def test_erasing_the_node_at_hand(package: Any) -> None:
    graph = chain(package, 5)
    seen = []
    for node in graph.nodes:
        seen.append(node.name)
        graph.erase_node(node)
    assert seen == ["n0", "n1", "n2", "n3", "n4"]
    assert len(graph.nodes) == 0


@pytest.mark.parametrize("package", PACKAGES)
def test_erasing_the_node_at_hand_backwards(package: Any) -> None:
    graph = chain(package, 5)
    for node in reversed(graph.nodes):
        if node.name in ("n4", "n2", "n1"):
            graph.erase_node(node)
    assert [node.name for node in graph.nodes] == ["n0", "n3"]


@pytest.mark.parametrize("package", PACKAGES)
def test_erasing_ahead_and_behind(package: Any) -> None:
    graph = chain(package, 6)
    nodes = {node.name: node for node in graph.nodes}
    seen = []
    for node in graph.nodes:
        seen.append(node.name)
        if node.name == "n2":
            for name in ("n1", "n3", "n4"):
                graph.erase_node(nodes[name])
    assert seen == ["n0", "n1", "n2", "n5"]


def test_erasing_the_node_at_hand_and_those_after_it() -> None:
    graph = chain(graphwright, 6)
    seen = []
    for node in graph.nodes:
        seen.append(node.name)
        if node.name == "n2":
            for dead in [node, node.next, node.next.next]:
                graph.erase_node(dead)
    assert seen == ["n0", "n1", "n2", "n5"]


@pytest.mark.parametrize("package", PACKAGES)
def test_inserting_ahead_is_seen_and_behind_is_not(package: Any) -> None:
    graph = chain(package, 3)
    seen = []
    for node in graph.nodes:
        seen.append(node.name)
        if node.name == "n1":
            with graph.inserting_after(node):
                graph.call_method("ahead")
            with graph.inserting_before(node):
                graph.call_method("behind")
    assert seen == ["n0", "n1", "ahead", "n2"]
    assert [node.name for node in graph.nodes] == ["n0", "behind", "n1", "ahead", "n2"]


@pytest.mark.parametrize("package", PACKAGES)
def test_moving_the_node_at_hand(package: Any) -> None:
    graph = chain(package, 4)
    first, *_, last = graph.nodes
    seen = []
    for node in graph.nodes:
        seen.append(node.name)
        if node is first:
            last.prepend(node)
        if len(seen) > 10:
            break
    assert seen == ["n0", "n3"]  # the walk goes on from where the node is now
    assert [node.name for node in graph.nodes] == ["n1", "n2", "n0", "n3"]


def test_a_node_list_is_a_view() -> None:
    graph = chain(graphwright, 2)
    nodes = graph.nodes
    graph.call_method("n2")
    assert len(nodes) == 3
    assert repr(nodes) == "NodeList([n0, n1, n2])"
    assert [node.name for node in reversed(nodes)] == ["n2", "n1", "n0"]


def test_the_ring_closes_through_the_root() -> None:
    graph = chain(graphwright, 2)
    first, last = graph.nodes
    assert first.prev is last.next
    assert last.next.op == "root"
    assert list(Graph().nodes) == []


def test_a_node_is_no_sequence() -> None:
    with pytest.raises(
        TypeError, match=r"^'x' is a node of a graph: its value, and so its items, exist when the graph"
    ):
        iter(Graph().placeholder("x"))


# ---- order


@pytest.mark.parametrize("how", ["inserting_before", "inserting_after"])
@pytest.mark.parametrize("at", ["first", "middle", "last"])
def test_five_thousand_nodes_at_one_place_stay_in_order(how: str, at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = chain(graphwright, 3)
    numbered = 0
    renumber = order._renumber_around

    def counted(node: Node, root: Node) -> None:
        nonlocal numbered
        node._position = math.nan  # it has none yet, which the walk below would take for erased
        before = {other: other._position for other in graph.nodes}
        renumber(node, root)
        numbered += sum(before[other] != other._position for other in graph.nodes)

    monkeypatch.setattr(order, "_renumber_around", counted)
    where = list(graph.nodes)[("first", "middle", "last").index(at)]
    with getattr(graph, how)(where):
        for _ in range(5000):
            graph.call_method("f")
    nodes = list(graph.nodes)
    positions = [node._position for node in nodes]
    assert positions == sorted(set(positions))
    assert all(a < b and b > a and a <= b and b >= a for a, b in itertools.pairwise(nodes))
    graph.lint()
    assert numbered < 600  # about a tenth per node, where a walk at each insertion would take 2500


def test_order_compares() -> None:
    first, second = chain(graphwright, 2).nodes
    assert (first < second, first > second, first <= first, first >= first) == (True, False, True, True)
    assert (first <= second, first >= second, second < first) == (True, False, False)
    assert sorted([second, first]) == [first, second]


def test_moving_to_one_place_again_and_again_keeps_the_order() -> None:
    graph = chain(graphwright, 3000)
    first, second, *others = graph.nodes
    for node in others:
        first.append(node)
    assert list(graph.nodes) == [first, *reversed(others), second]
    graph.lint()


# ---- find_nodes


@given(edits)
def test_find_nodes_finds_what_a_walk_finds(edits: list[Any]) -> None:
    graph = new_graph(graphwright)
    for i, edit in enumerate(edits):
        apply(graph, edit)
        if i % 3 == 0:  # the first call makes the index, the others keep it up to date
            op, target = CALLS[i % len(CALLS)]
            graph.find_nodes(op=op, target=target)
    for op, target in {(node.op, node.target) for node in graph.nodes} | {CALLS[0], CALLS[7]}:
        wanted = [node for node in graph.nodes if (node.op, node.target) == (op, target)]
        assert graph.find_nodes(op=op, target=target) == wanted
        assert set(graph.find_nodes(op=op, target=target, sort=False)) == set(wanted)
        if op != "call_function":
            assert [node for node in graph.nodes if node.op == op] == graph.find_nodes(op=op)


def test_find_nodes_follows_moves_and_changes_of_opcode() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    a, b = graph.call_function(torch.relu, (x,)), graph.call_function(torch.relu, (x,))
    assert graph.find_nodes(op="call_function", target=torch.relu) == [a, b]
    a.prepend(b)
    assert graph.find_nodes(op="call_function", target=torch.relu) == [b, a]
    b.op = "call_method"
    b.target = "relu"
    assert graph.find_nodes(op="call_function", target=torch.relu) == [a]
    assert graph.find_nodes(op="call_method", target="relu") == [b]
    assert graph.find_nodes(op="call_function", target=torch.sigmoid) == []


class Unhashable:
    __hash__ = None  # type: ignore[assignment]
    __name__ = "unhashable"

    def __call__(self, x: Any) -> Any:
        return x


def test_find_nodes_tells_functions_that_cannot_be_hashed_apart() -> None:
    graph = Graph()
    one, other = Unhashable(), Unhashable()
    first = graph.call_function(one)
    assert graph.find_nodes(op="call_function", target=one) == [first]
    second = graph.call_function(other)
    assert graph.find_nodes(op="call_function", target=other) == [second]
    first.target = other
    assert graph.find_nodes(op="call_function", target=other) == [first, second]
    graph.erase_node(first)
    assert graph.find_nodes(op="call_function", target=other) == [second]


def test_find_nodes_visits_only_what_it_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Graph()
    x = graph.placeholder("x")
    adds = [graph.call_function(operator.add, (x, i)) for i in range(3)]
    graph.find_nodes(op="call_function", target=operator.add)

    def walk(self: Any) -> None:
        raise AssertionError("find_nodes walks the graph")

    monkeypatch.setattr(graphwright.ir.NodeList, "__iter__", walk)
    with graph.inserting_after(x):
        adds.insert(0, graph.call_function(operator.add, (x, 7)))
    graph.erase_node(adds.pop())
    assert graph.find_nodes(op="call_function", target=operator.add) == adds


def test_output_node() -> None:
    graph = Graph()
    with pytest.raises(AssertionError, match="Expected output node, got op=root: add one by"):
        graph.output_node()
    output = graph.output(None)
    assert graph.output_node() is output
