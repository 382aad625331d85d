"""Graphs as text, as torch.fx writes them."""

from __future__ import annotations

import collections
import math
import operator
import typing
from typing import Any

import pytest
import torch
import torch.fx
from torch.fx.node import _get_qualified_name

import graphwright
from graphwright import Graph
from graphwright.errors import GraphError
from graphwright.ir import Origin, format_node, format_table, qualified_name

PACKAGES = [pytest.param(graphwright, id="graphwright"), pytest.param(torch.fx, id="torch.fx")]
Pair = collections.namedtuple("Pair", "a b")


def everything(package: Any) -> Any:
    """Every opcode, with every kind of argument."""
    graph = package.Graph()
    x = graph.placeholder("x", torch.Tensor)
    graph.placeholder("flag", default_value=None)
    rest = graph.placeholder("*args")
    graph.placeholder("**kwargs")
    weight = graph.get_attr("layer1.0.weight", torch.nn.Parameter)
    add = graph.call_function(operator.add, (x, 1))
    cat = graph.call_function(torch.cat, ([x, add, (weight,)],), {"dim": -1, "out": {"a": rest}})
    item = graph.call_function(operator.getitem, (cat, (slice(None, x, None), ..., None)))
    size = graph.call_method("size", (item,), {}, typing.List[int])  # noqa: UP006
    module = graph.call_module("layer1.0", (size, "text", 0.5, torch.float32, torch.device("cpu")))
    shape = graph.call_function(getattr, (module, "shape"), type_expr=list[int])
    graph.call_function(torch.nn.functional.gelu, (shape, Pair(x, 2)), {"approximate": "tanh"})
    graph.call_function(torch.ops.aten.add.Tensor, (x, True))
    graph.call_function(torch.Tensor.add, (x, math.inf), type_expr=int)
    graph.output((x, [module], {"k": add}), torch.Tensor)
    return graph


def test_the_text_of_a_graph() -> None:
    assert str(everything(graphwright)) == (
        "graph():\n"
        "    %x : torch.Tensor [num_users=7] = placeholder[target=x]\n"
        "    %flag : [num_users=0] = placeholder[target=flag](default=None)\n"
        "    %_args : [num_users=1] = placeholder[target=*args]\n"
        "    %_kwargs : [num_users=0] = placeholder[target=**kwargs]\n"
        "    %layer1_0_weight : torch.nn.parameter.Parameter [num_users=1] = get_attr[target=layer1.0.weight]\n"
        "    %add : [num_users=2] = call_function[target=operator.add](args = (%x, 1), kwargs = {})\n"
        "    %cat : [num_users=1] = call_function[target=torch.cat](args = ([%x, %add, (%layer1_0_weight,)],), "
        "kwargs = {dim: -1, out: {a: %_args}})\n"
        "    %getitem : [num_users=1] = call_function[target=operator.getitem]"
        "(args = (%cat, (slice(None, x, None), Ellipsis, None)), kwargs = {})\n"
        "    %size : typing.List[int] [num_users=1] = call_method[target=size](args = (%getitem,), kwargs = {})\n"
        "    %layer1_0 : [num_users=2] = call_module[target=layer1.0]"
        "(args = (%size, text, 0.5, torch.float32, cpu), kwargs = {})\n"
        "    %getattr_1 : list[int] [num_users=1] = call_function[target=builtins.getattr]"
        "(args = (%layer1_0, shape), kwargs = {})\n"
        "    %gelu : [num_users=0] = call_function[target=torch._C._nn.gelu]"
        "(args = (%getattr_1, (%x, 2)), kwargs = {approximate: tanh})\n"
        "    %add_tensor : [num_users=0] = call_function[target=torch.ops.aten.add.Tensor]"
        "(args = (%x, True), kwargs = {})\n"
        "    %add_1 : int [num_users=0] = call_function[target=torch.Tensor.add](args = (%x, inf), kwargs = {})\n"
        "    return (x, [layer1_0], {'k': add})"
    )


def test_the_text_is_torch_fx_s() -> None:
    assert str(everything(graphwright)) == str(everything(torch.fx))


def test_nodes_print_alone() -> None:
    ours, theirs = everything(graphwright), everything(torch.fx)
    assert [format_node(node) for node in ours.nodes] == [node.format_node() for node in theirs.nodes]
    assert [node.format_node() for node in ours.nodes] == [format_node(node) for node in ours.nodes]
    assert [repr(node) for node in ours.nodes] == [repr(node) for node in theirs.nodes]


@pytest.mark.parametrize("package", PACKAGES)
def test_odd_graphs_print(package: Any) -> None:
    graph = package.Graph()
    assert str(graph) == "graph():"
    graph.create_node("output", "output", (None,))
    assert str(graph) == "graph():\n    return None"


def test_a_function_without_a_name_prints_as_itself() -> None:
    graph = Graph()
    graph.call_function(len, (3,))
    nameless = torch.nn.ReLU()
    graph.call_function(nameless, (3,))
    assert str(graph).endswith("call_function[target=ReLU()](args = (3,), kwargs = {})")


def test_the_table_of_a_graph(capsys: pytest.CaptureFixture[str]) -> None:
    graph = Graph()
    x = graph.placeholder("x")
    relu = graph.call_function(torch.relu, (x,))
    graph.output(graph.call_module("linear", (relu,), {"k": 2}))
    wanted = (
        "opcode         name    target                                                args     kwargs\n"
        "-------------  ------  ----------------------------------------------------  -------  --------\n"
        "placeholder    x       x                                                     ()       {}\n"
        f"call_function  relu    {torch.relu!s:<52}  (x,)     {{}}\n"
        "call_module    linear  linear                                                (relu,)  {'k': 2}\n"
        "output         output  output                                                (linear,)  {}\n"
    )
    graph.print_tabular()
    printed = capsys.readouterr().out
    assert [line.split() for line in printed.splitlines() if set(line) - {"-", " "}] == [
        line.split() for line in wanted.splitlines() if set(line) - {"-", " "}
    ]
    assert len({line.index("placeholder"[0]) for line in printed.splitlines()[2:3]}) == 1
    columns = [printed.splitlines()[0].index(word) for word in ("opcode", "name", "target", "args", "kwargs")]
    for line in printed.splitlines()[2:]:
        assert all(at == 0 or line[at - 1] == " " for at in columns)
    assert format_table(graph, [x]).splitlines()[2:] == ["placeholder  x       x         ()      {}"]


# ---- where functions live

FUNCTIONS = [
    *(
        torch.relu,
        torch.nn.functional.relu,
        torch.nn.functional.gelu,
        torch.fft.fft,
        torch.linalg.norm,
        torch.special.i0,
    ),
    *(torch.Tensor.add, torch.Tensor.__add__, torch.Tensor.norm, torch.ops.aten.add.Tensor, torch.ops.aten.add),
    *(torch.nn.functional.max_pool2d, torch.nn.functional.scaled_dot_product_attention, torch.conv2d, math.sqrt),
    *(torch.nn.functional.linear, torch.einsum, torch.nn.ReLU, torch.Size, Pair),
]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_qualified_names_are_torch_fx_s(function: Any) -> None:
    assert qualified_name(function) == _get_qualified_name(function)


@pytest.mark.parametrize(
    ("function", "name"),
    [(operator.add, "operator.add"), (len, "builtins.len"), (str.upper, "builtins.str.upper"), (int, "builtins.int")],
)
def test_qualified_names_without_torch(function: Any, name: str) -> None:
    assert qualified_name(function) == name


def test_a_function_that_nobody_holds_has_no_qualified_name() -> None:
    with pytest.raises(
        GraphError, match=r"^cannot name ReLU\(\): it has no __name__\n  fix: wrap it in a module-level"
    ):
        qualified_name(torch.nn.ReLU())
    homeless = lambda: None  # noqa: E731
    homeless.__module__ = None  # type: ignore[assignment]
    with pytest.raises(GraphError, match=r"^cannot find out where <function .* lives"):
        qualified_name(homeless)


def test_an_origin_prints_as_a_place() -> None:
    assert str(Origin("model.py", 14, "Gate.forward", "x = a + b")) == "model.py:14 in Gate.forward: x = a + b"
    assert str(Origin("model.py", 14, "Gate.forward", "")) == "model.py:14 in Gate.forward"


class Shown:
    def _custom_fx_repr_fn(self) -> str:
        return "<shown>"


def test_a_class_says_how_it_is_shown() -> None:
    graph = Graph()
    graph.call_function(print, (Shown(), [Shown()]))
    assert "args = (<shown>, [<shown>])" in str(graph)


def test_a_text_stays_on_its_line() -> None:
    graph = graphwright.Graph()
    x = graph.placeholder("x", default_value="\x1b[2J", type_expr="\x1b")
    graph.call_function(print, (x, "a\n    %evil : [num_users=0]"), {"end": "\r"})
    graph.output("\u202e")
    lines = str(graph).split("\n")
    assert len(lines) == 4
    assert all(line.isprintable() for line in lines)
    assert "a\\n    %evil" in lines[2]
