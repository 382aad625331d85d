"""Names and signatures of graphs and nodes that tools written for torch.fx use, compared with torch.fx."""

from __future__ import annotations

import importlib
import operator
import typing
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.fx
from torch.utils import _pytree as pytree

import graphwright

PACKAGES = [pytest.param(graphwright, id="graphwright"), pytest.param(torch.fx, id="torch.fx")]


def sub(package: Any, name: str) -> Any:
    return importlib.import_module(f"{package.__name__}.{name}")


def same(make: Callable[[Any], Any]) -> Any:
    """Do the same with both packages, want the same, return it."""
    ours, theirs = make(graphwright), make(torch.fx)
    assert ours == theirs
    return ours


def a_graph(package: Any) -> Any:
    graph = package.Graph()
    x = graph.placeholder("x", torch.Tensor)
    relu = graph.call_function(torch.relu, (x,), type_expr=torch.Tensor)
    graph.output((relu,), type_expr=typing.Tuple[int, ...])  # noqa: UP006
    return graph


# ---- nodes made by hand


def test_a_node_made_by_hand() -> None:
    def describe(package: Any) -> Any:
        graph = package.Graph()
        x = graph.placeholder("x")
        node = package.Node(graph, "foo", "call_method", "foo", (x,), {"a": x}, int)
        node.args = (x, 1)
        return node.name, node.op, str(node.args), str(node.kwargs), node.type, str(x.users), len(graph.nodes)

    same(describe)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_target_of_the_wrong_kind(package: Any) -> None:
    graph = package.Graph()
    with pytest.raises(ValueError, match=r"foo'? has type str but a Callable is expected"):
        package.Node(graph=graph, name="foo", op="call_function", target="foo", args=(), kwargs={})
    with pytest.raises(ValueError, match="but a str is expected"):
        graph.call_method(torch.relu)
    with pytest.raises(AssertionError, match="is not in _legal_ops"):
        package.Node(graph, "foo", "call", "foo", (), {})
    with pytest.raises(AssertionError, match="args must be a tuple, got <class 'list'>"):
        graph.create_node("call_function", torch.relu, [1])
    with pytest.raises(AssertionError, match="kwargs must be a dict, got <class 'list'>"):
        graph.create_node("call_function", torch.relu, (), [1])
    assert len(graph.nodes) == 0


# ---- warnings


@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.parametrize(("path", "is_there"), [("weight", True), ("bias", True), ("nope", False), ("a.b", False)])
@pytest.mark.filterwarnings("ignore:Failed to fetch module")
def test_get_attr_of_nothing_warns(package: Any, path: str, is_there: bool) -> None:
    graph = package.Graph(owning_module=torch.nn.Linear(2, 2))
    if is_there:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            graph.get_attr(path)
    else:
        with pytest.warns(UserWarning, match="Attempted to insert a get_attr Node with no underlying reference"):
            graph.get_attr(path)
    assert len(graph.nodes) == 1


@pytest.mark.parametrize("package", PACKAGES)
def test_erasing_twice_warns(package: Any) -> None:
    graph = package.Graph()
    node = graph.call_method("f")
    graph.erase_node(node)
    with pytest.warns(UserWarning, match="on an already erased node"):
        graph.erase_node(node)
    assert len(graph.nodes) == 0


# ---- methods of nodes


def test_renaming_by_candidate() -> None:
    def describe(package: Any) -> Any:
        relu = list(a_graph(package).nodes)[1]
        names = []
        for candidate in ("relu", "x", "foo bar", "y"):
            relu._rename(candidate)
            names.append(relu.name)
        return names

    assert same(describe) == ["relu", "x_1", "foo_bar", "y"]


def test_format_node() -> None:
    def describe(package: Any) -> Any:
        plain = [node.format_node() for node in a_graph(package).nodes]
        names, returned = ["first"], [""]
        graph = a_graph(package)
        next(iter(graph.nodes)).type = None
        lines = [node.format_node(names, returned) for node in graph.nodes]
        return plain, lines, names, returned

    same(describe)


def test_updating_everything() -> None:
    def describe(package: Any) -> Any:
        x, relu, _ = a_graph(package).nodes
        relu._update_args_kwargs((x, x), {"k": x})
        return str(relu.args), str(relu.kwargs), list(map(str, x.users)), relu._pretty_print_target(relu.target)

    same(describe)


def test_taking_a_node_out_of_the_order() -> None:
    def describe(package: Any) -> Any:
        graph = a_graph(package)
        relu = list(graph.nodes)[1]
        relu._remove_from_list()
        return [node.name for node in graph.nodes], str(relu.args)

    same(describe)


def test_random_calls_may_count_as_pure() -> None:
    graph = graphwright.Graph()
    drawn = graph.call_function(torch.rand, (3,))
    assert drawn.is_impure()
    assert not drawn.is_impure(impure_random=False)
    assert not drawn.is_impure(False)


@pytest.mark.parametrize("package", PACKAGES)
def test_functions_declared_to_have_effects(package: Any) -> None:
    def note(x: Any) -> Any:
        return x

    declared = sub(package, "node")._side_effectful_functions
    assert package.has_side_effect(note) is note
    try:
        graph = package.Graph()
        x = graph.placeholder("x")
        graph.call_function(note, (x,))
        graph.output(x)
        assert note in declared
        assert not graph.eliminate_dead_code()
        assert len(graph.nodes) == 3
    finally:
        declared.discard(note)


# ---- names behind the surface


def test_text_of_targets_types_and_arguments() -> None:
    def describe(package: Any) -> Any:
        node = sub(package, "node")
        x = package.Graph().placeholder("x")
        targets = (torch.relu, operator.add, len, torch.ops.aten.add.Tensor, torch.Tensor.add, getattr)
        types = (int, torch.Tensor, ..., None, typing.List[int], "Later", torch.nn.ReLU, describe)  # noqa: UP006
        arguments = ([1, x], (x,), {"a": x}, "s", slice(1, x), None, [])
        return (
            [node._get_qualified_name(target) for target in targets],
            [node._type_repr(kind) for kind in types],
            [node._format_arg(arg) for arg in arguments],
            node._format_arg(list(range(9)), max_list_len=3),
            node.base_types,
        )

    same(describe)


def test_names_of_values() -> None:
    def describe(package: Any) -> Any:
        graph = a_graph(package)
        namespace = graph._graph_namespace
        return (
            [namespace.create_name(name, None) for name in ("relu", "a b")],
            [graph._target_to_str(target) for target in (torch.relu, operator.add, "fooBar", "__add__")],
            [sub(package, "graph")._snake_case(name) for name in ("FooBar", "fooBar2", "HTTPServer", "a_b")],
        )

    same(describe)


# ---- immutable containers


@pytest.mark.parametrize("package", PACKAGES)
def test_containers_refuse_changes(package: Any) -> None:
    node = package.Graph().call_method("f", ([1, 2], {"a": 1}))
    with pytest.raises(TypeError, match=r"does not support mutation[\s\S]*new_args"):
        node.args[0].append(3)
    with pytest.raises(TypeError, match="'immutable_dict' object does not support mutation"):
        node.args[1]["b"] = 2


def test_pytree_looks_into_the_containers() -> None:
    def describe(package: Any) -> Any:
        containers = sub(package, "immutable_collections")
        value = containers.immutable_list([1, containers.immutable_dict(a=2, b=[3])])
        leaves, spec = pytree.tree_flatten(value)
        again = pytree.tree_unflatten(leaves, spec)
        paths = [str(path) for path, _ in pytree.tree_flatten_with_path(value)[0]]
        return leaves, paths, again, type(again).__name__, type(again[1]).__name__

    same(describe)


# ---- hooks


def test_edits_are_told_to_hooks() -> None:
    def describe(package: Any) -> Any:
        told: list[Any] = []
        gm = package.symbolic_trace(lambda x: torch.relu(torch.neg(x)))
        x, neg, relu, _output = gm.graph.nodes
        gm._register_create_node_hook(lambda node: told.append(("create", node.name)))
        gm._register_erase_node_hook(lambda node: told.append(("erase", node.name)))
        gm._register_replace_node_hook(lambda old, new, user: told.append(("replace", old.name, new, user.name)))
        with gm.graph.inserting_after(relu):
            gm.graph.call_function(torch.abs, (relu,))
        relu.replace_input_with(neg, x)
        neg.replace_all_uses_with(x)
        relu.name = "activation"
        gm.graph.erase_node(neg)
        return told

    assert len(same(describe)) == 5


# ---- what is refused


def test_questions_that_are_refused() -> None:
    def describe(package: Any) -> Any:
        graph = package.Graph()
        x = graph.placeholder("x")
        told = []
        for ask in (graph.output_node, lambda: graph.find_nodes(op="call_function")):
            with pytest.raises(AssertionError) as caught:
                ask()
            told.append(str(caught.value).partition(":")[0])
        add = graph.call_function(torch.Tensor.__add__, (x, 1))
        output = graph.output(x)
        found = [graph.find_nodes(op=op) for op in ("placeholder", "call_method", "output", "bogus")]
        return told, str(found), graph.output_node() is output, add.name

    told = same(describe)[0]
    assert told == ["Expected output node, got op=placeholder", "target must not be None for call_function op"]


@pytest.mark.parametrize("path", ["sub", "nope", "weight", "sub.weight", "a.b", "plain"])
def test_calling_a_module_that_is_not_there(path: str) -> None:
    def describe(package: Any) -> Any:
        owner = torch.nn.Linear(2, 2)
        owner.sub, owner.plain = torch.nn.Linear(2, 2), torch.ones(1)
        graph = package.Graph(owning_module=owner)
        try:
            return str(graph.call_module(path)), len(graph.nodes)
        except AttributeError as error:
            return str(error).partition("\n")[0], len(graph.nodes)

    same(describe)


@pytest.mark.parametrize("path", ["plain", "sub", "sub.bias", "sub.nope", "training", "sub.weight.data"])
def test_reading_what_is_not_registered_warns(path: str) -> None:
    def describe(package: Any) -> Any:
        owner = torch.nn.Linear(2, 2)
        owner.sub, owner.plain = torch.nn.Linear(2, 2), torch.ones(1)
        graph = package.Graph(owning_module=owner)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            graph.get_attr(path)
        return [str(warning.message).partition(" reference")[0] for warning in caught]

    same(describe)
