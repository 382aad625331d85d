"""Graphs made and edited by hand, as PyTorch's own tests of torch.fx expect them to behave."""

from __future__ import annotations

import copy
import math
import operator
import sys
from typing import Any

import pytest
import torch
from torch import nn


def module_of(fx: Any, graph: Any, root: Any = None) -> Any:
    graph.lint()
    return fx.GraphModule(nn.Module() if root is None else root, graph)


def test_a_graph_made_by_hand_runs(fx: Any) -> None:
    graph = fx.Graph()
    x = graph.create_node("placeholder", "x")
    y = graph.create_node("placeholder", "y")
    total = graph.create_node("call_function", operator.add, args=(x, y), name="total")
    doubled = graph.create_node("call_method", "mul", args=(total, 2))
    graph.output({"doubled": doubled, "both": (x, [total])})
    out = module_of(fx, graph)(torch.ones(2), torch.ones(2))
    assert out["doubled"].tolist() == [4, 4] and out["both"][1][0].tolist() == [2, 2]
    assert [node.name for node in graph.nodes] == ["x", "y", "total", "mul", "output"]


def test_graph_copy_appends_and_returns_the_output(fx: Any) -> None:
    graph = fx.Graph()
    graph.output((graph.call_function(torch.relu, (graph.placeholder("x"),)),))
    other, mapping = fx.Graph(), {}
    result = other.graph_copy(graph, mapping)
    assert isinstance(result, tuple) and result[0].name == "relu"
    assert [node.op for node in other.nodes] == ["placeholder", "call_function"]
    assert set(mapping) == set(list(graph.nodes)[:2])
    other.output(result[0])
    assert module_of(fx, other)(torch.tensor(-1.0)) == 0


def test_node_copy_can_transform_arguments(fx: Any) -> None:
    gm = fx.symbolic_trace(lambda x, y: torch.add(x, y) * 3)
    graph, env = fx.Graph(), {}
    for node in gm.graph.nodes:
        env[node] = graph.node_copy(node, lambda value: env[value])
    assert str(graph) == str(gm.graph)


@pytest.mark.parametrize("op", ["call_function", "call_method", "call_module"])
def test_targets_are_checked(fx: Any, op: str) -> None:
    graph = fx.Graph()
    with pytest.raises(ValueError):
        fx.Node(
            graph=graph, name="foo", op=op, target="foo" if op == "call_function" else torch.relu, args=(), kwargs={}
        )


def test_lint_finds_a_use_before_the_definition(fx: Any) -> None:
    gm = fx.symbolic_trace(lambda x: torch.neg(torch.relu(x)))
    relu, neg = list(gm.graph.nodes)[1:3]
    neg.append(relu)
    with pytest.raises(RuntimeError, match="was used before it has been defined"):
        gm.graph.lint()


def test_lint_looks_for_targets_in_the_owning_module(fx: Any) -> None:
    graph = fx.Graph()
    graph.output(graph.call_module("missing", (graph.placeholder("x"),)))
    graph.owning_module = nn.Module()
    with pytest.raises(RuntimeError, match="missing"):
        graph.lint()


def test_erasing_a_node_with_users_is_refused(fx: Any) -> None:
    graph = fx.symbolic_trace(lambda x: torch.relu(x) + 1).graph
    with pytest.raises(RuntimeError, match=r"but it still had .* users in the graph"):
        graph.erase_node(list(graph.nodes)[1])


def test_erasing_twice_warns_or_passes(fx: Any) -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    dead = graph.call_function(torch.relu, (x,))
    graph.output(x)
    graph.erase_node(dead)
    assert [node.name for node in graph.nodes] == ["x", "output"] and not x.users.get(dead, False)


def test_users_and_input_nodes(fx: Any) -> None:
    graph = fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    value = graph.call_function(torch.cat, ([x, y, x],), {"out": {"k": (y,)}})
    assert value.all_input_nodes == [x, y]
    assert list(x.users) == [value] and len(y.users) == 1
    value.args = ([y],)
    assert not x.users and value.all_input_nodes == [y]


def test_replacing_uses(fx: Any) -> None:
    gm = fx.symbolic_trace(lambda x: (torch.relu(x) + 1, torch.relu(x)))
    relu = list(gm.graph.nodes)[1]
    with gm.graph.inserting_after(relu):
        neg = gm.graph.call_function(torch.neg, (relu,))
    changed = relu.replace_all_uses_with(neg, delete_user_cb=lambda user: user is not neg)
    assert len(changed) == 1 and list(relu.users) == [neg]
    gm.recompile()
    gm.graph.lint()
    assert gm(torch.tensor(2.0)) == (-1, 2)


def test_replacing_uses_can_carry_meta(fx: Any) -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    first, second = graph.call_function(torch.relu, (x,)), graph.call_function(torch.neg, (x,))
    graph.output(first)
    first.meta["note"] = 7
    first.replace_all_uses_with(second, propagate_meta=True)
    assert second.meta["note"] == 7
    with pytest.raises(AssertionError):
        first.replace_all_uses_with(second, propagate_meta=True)


def test_replace_input_with(fx: Any) -> None:
    graph = fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    value = graph.call_function(torch.add, (x, x), {"alpha": [x]})
    value.replace_input_with(x, y)
    assert value.args == (y, y) and value.kwargs == {"alpha": [y]} and not x.users


def test_arguments_one_at_a_time(fx: Any) -> None:
    graph = fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    value = graph.call_function(torch.add, (x,), {"other": x})
    value.update_kwarg("other", y)
    value.update_arg(0, y)
    value.insert_arg(1, x)
    assert value.args == (y, x) and value.kwargs == {"other": y}
    assert set(value.users) == set() and set(x.users) == {value}
    value.insert_arg(0, 5)
    assert value.args == (5, y, x)


def test_arguments_are_immutable(fx: Any) -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    value = graph.call_function(torch.cat, ([x, x],), {"options": {"a": 1}})
    with pytest.raises((NotImplementedError, TypeError), match=r"new_args|not support mutation"):
        value.args[0].append(x)
    with pytest.raises((NotImplementedError, TypeError), match="not support mutation"):
        value.kwargs["options"]["a"] = 2
    assert isinstance(value.args[0], list) and isinstance(value.kwargs["options"], dict)


def test_inserting_points(fx: Any) -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    last = graph.call_function(torch.neg, (x,))
    graph.output(last)
    with graph.inserting_before(last):
        graph.call_function(torch.relu, (x,))
        graph.call_function(torch.abs, (x,))
    with graph.inserting_after(x):
        graph.call_function(torch.sin, (x,))
    graph.inserting_before(last)
    graph.call_function(torch.cos, (x,))
    assert [node.name for node in graph.nodes] == ["x", "sin", "relu", "abs_1", "cos", "neg", "output"]


def test_inserting_before_another_graphs_node_is_refused(fx: Any) -> None:
    graph, other = fx.Graph(), fx.Graph()
    x = other.placeholder("x")
    with pytest.raises(AssertionError):
        graph.inserting_before(x)
    with pytest.raises(AssertionError):
        graph.placeholder("x").prepend(x)


def test_moving_nodes(fx: Any) -> None:
    graph = fx.Graph()
    names = "abcd"
    nodes = {name: graph.placeholder(name) for name in names}
    nodes["a"].prepend(nodes["d"])
    nodes["c"].append(nodes["d"])
    nodes["b"].prepend(nodes["b"])  # itself: nothing
    nodes["b"].append(nodes["b"])
    assert "".join(node.name for node in graph.nodes) == "abcd"
    assert nodes["a"].next is nodes["b"] and nodes["b"].prev is nodes["a"]
    assert nodes["a"] < nodes["b"] <= nodes["b"] and nodes["d"] > nodes["c"]
    assert "".join(node.name for node in reversed(graph.nodes)) == "dcba"


def test_erasing_while_walking(fx: Any) -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    for _ in range(5):
        graph.call_function(torch.relu, (x,))
    graph.output(x)
    for node in reversed(graph.nodes):
        if node.op == "call_function":
            graph.erase_node(node)
    assert len(graph.nodes) == 2


def test_find_nodes(fx: Any) -> None:
    graph = fx.symbolic_trace(lambda x: torch.relu(torch.relu(x)).sum()).graph
    assert [node.name for node in graph.find_nodes(op="call_function", target=torch.relu)] == ["relu", "relu_1"]
    assert [node.name for node in graph.find_nodes(op="placeholder")] == ["x"]
    assert [node.name for node in graph.find_nodes(op="call_method", target="sum")] == ["sum_1"]
    assert list(graph.find_nodes(op="call_module")) == []
    assert graph.output_node().op == "output"


def test_names_are_made_unique_and_legal(fx: Any) -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    names = [graph.create_node("call_function", torch.relu, (x,), name=name).name for name in
             ["a", "a", "a_1", "class", "0 bad-name", "sum", "torch", "_", "None_", "x", "inf", "self"]]  # fmt: skip
    assert len(set(names)) == len(names) and all(name.isidentifier() for name in names)
    assert names[:4] == ["a", "a_1", "a_2", "class_1"] and "sum" not in names and "torch" not in names


def test_names_are_snake_case(fx: Any) -> None:
    graph = fx.Graph()
    names = ["helloWorld", "HTTPServer", "MyLinear1d", "ABc", "x_y", "TensorRTEngine", "ReLU6"]
    made = [graph.placeholder(name).name for name in names]
    assert made[0] == "hello_world" and made[2] == "my_linear1d" and made[4] == "x_y"


def test_placeholders_can_have_defaults(fx: Any) -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    y = graph.placeholder("y", type_expr=float, default_value=3.0)
    graph.output(graph.call_function(operator.add, (x, y)))
    gm = module_of(fx, graph)
    assert gm(1) == 4 and gm(1, 2.0) == 3
    assert "y : float = 3.0" in gm.code


def test_special_values_are_written(fx: Any) -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    key = (slice(None, 2), Ellipsis, None)
    part = graph.call_function(operator.getitem, (x, key))
    graph.output((part, math.inf, -math.inf, math.nan, 2 + 1j, torch.float16, torch.device("cpu"), torch.strided))
    out = module_of(fx, graph)(torch.arange(6).view(3, 2))
    assert out[0].shape == (2, 2, 1) and out[1] == math.inf and out[2] == -math.inf and math.isnan(out[3])
    assert out[4:] == (2 + 1j, torch.float16, torch.device("cpu"), torch.strided)


def test_keywords_of_special_values(fx: Any) -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_function(torch.nan_to_num, (x,), {"nan": math.inf, "posinf": -math.inf}))
    assert module_of(fx, graph)(torch.tensor(math.nan)) == math.inf


def test_a_long_graph_can_be_copied(fx: Any) -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    for _ in range(sys.getrecursionlimit() * 2):
        x = graph.call_function(torch.relu, (x,))
    graph.output(x)
    twin = copy.deepcopy(graph)
    assert [node.name for node in twin.nodes] == [node.name for node in graph.nodes]


def test_deepcopy_keeps_meta_and_types(fx: Any) -> None:
    graph = fx.symbolic_trace(lambda x: torch.relu(x)).graph
    for number, node in enumerate(graph.nodes):
        node.meta["number"] = number
        node.type = torch.Tensor
    twin = copy.deepcopy(graph)
    assert [node.meta["number"] for node in twin.nodes] == [0, 1, 2]
    assert all(node.type is torch.Tensor for node in twin.nodes)
    assert not set(twin.nodes) & set(graph.nodes)


def test_text_of_nodes_and_graphs(fx: Any) -> None:
    gm = fx.symbolic_trace(nn.Sequential(nn.ReLU()))
    graph = gm.graph
    call = list(graph.nodes)[1]
    assert call.format_node() == "%_0 : [num_users=1] = call_module[target=0](args = (%input_1,), kwargs = {})"
    assert next(iter(graph.nodes)).format_node() == "%input_1 : [num_users=1] = placeholder[target=input]"
    assert str(graph).split("\n")[0].strip() == "graph():" and "return _0" in str(graph)
    graph.set_codegen(graph._codegen)
    assert repr(call) == str(call) == "_0"


def test_eliminating_dead_code(fx: Any) -> None:
    graph = fx.Graph()
    x, unused = graph.placeholder("x"), graph.placeholder("unused")
    graph.call_function(torch.relu, (x,))
    graph.call_function(torch._assert, (x, "is false"))
    graph.output(x)
    assert graph.eliminate_dead_code()
    assert [node.op for node in graph.nodes] == ["placeholder", "placeholder", "call_function", "output"]
    assert not graph.eliminate_dead_code() and unused in set(graph.nodes)


def test_what_is_impure_can_be_decided_by_the_caller(fx: Any) -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.call_function(torch.relu, (x,))
    graph.output(x)
    assert not graph.eliminate_dead_code(is_impure_node=lambda node: True)
    assert graph.eliminate_dead_code(is_impure_node=lambda node: node.op in ("placeholder", "output"))


def test_the_table_of_nodes(fx: Any, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tabulate")
    fx.symbolic_trace(lambda x: torch.relu(x)).graph.print_tabular()
    assert "call_function" in capsys.readouterr().out


def test_map_arg_and_map_aggregate(fx: Any) -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    value = ([x, 1], {"a": (x,)}, slice(x, None))
    seen: list[Any] = []
    mapped = fx.node.map_arg(value, lambda node: seen.append(node) or "node")
    assert seen == [x, x, x] and mapped == (["node", 1], {"a": ("node",)}, slice("node", None))
    assert fx.node.map_aggregate([1, (2,)], lambda leaf: leaf + 1) == [2, (3,)]


def test_proxies_append_to_a_graph(fx: Any) -> None:
    graph = fx.Graph()
    x = fx.Proxy(graph.placeholder("x"))
    y = fx.Proxy(graph.placeholder("y"), fx.proxy.GraphAppendingTracer(graph))
    graph.output((torch.relu(x + y).sum(dim=0) ** 2).node)
    assert module_of(fx, graph)(torch.ones(3), torch.ones(3)) == 36


def test_owning_module_is_known_while_there_is_one(fx: Any) -> None:
    gm = fx.symbolic_trace(lambda x: x)
    assert gm.graph.owning_module is gm
    assert fx.Graph().owning_module is None


def test_side_effects_can_be_declared(fx: Any) -> None:
    @fx.has_side_effect
    def logs(x: Any) -> Any:
        return x

    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.call_function(logs, (x,))
    graph.output(x)
    graph.eliminate_dead_code()
    assert len(graph.nodes) == 3
