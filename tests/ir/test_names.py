"""Names of values: torch.fx's where torch.fx gives a usable one, and the same whenever somebody asks for them."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
import torch.fx
from hypothesis import given
from hypothesis import strategies as st
from torch.fx.graph import _Namespace as FxNamespace

import graphwright
from graphwright import Graph
from graphwright.errors import GraphError
from graphwright.ir import Namespace, candidate_for, is_reserved

CANDIDATES = [
    *("a", "b", "relu", "a_1", "a_2", "a_01", "a_10", "a_1_1", "relu_7", "_1", "_", "a_", "__x", "x__", "_0"),
    *("len", "sum", "sum_1", "torch", "inf", "self", "class", "device", "NoneType"),
    *("1.weight", "", "a b", "é", "layer1.0.conv", "0", "a-1", "x.1"),
]


@given(st.lists(st.sampled_from(CANDIDATES), max_size=12))
def test_a_namespace_gives_the_names_that_torch_fx_gives(candidates: list[str]) -> None:
    ours, theirs = Namespace(), FxNamespace()
    assert [ours.create(name) for name in candidates] == [theirs.create_name(name, object()) for name in candidates]


@given(st.lists(st.text(alphabet="aA1_. é-", max_size=5), max_size=12))
def test_names_are_legal_and_unique_whatever_the_wish(wishes: list[str]) -> None:
    namespace = Namespace()
    names = [namespace.create(wish) for wish in wishes]
    assert len(set(names)) == len(names)
    assert all(name.isidentifier() and name.isascii() and not is_reserved(name) for name in names)
    assert all(name in namespace for name in names)


def test_none_is_not_a_name_though_torch_fx_gives_it() -> None:
    assert Namespace().create("None") == "None_1"
    assert FxNamespace().create_name("None", None) == "None"


class CallMe:
    def __call__(self) -> None: ...


@pytest.mark.parametrize(
    ("target", "name"),
    [
        (torch.relu, "relu"),
        (operator.add, "add"),
        (operator.and_, "and_"),
        (operator.getitem, "getitem"),
        (torch.ops.aten.add.Tensor, "add.tensor"),
        (CallMe, "call_me"),
        (CallMe(), "call_me"),
        (CallMe.__call__, "__call__"),
        (lambda: None, "<lambda>"),
        ("layer1.0.Conv2d", "layer1.0.conv2d"),
        ("HTTPServer", "httpserver"),
        ("fooBar", "foo_bar"),
        ("__add__", "add"),
    ],
)
def test_a_name_starts_from_what_makes_the_value(target: Any, name: str) -> None:
    assert candidate_for(target) == name


# ---- in graphs

FUNCTIONS = [
    operator.add,
    operator.and_,
    operator.getitem,
    torch.relu,
    len,
    CallMe,
    torch.conv2d,
    getattr,
    torch._assert,
]
PATHS = ["relu", "a_1", "relu_1", "__add__", "fooBar", "HTTPServer", "layer1.0.Conv2d", "self", "len", "X", "x_2_"]
WISHES = ["relu", "x", "x_1", "x_7", "len", "a b", "1", "", "torch", "relu_1", "é", "x_", None, None, None, None, None]

steps = st.lists(
    st.tuples(
        st.sampled_from(["function", "path", "placeholder", "output", "erase", "retarget"]),
        st.integers(0, 40),
        st.integers(0, 40),
    ),
    max_size=14,
)
renamings = st.lists(st.tuples(st.integers(0, 40), st.sampled_from(["a", "relu_3", "x_1", "my_value"])), max_size=3)


def run(graph: Any, steps: list[tuple[str, int, int]], nodes: list[Any]) -> None:
    """Take steps that make, erase and retarget nodes."""
    for kind, a, b in steps:
        name = WISHES[b % len(WISHES)]
        if kind == "function":
            nodes.append(graph.create_node("call_function", FUNCTIONS[a % len(FUNCTIONS)], (), {}, name))
        elif kind == "path":
            op = ("call_method", "call_module", "get_attr")[b % 3]
            nodes.append(graph.create_node(op, PATHS[a % len(PATHS)], (), {}, name))
        elif kind == "placeholder":
            nodes.append(graph.placeholder("*" * (b % 3) + PATHS[a % len(PATHS)]))
        elif kind == "output":
            nodes.append(graph.output(None))
        elif nodes:
            node = nodes[a % len(nodes)]
            if kind == "erase":
                nodes.remove(node)
                graph.erase_node(node)
            else:
                choices = FUNCTIONS if node.op == "call_function" else PATHS
                node.target = choices[b % len(choices)]


@given(steps)
def test_graphs_give_the_names_that_torch_fx_gives(steps: list[tuple[str, int, int]]) -> None:
    ours: list[Any] = []
    theirs: list[Any] = []
    run(Graph(), steps, ours)
    run(torch.fx.Graph(), steps, theirs)
    assert [node.name for node in ours] == [node.name for node in theirs]


@given(steps, steps, renamings)
def test_a_name_made_late_is_the_one_made_at_once(
    first: list[tuple[str, int, int]], second: list[tuple[str, int, int]], renamings: list[tuple[int, str]]
) -> None:
    late, early = Graph(), Graph()
    late_nodes: list[Any] = []
    early_nodes: list[Any] = []
    for graph, nodes in ((late, late_nodes), (early, early_nodes)):
        for part in (first, second):
            for step in part:
                run(graph, [step], nodes)
                if graph is early:
                    _ = [node.name for node in nodes]
            for which, name in renamings if nodes else ():
                if all(node is nodes[which % len(nodes)] or node.name != name for node in nodes):
                    nodes[which % len(nodes)].name = name
    assert [node.name for node in late_nodes] == [node.name for node in early_nodes]
    assert len({node.name for node in late_nodes}) == len(late_nodes)


def test_nobody_names_a_node_until_asked() -> None:
    graph = Graph()
    nodes = [graph.call_function(torch.relu) for _ in range(3)]
    assert [node._name for node in nodes] == [None] * 3
    assert nodes[2].name == "relu_2"
    assert [node._name for node in nodes] == ["relu", "relu_1", "relu_2"]


# ---- renaming


def test_a_renamed_value_keeps_its_name_out_of_reach_of_later_ones() -> None:
    graph = Graph()
    relu = graph.call_function(torch.relu)
    relu.name = "activation"
    assert relu.name == "activation"
    assert (
        str(graph)
        == "graph():\n    %activation : [num_users=0] = call_function[target=torch.relu](args = (), kwargs = {})"
    )
    assert graph.create_node("call_method", "f", name="activation").name == "activation_1"
    assert graph.call_function(torch.relu).name == "relu_1"  # as if `relu` were still there: names are never reused


def test_an_erased_value_frees_its_name_for_renaming_only() -> None:
    graph = Graph()
    first, second = graph.call_function(torch.relu), graph.call_function(torch.relu)
    assert second.name == "relu_1"
    graph.erase_node(first)
    assert graph.call_function(torch.relu).name == "relu_2"
    second.name = "relu"
    assert second.name == "relu"


def test_renaming_to_the_same_name_is_no_edit() -> None:
    graph = Graph()
    relu = graph.call_function(torch.relu)
    version = graph.version
    relu.name = "relu"
    assert graph.version == version


@pytest.mark.parametrize("name", ["1a", "a b", "", "é", "class", "None", "len", "torch", "inf", "ﬁ"])
def test_an_illegal_name_is_refused(name: str) -> None:
    graph = Graph()
    relu = graph.call_function(torch.relu)
    with pytest.raises(GraphError, match=rf"^{name!r} is not a legal name for a value\n  fix: use letters, digits"):
        relu.name = name
    assert relu.name == "relu"


def test_a_taken_name_is_refused() -> None:
    graph = Graph()
    x, relu = graph.placeholder("x"), graph.call_function(torch.relu)
    with pytest.raises(GraphError, match=r"^the name 'x' is taken by another value of this graph$"):
        relu.name = "x"
    assert (x.name, relu.name) == ("x", "relu")


def test_the_package_takes_parameters_in_lower_case_as_torch_fx_does() -> None:
    for package in (graphwright, torch.fx):
        graph = package.Graph()
        assert [graph.placeholder(name).name for name in ("X", "x", "inputIds")] == ["x", "x_1", "input_ids"]
