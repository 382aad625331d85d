"""Each invariant of a graph is broken in turn, through private slots, and `lint` says which one."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable

import pytest
from torch import nn

from graphwright import Graph, GraphwrightError, Node
from graphwright.errors import GraphError
from graphwright.ir import CHECKS, EMPTY_KWARGS, Origin


def small_graph() -> tuple[Graph, dict[str, Node]]:
    """x, y -> add = x + y -> relu -> output."""
    graph = Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    add = graph.call_function(operator.add, (x, y))
    graph.output(graph.call_module("relu", (add,)))
    return graph, {node.name: node for node in graph.nodes}


def break_back_link(graph: Graph, nodes: dict[str, Node]) -> None:
    nodes["relu"]._prev = nodes["x"]


def break_order(graph: Graph, nodes: dict[str, Node]) -> None:
    nodes["relu"]._position = nodes["x"]._position


def break_length(graph: Graph, nodes: dict[str, Node]) -> None:
    graph._len = 4


def break_graph(graph: Graph, nodes: dict[str, Node]) -> None:
    nodes["add"].graph = Graph()


def break_opcode(graph: Graph, nodes: dict[str, Node]) -> None:
    nodes["add"]._op = "call_lambda"


def break_function_target(graph: Graph, nodes: dict[str, Node]) -> None:
    nodes["add"]._target = "add"


class Text(str):
    """Text of a kind of its own."""

    __slots__ = ()


def break_function_target_by_a_kind_of_text(graph: Graph, nodes: dict[str, Node]) -> None:
    nodes["add"]._target = Text("add")


def break_method_target(graph: Graph, nodes: dict[str, Node]) -> None:
    nodes["relu"]._target = nn.ReLU()


def break_order_of_uses(graph: Graph, nodes: dict[str, Node]) -> None:
    nodes["add"].args = (nodes["x"], nodes["relu"])
    nodes["relu"].args = (nodes["y"],)


def break_home_of_argument(graph: Graph, nodes: dict[str, Node]) -> None:
    stranger = Graph().placeholder("stranger")
    nodes["relu"]._args = (stranger,)


def break_life_of_argument(graph: Graph, nodes: dict[str, Node]) -> None:
    with graph.inserting_before(nodes["add"]):
        gone = graph.call_method("neg", (nodes["x"],))
    graph.erase_node(gone)
    nodes["relu"]._args = (gone,)


def break_missing_user(graph: Graph, nodes: dict[str, Node]) -> None:
    nodes["x"].users.clear()


def break_extra_user(graph: Graph, nodes: dict[str, Node]) -> None:
    nodes["y"].users[nodes["relu"]] = None


def break_extra_user_of_what_is_read_twice(graph: Graph, nodes: dict[str, Node]) -> None:
    x, y, add = nodes["x"], nodes["y"], nodes["add"]
    add._args = (x, y, x)
    y.users[nodes["relu"]] = None


def break_nested_argument(graph: Graph, nodes: dict[str, Node]) -> None:
    stranger = Graph().placeholder("stranger")
    stranger.users[nodes["output"]] = None
    nodes["output"]._args = ([nodes["relu"], stranger],)


def break_keyword_argument(graph: Graph, nodes: dict[str, Node]) -> None:
    nodes["relu"]._kwargs = {"other": nodes["y"]}


def break_silent_argument(graph: Graph, nodes: dict[str, Node]) -> None:
    nodes["add"]._args, nodes["add"]._kwargs = (), EMPTY_KWARGS


def break_uniqueness(graph: Graph, nodes: dict[str, Node]) -> None:
    nodes["relu"]._name = "add"


def break_legality(graph: Graph, nodes: dict[str, Node]) -> None:
    nodes["relu"]._name = "1relu"


def break_reservation(graph: Graph, nodes: dict[str, Node]) -> None:
    nodes["relu"]._name = "torch"


def break_inputs_first(graph: Graph, nodes: dict[str, Node]) -> None:
    with graph.inserting_after(nodes["add"]):
        graph.placeholder("late")


def break_parameter(graph: Graph, nodes: dict[str, Node]) -> None:
    nodes["y"].target = "not a name"


def break_parameter_of_python(graph: Graph, nodes: dict[str, Node]) -> None:
    nodes["y"].target = "class"


def break_parameter_read_otherwise(graph: Graph, nodes: dict[str, Node]) -> None:
    nodes["y"].target = "\uff4cen"  # which Python reads as `len`


def break_stars(graph: Graph, nodes: dict[str, Node]) -> None:
    nodes["y"].target = "***y"


def break_different_parameters(graph: Graph, nodes: dict[str, Node]) -> None:
    nodes["y"].target = "*x"


def break_output_last(graph: Graph, nodes: dict[str, Node]) -> None:
    graph.call_method("neg", (nodes["x"],))


def break_one_output(graph: Graph, nodes: dict[str, Node]) -> None:
    graph.output(nodes["x"])


def break_unread_output(graph: Graph, nodes: dict[str, Node]) -> None:
    nodes["output"].users[nodes["add"]] = None


def break_missing_module(graph: Graph, nodes: dict[str, Node]) -> None:
    graph.owning_module = nn.Sequential()


def break_missing_step(graph: Graph, nodes: dict[str, Node]) -> None:
    graph.owning_module = nn.Sequential()
    graph.owning_module.add_module("relu", nn.ReLU())
    nodes["relu"].target = "relu.0.weight"


def break_module(graph: Graph, nodes: dict[str, Node]) -> None:
    graph.owning_module = nn.Module()
    graph.owning_module.relu = 3


TOPOLOGICAL = ": the nodes are not in topological order"
BROKEN = [
    (break_back_link, "[GW1] 'relu' is not linked into this graph"),
    (break_order, "[GW1] 'relu' has a position that is not after that of 'add'"),
    (break_length, "[GW1] the graph says that it has 4 nodes, and 5 are linked"),
    (break_graph, "[GW1] 'add' is not linked into this graph"),
    (break_opcode, "[GW2] Node add had unknown opcode call_lambda"),
    (break_function_target, "[GW2] Node add target add has type str but a Callable is expected"),
    (break_function_target_by_a_kind_of_text, "[GW2] Node add target add has type Text but a Callable is expected"),
    (break_method_target, "[GW2] Node relu target ReLU() has type ReLU but a str is expected"),
    (
        break_order_of_uses,
        f"[GW3] Argument 'relu' of Node 'add' was used before it has been defined{TOPOLOGICAL}",
    ),
    (
        break_home_of_argument,
        "[GW3] Argument 'stranger' of Node 'relu' does not belong to this Graph, but was used as an argument",
    ),
    (break_life_of_argument, f"[GW3] Argument 'neg' of Node 'relu' was erased{TOPOLOGICAL}"),
    (break_missing_user, "[GW4] the users of 'x' are [], but [add] read it"),
    (break_extra_user, "[GW4] the users of 'y' are [add, relu], but [add] read it"),
    (break_extra_user_of_what_is_read_twice, "[GW4] the users of 'y' are [add, relu], but [add] read it"),
    (
        break_nested_argument,
        "[GW3] Argument 'stranger' of Node 'output' does not belong to this Graph, but was used as an argument",
    ),
    (break_keyword_argument, "[GW4] the users of 'y' are [add], but [add, relu] read it"),
    (break_silent_argument, "[GW4] the users of 'x' are [add], but [] read it"),
    (
        break_uniqueness,
        "[GW5] Node redefined name 'add', which %add : [num_users=1] = "
        "call_function[target=operator.add](args = (%x, %y), kwargs = {}) has",
    ),
    (break_legality, "[GW5] '1relu' is not a legal name for a value"),
    (break_reservation, "[GW5] 'torch' is not a legal name for a value"),
    (break_inputs_first, "[GW6] placeholder 'late' comes after a node that computes"),
    (break_parameter, "[GW6] the target of placeholder 'y', 'not a name', is not the name of a parameter"),
    (break_parameter_of_python, "[GW6] the target of placeholder 'y', 'class', is not the name of a parameter"),
    (break_parameter_read_otherwise, "[GW6] the target of placeholder 'y', '\uff4cen', is not the name of a parameter"),
    (break_stars, "[GW6] the target of placeholder 'y', '***y', is not the name of a parameter"),
    (break_different_parameters, "[GW6] placeholder 'y' is a second parameter called 'x'"),
    (break_output_last, "[GW7] 'neg' comes after the output"),
    (break_one_output, "[GW7] 'output_1' comes after the output"),
    (break_unread_output, "[GW7] add uses the output"),
    (break_missing_module, "[GW8] Node relu target relu references nonexistent attribute relu of Sequential"),
    (break_missing_step, "[GW8] Node relu target relu.0.weight references nonexistent attribute 0 of ReLU"),
    (break_module, "[GW8] Node relu target relu references int, which is not a module"),
]


@pytest.mark.parametrize(("damage", "message"), BROKEN, ids=lambda value: getattr(value, "__name__", ""))
def test_lint_names_the_broken_invariant(damage: Callable[[Graph, dict[str, Node]], None], message: str) -> None:
    graph, nodes = small_graph()
    graph.lint()
    damage(graph, nodes)
    with pytest.raises(GraphError, match=rf"^{re.escape(message)}(\n|$)") as raised:
        graph.lint()
    assert raised.value.message == message
    assert bool(raised.value.fix) is any(
        each in message for each in ("after the output", "nonexistent", "was used bef")
    )


def test_every_check_has_a_case() -> None:
    tried = {int(message[3]) for _, message in BROKEN}
    assert tried | {9} == CHECKS.keys() == set(range(1, 10))  # 9: tests/ops/test_regions.py


def test_lint_says_where_the_node_comes_from() -> None:
    graph, nodes = small_graph()
    nodes["relu"].origin = Origin("model.py", 14, "Gate.forward", "x = self.relu(x)")
    nodes["relu"]._name = "add"
    with pytest.raises(GraphwrightError, match=r"\n  at model\.py:14 in Gate\.forward: x = self\.relu\(x\)$"):
        graph.lint()


def test_lint_accepts_what_is_odd_but_right() -> None:
    graph = Graph(nn.Module())
    graph.lint()  # empty
    graph.placeholder("*args")
    graph.placeholder("**kwargs")
    graph.placeholder("self_", default_value=None)
    training = graph.create_node("get_attr", "training")
    graph.output({"flag": [training, training], "none": None})
    graph.lint()


def test_lint_ends_on_a_ring_without_an_end() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    relu = graph.call_function(operator.neg, (x,))
    relu._next = x
    with pytest.raises(GraphError, match=r"^\[GW1\]"):
        graph.lint()
