"""The arguments of nodes: containers that nobody can change behind the graph's back, rebuilt where they must be."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
import torch.fx

import graphwright
from graphwright import Graph, map_arg
from graphwright.errors import GraphError
from graphwright.ir import immutable_dict, immutable_list, map_aggregate, nodes_in


class Point(NamedTuple):
    x: Any
    y: Any


class Three(tuple):
    """A tuple of another kind, made from one iterable."""

    __slots__ = ()


MUTATIONS: list[Callable[[Any], Any]] = [
    lambda c: c.append(1),
    lambda c: c.extend([1]),
    lambda c: c.insert(0, 1),
    lambda c: c.pop(),
    lambda c: c.remove(1),
    lambda c: c.clear(),
    lambda c: c.sort(),
    lambda c: c.reverse(),
    lambda c: c.__setitem__(0, 1),
    lambda c: c.__delitem__(0),
    lambda c: c.__iadd__([1]),
    lambda c: c.__imul__(2),
]
DICT_MUTATIONS: list[Callable[[Any], Any]] = [
    lambda c: c.__setitem__("a", 1),
    lambda c: c.__delitem__("a"),
    lambda c: c.__ior__({"b": 1}),
    lambda c: c.clear(),
    lambda c: c.pop("a"),
    lambda c: c.popitem(),
    lambda c: c.setdefault("b", 1),
    lambda c: c.update(b=1),
]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=range(len(MUTATIONS)))
def test_a_list_in_arguments_cannot_be_changed(mutation: Callable[[Any], Any]) -> None:
    items = immutable_list([1, 2])
    with pytest.raises(TypeError, match=r"^'immutable_list' object does not support mutation: the arguments"):
        mutation(items)
    assert items == [1, 2]


@pytest.mark.parametrize("mutation", DICT_MUTATIONS, ids=range(len(DICT_MUTATIONS)))
def test_a_dict_in_arguments_cannot_be_changed(mutation: Callable[[Any], Any]) -> None:
    items = immutable_dict(a=1)
    with pytest.raises(TypeError, match=r"^'immutable_dict' object does not support mutation: the arguments"):
        mutation(items)
    assert items == {"a": 1}


def test_nothing_that_lists_and_dicts_can_do_was_forgotten() -> None:
    for plain, immutable in ((list, immutable_list), (dict, immutable_dict)):
        changing = {
            name
            for name in dir(plain)
            if name in {"append", "clear", "extend", "insert", "pop", "popitem", "remove", "reverse", "setdefault"}
            or name in {"sort", "update", "__delitem__", "__iadd__", "__imul__", "__ior__", "__setitem__"}
        }
        assert all(getattr(immutable, name) is not getattr(plain, name) for name in changing)


@pytest.mark.parametrize("value", [immutable_list([1, [2]]), immutable_dict({"a": [1]})], ids=repr)
def test_immutable_containers_copy_and_pickle_as_themselves(value: Any) -> None:
    for twin in (copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
        assert type(twin) is type(value)
        assert twin == value


def test_immutable_containers_hash_by_content() -> None:
    assert hash(immutable_list([1, 2])) == hash(immutable_list([1, 2]))
    assert hash(immutable_dict(a=1, b=2)) == hash(immutable_dict(b=2, a=1))


def test_a_node_keeps_containers_of_its_own() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    items, options = [x, [1]], {"k": [x]}
    node = graph.call_method("f", (items, options), {"o": options})
    items.append(3)
    options["k"].append(4)
    assert node.args == ([x, [1]], {"k": [x]})
    assert node.kwargs == {"o": {"k": [x]}}
    assert {type(node.args[0]), type(node.args[0][1]), type(node.args[1]["k"])} == {immutable_list}
    assert {type(node.args[1]), type(node.kwargs), type(node.kwargs["o"])} == {immutable_dict}


@pytest.mark.parametrize("package", [graphwright, torch.fx], ids=lambda package: package.__name__)
def test_named_tuples_and_slices_hold_nodes(package: Any) -> None:
    graph = package.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    node = graph.call_method("f", (Point(x, [y]), slice(x, None, y)))
    assert node.all_input_nodes == [x, y]
    point, part = node.args
    assert type(point) is Point
    assert (point.x, point.y, part.start, part.step) == (x, [y], x, y)
    x.replace_all_uses_with(y)
    assert (node.args[0], node.args[1]) == (Point(y, [y]), slice(y, None, y))
    assert type(node.args[0]) is Point
    assert not x.users


def test_other_kinds_of_tuple_keep_their_class() -> None:
    graph = Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    size, three = torch.Size([2, 3]), Three((x, 1, [x]))
    node = graph.call_method("f", (size, three))
    assert node.args[0] is size
    assert type(node.args[1]) is Three
    x.replace_all_uses_with(y)
    assert (type(node.args[0]), type(node.args[1]), node.args[1]) == (torch.Size, Three, Three((y, 1, [y])))


def test_an_argument_of_any_other_class_is_kept_as_it_is() -> None:
    graph = Graph()
    values = (torch.float32, torch.device("cpu"), {1, 2}, range(3), object(), torch.nn.ReLU, 3 + 2j, b"x")
    node = graph.call_method("f", values, {"o": values[4]})
    assert all(kept is given for kept, given in zip(node.args, values, strict=True))
    assert node.kwargs["o"] is values[4]


def test_map_arg_changes_nodes_and_map_aggregate_every_leaf() -> None:
    graph = Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    value = (x, [1, {"a": y}], slice(x, 2, None), Point("p", x))
    assert map_arg(value, lambda node: node.name) == ("x", [1, {"a": "y"}], slice("x", 2, None), Point("p", "x"))
    assert map_aggregate(value, str) == ("x", ["1", {"a": "y"}], slice("x", "2", "None"), Point("p", "x"))
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(2), torch.ones(1)])  # its __new__ looks at the tensors
    assert tuple(map_aggregate(packed, type))[:2] == (torch.Tensor, torch.Tensor)
    assert type(map_aggregate([1], str)) is immutable_list
    assert type(map_aggregate({}, str)) is immutable_dict
    with pytest.raises(AssertionError, match=r"^map_arg.a, fn.: fn must be a callable$"):
        map_arg(value, 3)  # type: ignore[arg-type]


def test_nodes_in_keeps_the_order_and_repeats() -> None:
    graph = Graph()
    x, y, z = (graph.placeholder(name) for name in "xyz")
    assert list(nodes_in((x, [y, (x, {"k": slice(z, y, x)})], Point(z, 1), "x"))) == [x, y, x, z, y, x, z]
    assert list(nodes_in(x)) == [x]


def test_deeply_nested_arguments_are_walked_without_recursion() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    value: Any = x
    for _ in range(200):
        value = [value]
    assert list(nodes_in(value)) == [x]
    assert graph.call_method("f", (value,)).all_input_nodes == [x]


def test_a_list_of_nodes_of_another_graph_is_refused_even_when_immutable() -> None:
    other = Graph()
    stranger = other.call_method("f", ([other.placeholder("p")],))
    graph = Graph()
    mine = graph.call_method("g", (graph.placeholder("x"),))
    with pytest.raises(GraphError, match=r"^Argument 'p' of Node 'g' does not belong to this Graph"):
        mine.args = stranger.args
    assert not any(user is mine for node in other.nodes for user in node.users)
