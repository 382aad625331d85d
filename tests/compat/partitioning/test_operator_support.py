"""Names of targets, supported operators, sorting: beside torch.fx's."""

from __future__ import annotations

import operator
import random
from typing import Any

import pytest
import torch
import torch.fx
from torch import nn
from torch.fx.passes import operator_support as torch_fx_support
from torch.fx.passes import shape_prop as torch_fx_shapes
from torch.fx.passes import tools_common as torch_fx_tools

import graphwright
from graphwright.passes import operator_support, shape_prop, tools_common

SIDES = [
    (torch.fx, torch_fx_support, torch_fx_tools, torch_fx_shapes),
    (graphwright, operator_support, tools_common, shape_prop),
]


def outcome(run: Any) -> Any:
    try:
        return run()
    except Exception as error:
        text = str(error).replace("call_module", "").replace("call_method", "").replace("call_function", "")  # a set
        return type(error).__name__, text


def acc_function(x: Any) -> Any:
    return x


acc_function.__module__ = "somewhere.acc_ops"


class Own(nn.Module):
    pass


SUBMODULES: dict[str, nn.Module] = {"linear": nn.Linear(2, 2), "own": Own()}


def nodes_of(package: Any, shapes: Any) -> list[Any]:
    graph = package.Graph()
    x, y, size = (graph.placeholder(name) for name in ("x", "y", "size"))
    x.meta["tensor_meta"] = shapes._extract_tensor_metadata(torch.ones(2))
    y.meta["tensor_meta"] = shapes._extract_tensor_metadata(torch.ones(2, dtype=torch.int))
    size.meta["type"] = int
    functions = [torch.add, operator.getitem, operator.sub, len, getattr, nn.functional.linear, nn.functional.relu]
    functions += [
        torch.ops.aten.add.Tensor,
        torch.ops.aten.add,
        torch._C._nn.gelu,
        acc_function,
        torch.ops.aten.sym_size.int,
    ]
    nodes = [x, y, graph.get_attr("linear.weight"), graph.call_module("linear", (x,)), graph.call_module("own", (x,))]
    nodes += [graph.call_method("relu", (x,))]
    nodes += [graph.call_function(function, (x, y)) for function in functions]
    nodes += [graph.call_function(torch.mul, args) for args in [(x, y), (x, x), (x, 2), (x,), (y, x), (x, size)]]
    nodes += [graph.call_function(operator.sub, (x,), {"out": value}) for value in (x, y, 1)]
    return [*nodes, graph.output(x)]


def test_names_of_targets() -> None:
    found = []
    for package, _, tools, shapes in SIDES:
        names = [outcome(lambda: tools.get_node_target(SUBMODULES, node)) for node in nodes_of(package, shapes)]  # noqa: B023
        values = ["x", torch.add, operator.add, nn.Linear, nn.functional.relu, torch.Tensor, int, acc_function]
        found.append([names, [tools.get_acc_ops_name(value) for value in (*values, torch.ops.aten.add.Tensor)]])
    assert found[0] == found[1]


TABLES: list[Any] = [
    None,
    {"torch.add": None, "torch.nn.modules.linear.Linear": None, "relu": None},
    {"torch.mul": (([torch.float], [torch.float]), {})},
    {"torch.mul": (([torch.float], [torch.int, int]), {}), "_operator.sub": (([torch.float],), {"out": [torch.int]})},
]


@pytest.mark.parametrize("table", TABLES)
def test_supported_nodes(table: Any) -> None:
    found = []
    for package, support, _, shapes in SIDES:
        plain = support.OperatorSupport(table)
        no_ints = support.OpSupports.decline_if_input_dtype(torch.int)
        not_named = support.OpSupports.decline_if_node_in_names({"mul", "sub_1"})
        nothing = support.create_op_support(lambda submodules, node: False)
        supports = [
            plain,
            no_ints,
            not_named,
            nothing,
            support.chain(plain, no_ints),
            support.any_chain(plain, nothing),
        ]
        supports += [support.chain(), support.any_chain()]
        nodes = nodes_of(package, shapes)
        found.append([[each.is_node_supported(SUBMODULES, node) for node in nodes] for each in supports])
        assert support.OperatorSupport(table)._support_dict == (table or {})
    assert found[0] == found[1]


@pytest.mark.parametrize("name", ["legalize_graph", "stable_topological_sort"])
def test_sorting(name: str) -> None:
    found = []
    for package, _, tools, _ in SIDES:
        graph = package.Graph()
        a, b = graph.placeholder("a"), graph.placeholder("b")
        c = graph.call_function(operator.add, (a, b))
        d = graph.call_function(operator.mul, (a, 2))
        e = graph.call_function(operator.sub, (c, d))
        w = graph.get_attr("w")
        f = graph.call_function(operator.sub, (e, w))
        graph.output(f)
        c.prepend(e)
        a.prepend(w)
        d.prepend(f)
        gm = package.GraphModule({"w": torch.ones(1)}, graph)
        assert getattr(tools, name)(gm) is gm
        gm.graph.lint() if package is torch.fx else None
        texts = [str(gm.graph), gm(torch.ones(1), torch.ones(1)).item()]
        nodes = {node.name: node for node in gm.graph.nodes}
        nodes["add"].args = (nodes["sub_1"], nodes["b"])
        texts.append(outcome(lambda: getattr(tools, name)(gm)))  # noqa: B023
        found.append(texts)
    found[1][2] = (found[1][2][0].replace("GraphError", "RuntimeError"), found[1][2][1])
    assert found[0] == found[1]


@pytest.mark.parametrize("name", ["legalize_graph", "stable_topological_sort"])
@pytest.mark.parametrize("seed", range(30))
def test_shuffled_graphs_are_sorted_as_in_torch_fx(seed: int, name: str) -> None:
    found = []
    for package, _, tools, _ in SIDES:
        pick = random.Random(seed)
        graph = package.Graph()
        values = [graph.placeholder("x"), graph.placeholder("y")]
        for _ in range(12):
            values.append(graph.call_function(operator.add, (pick.choice(values), pick.choice(values))))
        graph.output(values[-1])
        for _ in range(8):
            pick.choice(values[2:]).prepend(pick.choice(values[2:]))
        gm = package.GraphModule({}, graph)
        found.append(str(getattr(tools, name)(gm).graph))
    assert found[0] == found[1]


def test_tensor_outputs() -> None:
    for package, _, tools, _ in SIDES:
        node = package.Graph().placeholder("x")
        found = []
        for kind in (None, int, torch.Tensor, nn.Parameter, list):
            node.meta["type"] = kind
            found.append(tools.is_node_output_tensor(node))
        assert found == [False, False, True, True, False]


def test_fusions() -> None:
    found = []
    for package, _, tools, shapes in SIDES:
        gm = package.symbolic_trace(lambda x, y: (torch.cat([x.split(1)[0] + 1, y]).relu(), x.size(0) + y.size(0)))
        shapes.ShapeProp(gm).propagate(torch.ones(2, 3), torch.ones(2, 3))
        nodes = {node for node in gm.graph.nodes if node.op.startswith("call")}
        groups = tools.FxNetAccFusionsFinder(gm, nodes)()
        found.append({node.name: sorted(other.name for other in group) for node, group in groups.items()})
    assert found[0] == found[1]
