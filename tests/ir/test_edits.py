"""Edits of a graph: what they do, one by one, and that random ones keep every invariant."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.fx
from hypothesis import given
from tests.random_edits import apply, apply_all, edits, facts, new_graph

import graphwright
from graphwright import Graph, Node
from graphwright.errors import GraphError
from graphwright.ir import EMPTY_KWARGS, NodeSource, NodeSourceAction, Origin, nodes_in

PACKAGES = [pytest.param(graphwright, id="graphwright"), pytest.param(torch.fx, id="torch.fx")]


def names(nodes: Any) -> list[str]:
    return [node.name for node in nodes]


# ---- properties


@given(edits)
def test_random_edits_do_what_torch_fx_does(edits: list[Any]) -> None:
    ours, theirs = apply_all(graphwright, edits), apply_all(torch.fx, edits)
    assert facts(ours) == facts(theirs)
    assert str(ours) == str(theirs)


@given(edits)
def test_random_edits_keep_the_invariants(edits: list[Any]) -> None:
    graph = new_graph(graphwright)
    for edit in edits:
        version = graph.version
        before = str(graph)
        apply(graph, edit)
        graph.lint()
        assert graph.version > version or str(graph) == before
    assert_use_lists_are_right(graph)
    nodes = list(graph.nodes)
    assert len(graph.nodes) == len(nodes)
    assert list(reversed(graph.nodes)) == nodes[::-1]
    for before_node, after_node in itertools.pairwise(nodes):
        assert before_node < after_node
        assert after_node > before_node
        assert before_node.next is after_node
        assert after_node.prev is before_node


def assert_use_lists_are_right(graph: Graph) -> None:
    """Recompute who reads what from the arguments alone."""
    readers: dict[Node, set[Node]] = {node: set() for node in graph.nodes}
    for node in graph.nodes:
        for used in (*nodes_in(node.args), *nodes_in(node.kwargs)):
            readers[used].add(node)
    assert {node: set(node.users) for node in graph.nodes} == readers


# ---- insert points


@pytest.mark.parametrize(
    ("how", "where", "order"),
    [
        ("inserting_before", "x", "p q r x y neg"),
        ("inserting_before", "neg", "x y p q r neg"),
        ("inserting_before", None, "r q p x y neg"),  # each at the beginning, as in torch.fx
        ("inserting_after", "x", "x r q p y neg"),
        ("inserting_after", "neg", "x y neg r q p"),
        ("inserting_after", None, "x y neg p q r"),
    ],
)
@pytest.mark.parametrize("package", PACKAGES)
def test_new_nodes_go_to_the_insert_point(package: Any, how: str, where: str | None, order: str) -> None:
    graph = package.Graph()
    x = graph.placeholder("x")
    graph.placeholder("y")
    graph.call_method("neg", (x,))
    at = next((node for node in graph.nodes if node.name == where), None)
    with getattr(graph, how)(at):
        for name in "pqr":
            graph.call_method(name)
    graph.call_method("end")
    assert names(graph.nodes) == [*order.split(), "end"]


@pytest.mark.parametrize("package", PACKAGES)
def test_insert_points_nest_and_come_back(package: Any) -> None:
    graph = package.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    with graph.inserting_before(y):
        graph.call_method("a")
        with graph.inserting_before(x):
            graph.call_method("b")
        graph.call_method("c")
        with pytest.raises(ZeroDivisionError), graph.inserting_before(x):
            raise ZeroDivisionError
        graph.call_method("d")
    graph.call_method("e")
    graph.inserting_before(x)  # without `with`: for good
    graph.call_method("f")
    assert names(graph.nodes) == ["b", "f", "x", "a", "c", "d", "y", "e"]


def test_an_insert_point_moves_along_with_its_node() -> None:
    graph = Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    with graph.inserting_after(x):
        y.append(x)
        graph.call_method("a")
    assert names(graph.nodes) == ["y", "x", "a"]


@pytest.mark.parametrize("how", ["inserting_before", "inserting_after"])
def test_an_insert_point_outlives_its_node(how: str) -> None:
    graph = Graph()
    x, y, z = (graph.placeholder(name) for name in "xyz")
    with getattr(graph, how)(y):
        graph.erase_node(y)
        graph.call_method("a")
        graph.call_method("b")
    assert names(graph.nodes) == ["x", "a", "b", "z"]
    with getattr(graph, how)(x):
        with graph.inserting_after(z):
            graph.erase_node(x)
        graph.call_method("c")
    assert names(graph.nodes) == ["c", "a", "b", "z"]


# ---- erasing


def test_erasing_frees_what_the_node_read() -> None:
    graph = new_graph(graphwright)
    x, y, mul = graph.nodes
    graph.erase_node(mul)
    assert not x.users
    assert not y.users
    assert names(graph.nodes) == ["x", "y"]
    graph.lint()


def test_nodes_are_reused_after_nothing_reads_them() -> None:
    graph = new_graph(graphwright)
    x, _y, mul = graph.nodes
    output = graph.output(mul)
    output.args = (x,)
    graph.erase_node(mul)
    assert (names(graph.nodes), list(x.users)) == (["x", "y", "output"], [output])


# ---- moving


@pytest.mark.parametrize("package", PACKAGES)
def test_moving(package: Any) -> None:
    graph = package.Graph()
    a, b, c, d = (graph.placeholder(name) for name in "abcd")
    a.append(d)
    assert names(graph.nodes) == ["a", "d", "b", "c"]
    a.prepend(c)
    assert names(graph.nodes) == ["c", "a", "d", "b"]
    b.append(c)
    assert names(graph.nodes) == ["a", "d", "b", "c"]
    d.append(b)  # where it is already
    b.prepend(d)
    assert names(graph.nodes) == ["a", "d", "b", "c"]


def test_moving_a_node_next_to_itself_changes_nothing() -> None:
    graph = Graph()
    a, b = graph.placeholder("a"), graph.placeholder("b")
    a.append(a)
    b.append(b)
    a.prepend(a)
    b.prepend(b)
    assert names(graph.nodes) == ["a", "b"]
    graph.lint()


# ---- changing what is read


def test_all_input_nodes_are_in_the_order_of_the_arguments() -> None:
    graph = Graph()
    a, b, c, d = (graph.placeholder(name) for name in "abcd")
    node = graph.call_method("f", (b, [a, {"k": (b, slice(c, None, a))}], 3), {"z": d, "y": (c,)})
    assert node.all_input_nodes == [b, a, c, d]
    node.insert_arg(0, d)
    assert node.all_input_nodes == [d, b, a, c]
    assert node.args[0] is d


def test_users_are_in_the_order_in_which_they_came() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    a, b, c = (graph.call_method(name, (x,)) for name in "abc")
    assert list(x.users) == [a, b, c]
    a.args = (x, x)  # an assignment leaves and comes back
    assert list(x.users) == [b, c, a]
    b.insert_arg(1, x)  # an insertion stays
    assert list(x.users) == [b, c, a]


@pytest.mark.parametrize(
    ("edit", "args", "kwargs", "users"),
    [
        pytest.param(lambda f, x, y: f.update_arg(1, y), "(x, y, [x])", "{'k': x}", "x y", id="update_arg"),
        pytest.param(lambda f, x, y: f.update_arg(2, None), "(x, 1, None)", "{'k': x}", "x", id="update_arg drops"),
        pytest.param(lambda f, x, y: f.insert_arg(0, [y]), "([y], x, 1, [x])", "{'k': x}", "x y", id="insert_arg"),
        pytest.param(lambda f, x, y: f.insert_arg(3, y), "(x, 1, [x], y)", "{'k': x}", "x y", id="insert_arg at end"),
        pytest.param(lambda f, x, y: f.update_kwarg("k", y), "(x, 1, [x])", "{'k': y}", "x y", id="update_kwarg"),
        pytest.param(lambda f, x, y: f.update_kwarg("l", 2), "(x, 1, [x])", "{'k': x, 'l': 2}", "x", id="new kwarg"),
        pytest.param(lambda f, x, y: setattr(f, "args", ()), "()", "{'k': x}", "x", id="args"),
        pytest.param(lambda f, x, y: setattr(f, "kwargs", {"j": y}), "(x, 1, [x])", "{'j': y}", "x y", id="kwargs"),
        pytest.param(lambda f, x, y: f.replace_input_with(x, y), "(y, 1, [y])", "{'k': y}", "y", id="replace_input"),
        pytest.param(lambda f, x, y: f.replace_input_with(y, x), "(x, 1, [x])", "{'k': x}", "x", id="not an input"),
    ],
)
@pytest.mark.parametrize("package", PACKAGES)
def test_changing_arguments(package: Any, edit: Callable[..., None], args: str, kwargs: str, users: str) -> None:
    graph = package.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    f = graph.call_method("f", (x, 1, [x]), {"k": x})
    edit(f, x, y)
    assert (str(f.args), str(f.kwargs)) == (args, kwargs)
    assert [node.name for node in (x, y) if f in node.users] == users.split()


def test_arguments_given_as_a_list_become_a_tuple() -> None:
    graph = new_graph(graphwright)
    x, _, mul = graph.nodes
    mul.args = [x, 3]
    assert mul.args == (x, 3)
    mul.kwargs = {}
    assert mul.kwargs is EMPTY_KWARGS


def test_what_is_no_node_replaces_none() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    graph.output(x)
    with pytest.raises(GraphError, match="the uses of 'x' are to be of a node, not of a NoneType"):
        x.replace_all_uses_with(None)  # type: ignore[arg-type]
    assert len(x.users) == 1


@pytest.mark.parametrize("package", PACKAGES)
def test_replace_all_uses_with(package: Any) -> None:
    graph = package.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    first = graph.call_method("first", (x, [x, {"k": x}]), {"m": slice(x, None, None)})
    second = graph.call_method("second", (x,))
    output = graph.output((x, first))
    assert x.replace_all_uses_with(y, lambda user: user is not second) == [first, output]
    assert str(first.args) == "(y, [y, {'k': y}])"
    assert str(first.kwargs) == "{'m': slice(y, None, None)}"
    assert (list(x.users), list(y.users)) == ([second], [first, output])
    assert str(output.args) == "((y, first),)"
    assert y.replace_all_uses_with(x) == [first, output]
    assert list(x.users) == [second, first, output]
    assert x.replace_all_uses_with(x) == [second, first, output]
    assert not y.users


@pytest.mark.parametrize("package", PACKAGES)
def test_meta_goes_to_the_replacement_when_asked(package: Any) -> None:
    graph = package.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    x.meta["shape"] = (2, 3)
    x.replace_all_uses_with(y)
    assert y.meta == {}
    x.replace_all_uses_with(y, propagate_meta=True)
    assert y.meta == {"shape": (2, 3)}
    with pytest.raises(AssertionError):
        x.replace_all_uses_with(y, propagate_meta=True)


def test_a_wrapped_node_may_take_over_the_uses_of_what_it_wraps() -> None:
    # The way passes insert after a value: make, replace all uses, then read the value again.
    graph = Graph()
    x = graph.placeholder("x")
    neg = graph.call_method("neg", (x,))
    output = graph.output(neg)
    with graph.inserting_after(neg):
        relu = graph.call_function(torch.relu, (neg,))
    neg.replace_all_uses_with(relu)
    relu.args = (neg,)
    graph.lint()
    assert (list(neg.users), list(relu.users)) == ([relu], [output])


# ---- refused edits leave everything as it was

REFUSED = {
    "foreign node": lambda g, n: g.call_method("f", (Graph().placeholder("p"),)),
    "foreign node after others": lambda g, n: g.call_method(
        "f", (n["x"], n["y"], Graph().placeholder("p")), {"k": n["add"]}
    ),
    "a wish that is no name": lambda g, n: g.create_node("call_method", "f", (n["x"],), {}, 3),  # type: ignore[arg-type]
    "foreign node in a list": lambda g, n: g.call_method("f", (n["x"], [1, Graph().placeholder("p")])),
    "foreign node in an immutable list": lambda g, n: setattr(
        n["add"], "args", Graph().call_method("f", ([Graph().placeholder("p")],)).args
    ),
    "foreign node in kwargs": lambda g, n: g.call_method("f", (n["x"],), {"k": {"l": Graph().placeholder("p")}}, None),
    "foreign node in args": lambda g, n: setattr(n["add"], "args", (n["x"], Graph().placeholder("p"))),
    "foreign node in a slice": lambda g, n: setattr(n["add"], "kwargs", {"k": slice(Graph().placeholder("p"))}),
    "foreign node by update": lambda g, n: n["add"].update_arg(0, Graph().placeholder("p")),
    "foreign node by insert": lambda g, n: n["add"].insert_arg(0, (Graph().placeholder("p"),)),
    "foreign replacement": lambda g, n: n["x"].replace_all_uses_with(Graph().placeholder("p"), propagate_meta=True),
    "foreign input": lambda g, n: n["add"].replace_input_with(n["x"], Graph().placeholder("p")),
    "erased node": lambda g, n: g.call_method("f", (erased(g),)),
    "erased node in args": lambda g, n: setattr(n["add"], "args", ((erased(g),),)),
    "arguments of an erased node": lambda g, n: setattr(erased(g), "args", (n["x"],)),
    "argument into an erased node": lambda g, n: erased(g).insert_arg(0, n["x"]),
    "erased replacement": lambda g, n: n["x"].replace_all_uses_with(erased(g)),
    "unknown opcode": lambda g, n: g.create_node("call", torch.relu, (n["x"],), {}, "wish"),
    "unknown opcode later": lambda g, n: setattr(n["add"], "op", "call"),
    "name as function": lambda g, n: g.call_function("relu", (n["x"],)),
    "function as method": lambda g, n: g.call_method(torch.relu, (n["x"],)),
    "module as path": lambda g, n: g.call_module(torch.nn.ReLU(), (n["x"],)),
    "number as target": lambda g, n: setattr(n["add"], "target", 3),
    "erase with users": lambda g, n: g.erase_node(n["x"]),
    "erase from another graph": lambda g, n: g.erase_node(Graph().placeholder("p")),
    "taken name": lambda g, n: setattr(n["add"], "name", "x"),
    "illegal name": lambda g, n: setattr(n["add"], "name", "class"),
    "move a foreign node": lambda g, n: n["add"].append(Graph().placeholder("p")),
    "move to an erased node": lambda g, n: erased(g).prepend(n["add"]),
    "insert at a foreign node": lambda g, n: g.inserting_after(Graph().placeholder("p")),
    "insert at an erased node": lambda g, n: g.inserting_before(erased(g)),
    "insert an argument too far": lambda g, n: n["add"].insert_arg(5, n["x"]),
    "update an argument too far": lambda g, n: n["add"].update_arg(5, n["x"]),
    "an item of a list": lambda g, n: n["output"].args[0].append(n["x"]),
    "an item of a dict": lambda g, n: n["output"].args[0][1].update(k=n["x"]),
    "a keyword": lambda g, n: n["add"].kwargs.__setitem__("k", n["x"]),
}


def erased(graph: Graph) -> Node:
    return graph.gone  # type: ignore[attr-defined,no-any-return]


@pytest.mark.parametrize("edit", REFUSED.values(), ids=REFUSED)
def test_a_refused_edit_leaves_the_graph_as_it_was(edit: Callable[[Graph, dict[str, Node]], None]) -> None:
    graph = Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    graph.gone = graph.call_method("neg", (x,))  # type: ignore[attr-defined]
    graph.erase_node(erased(graph))
    add = graph.call_function(operator.add, (x, [y, x]), {"alpha": 1})
    graph.output([add, {"y": y}])
    x.meta["shape"] = (2,)
    nodes = {node.name: node for node in graph.nodes}
    graph.find_nodes(op="call_function", target=operator.add)
    told: list[str] = []
    graph._watch(lambda: told.append("edited"))
    before = facts(graph), str(graph), graph.version, [dict(node.meta) for node in graph.nodes]
    with pytest.raises((GraphError, AssertionError, IndexError, TypeError)):
        edit(graph, nodes)
    assert (facts(graph), str(graph), graph.version, [dict(node.meta) for node in graph.nodes]) == before
    assert not told
    assert graph.find_nodes(op="call_function", target=operator.add) == [add]
    graph.lint()
    following = graph.call_method("neg")
    assert (following.name, following.prev.name) == ("neg_1", "output")


MESSAGES = [
    (
        lambda g, x: g.erase_node(x),
        "Tried to erase Node x but it still had 1 users in the graph: neg\n"
        "  fix: replace_all_uses_with(another value) first",
    ),
    (
        lambda g, x: g.call_method("f", (Graph().placeholder("p"),)),
        "Argument 'p' of Node 'f' does not belong to this Graph, but was used as an argument\n"
        "  fix: when copying between graphs, map values with node_copy(node, arg_transform)",
    ),
    (
        lambda g, x: g.call_method("f", (erase_a_new_node(g),)),
        "Argument 'gone' of Node 'f' was erased from this Graph, but was used as an argument\n"
        "  fix: read another value, or erase the node only once nothing needs it",
    ),
    (
        lambda g, x: g.call_function("relu", (x,)),
        "Node target 'relu' has type str but a Callable is expected\n"
        "  fix: call_function takes the function itself; for a method use call_method, for a submodule call_module",
    ),
    (
        lambda g, x: setattr(erase_a_new_node(g), "args", (x,)),
        "gone was erased: its arguments cannot be changed",
    ),
]


def erase_a_new_node(graph: Graph) -> Node:
    node = graph.call_method("gone")
    graph.erase_node(node)
    return node


@pytest.mark.parametrize(("edit", "message"), MESSAGES, ids=range(len(MESSAGES)))
def test_messages_of_refused_edits(edit: Callable[[Graph, Node], None], message: str) -> None:
    graph = Graph()
    x = graph.placeholder("x")
    graph.call_method("neg", (x,))
    with pytest.raises(GraphError) as caught:
        edit(graph, x)
    assert str(caught.value) == message


# ---- opcode and target in either order


def test_passes_may_change_opcode_and_target_in_either_order() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    first, second = graph.call_module("act", (x,)), graph.call_module("act", (x,))
    first.op = "call_function"
    first.target = torch.relu
    second.target = torch.relu
    with pytest.raises(GraphError, match=r"^\[GW2\] Node act_1 target .* has type builtin.* but a str is expected$"):
        graph.lint()
    second.op = "call_function"
    graph.lint()
    assert (first.name, second.name) == ("act", "act_1")


def test_a_node_in_the_place_of_another() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    first, second = graph.call_method("relu", (x,)), graph.call_method("relu", (x,))
    output = graph.output([first, {"second": second, "again": first}])
    origin = Origin("model.py", 3, "forward", "return relu(x)")
    first.origin, first.type = origin, int
    first.meta.update(tag=1, tensor_meta="of the old value")
    new = first.replace_with("call_function", abs, (x,), by="use_abs")
    assert (new.name, new.origin, new.type) == ("relu", origin, int)
    assert new.meta == {"tag": 1, "from_node": [NodeSource(first, "use_abs", NodeSourceAction.REPLACE)]}
    assert first._erased and [node.name for node in graph.nodes] == ["x", "relu", "relu_1", "output"]
    assert output.args[0] == [new, {"second": second, "again": new}]
    graph.lint()
    newer = new.replace_with("call_method", "neg", (x,))
    (source,) = newer.meta["from_node"]
    assert [source.name, source.target, [each.target for each in source.from_node]] == ["relu", str(abs), ["relu"]]
    assert graph.call_method("relu", (x,)).name == "relu_2", "no name is lost on the way"
    graph.erase_node(graph._root.prev)


@pytest.mark.parametrize("what", ["itself", "later", "foreign", "target"])
def test_a_replacement_that_cannot_be_leaves_the_graph_alone(what: str) -> None:
    graph, other = Graph(), Graph()
    x = graph.placeholder("x")
    relu = graph.call_method("relu", (x,))
    neg = graph.call_method("neg", (relu,))
    graph.output(neg)
    before = str(graph)
    reads = {"itself": relu, "later": neg, "foreign": other.placeholder("x"), "target": x}[what]
    with pytest.raises(GraphError, match=r"itself|comes later|does not belong|a Callable is expected"):
        relu.replace_with("call_function", "abs" if what == "target" else abs, (reads,))
    assert str(graph) == before
    graph.lint()
