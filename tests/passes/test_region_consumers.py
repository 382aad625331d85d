"""Everything that takes a graph takes branches and loops, inside one another."""

from __future__ import annotations

import copy
import operator
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from graphwright.passes.fake_tensor_prop import FakeTensorProp
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import graphwright
from graphwright import Graph, GraphError, GraphModule, Interpreter, Transformer
from graphwright.analysis import verify
from graphwright.compat.tools.normalize import NormalizeArgs
from graphwright.ir import format_table, graph_to_text, text_to_graph
from graphwright.ops import TorchSpelling, cond, for_loop, while_loop
from graphwright.passes import MergeSubexpressions, RemoveDeadValues, ShapeProp


class Net(nn.Module):
    """A `for` that may return, with an `if` inside, with a `while` inside."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = x.sum(0)
        for row in x:
            row = self.linear(row)
            if row.sum() > 0:
                while row.abs().sum() < 8:
                    row = row * 2
                total = total + row
            elif row.sum() < -3:
                break
        return total


def body(names: str, write: Callable[..., Any]) -> Graph:
    graph = Graph()
    graph.output(write(graph, *[graph.placeholder(name) for name in names.split()]))
    return graph


def call(graph: Graph, function: Any, *args: Any) -> Any:
    return graph.call_function(function, args)


def height(graph: Graph, row: Any) -> Any:
    return graph.call_method("sum", (row,))


def step(graph: Graph, row: Any, total: Any) -> Any:
    row = graph.call_module("linear", (row,))

    def grow(graph: Graph, row: Any, total: Any) -> Any:
        test = body(
            "row", lambda g, row: call(g, operator.lt, g.call_method("sum", (g.call_method("abs", (row,)),)), 8)
        )
        loop = call(graph, while_loop, test, body("row", lambda g, row: (call(g, operator.mul, row, 2),)), (row,), ())
        return False, call(graph, operator.add, total, call(graph, operator.getitem, loop, 0))

    def otherwise(graph: Graph, row: Any, total: Any) -> Any:
        return call(graph, operator.lt, height(graph, row), -3), total

    above = call(graph, operator.gt, height(graph, row), 0)
    found = call(graph, cond, above, body("row total", grow), body("row total", otherwise), (row, total))
    return call(graph, operator.getitem, found, 0), call(graph, operator.getitem, found, 1)


def program() -> GraphModule:
    def write(graph: Graph, x: Any) -> Any:
        total = graph.call_method("sum", (x, 0))
        loop = call(graph, for_loop, x, body("row total", step), (total,), (), True)
        return call(graph, operator.getitem, loop, 0)

    return GraphModule(Net(), body("x", write))


INPUTS = [
    torch.tensor([[1.0, 2.0], [3.0, -4.0], [-9.0, 6.0]]),
    torch.zeros(0, 2),
    torch.linspace(-9, 9, 12).reshape(2, 6).t(),
]


def agrees(run: Callable[..., Any]) -> None:
    for x in INPUTS:
        torch.testing.assert_close(run(x), Net()(x), rtol=0, atol=0)


CONSUMERS: dict[str, Callable[[GraphModule], Callable[..., Any]]] = {
    "generated code": lambda gm: gm,
    "Interpreter": lambda gm: Interpreter(gm).run,
    "Interpreter that keeps values": lambda gm: Interpreter(gm, garbage_collect_values=False).run,
    "Transformer": lambda gm: Transformer(gm).transform(),
    "deepcopy": copy.deepcopy,
    "pickle": lambda gm: pickle.loads(pickle.dumps(gm)),
    "text": lambda gm: GraphModule(gm, text_to_graph(graph_to_text(gm.graph, TorchSpelling()), TorchSpelling())),
    "graph_copy": lambda gm: GraphModule(gm, copied(gm.graph)),
    "ShapeProp": lambda gm: ShapeProp(gm).propagate,
    "dead code": lambda gm: (gm.graph.eliminate_dead_code(), gm)[1],  # type: ignore[attr-defined]
    "passes": lambda gm: (RemoveDeadValues().run(gm), MergeSubexpressions().run(gm), gm)[2],
}


def copied(graph: Graph) -> Graph:
    other = Graph()
    other.output(other.graph_copy(graph, {}))  # type: ignore[arg-type]
    return other


@pytest.mark.parametrize("consumer", CONSUMERS)
def test_it_does_what_the_program_does(consumer: str) -> None:
    gm = program()
    gm.graph.lint()
    agrees(CONSUMERS[consumer](gm))


def test_gradients_are_those_of_the_program() -> None:
    assert verify(Net(), program(), [((x,), {}) for x in INPUTS]).ok


def test_files_hold_them(tmp_path: Path) -> None:
    gm = program()
    graphwright.save(gm, tmp_path / "net.gw")
    agrees(graphwright.load(tmp_path / "net.gw"))


@pytest.mark.slow
def test_a_folder_holds_them(tmp_path: Path) -> None:
    gm = program()
    gm.to_folder(tmp_path / "package", "Captured")
    torch.save([(x, Net()(x)) for x in INPUTS], tmp_path / "pairs.pt")
    script = """
import sys, torch
sys.path.insert(0, sys.argv[1])
from package import Captured
for x, y in torch.load(sys.argv[1] + "/pairs.pt"):
    torch.testing.assert_close(Captured()(x), y, rtol=0, atol=0)
"""
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True)


def test_lint_finds_what_is_wrong_in_the_innermost_body() -> None:
    gm = program()
    (multiplied,) = [node for node in gm.graph.all_nodes() if node.target is operator.mul]
    multiplied.graph.output_node().args = ((),)
    with pytest.raises(GraphError, match=r"^\[GW9\] .*needs 1 values from its body, which returns 0"):
        gm.graph.lint()


def test_tables_show_bodies() -> None:
    lines = format_table(program().graph).splitlines()
    columns = [line.split() for line in lines]
    assert ["<body>"] in columns and ["<true>"] in columns and ["<test>"] in columns
    assert sum(line.lstrip().startswith("output") for line in lines) == len(list(program().graph.all_graphs()))


@pytest.mark.parametrize("fake", [False, True], ids=("real", "fake"))
def test_shapes_are_known_in_each_body_that_ran(fake: bool) -> None:
    gm = program()
    ShapeProp(gm, FakeTensorMode(allow_non_fake_inputs=True) if fake else None).propagate(INPUTS[2])
    shapes = {node.name: node.meta.get("tensor_meta") for node in gm.graph.all_nodes()}
    assert tuple(shapes["linear"].shape) == tuple(shapes["mul"].shape) == (2,)
    assert tuple(shapes["gt"].shape) == ()
    FakeTensorProp(gm, FakeTensorMode(allow_non_fake_inputs=True)).propagate(INPUTS[2])
    assert tuple(next(node for node in gm.graph.all_nodes() if node.name == "mul").meta["val"].shape) == (2,)


def test_transformers_see_the_innermost_body() -> None:
    class Tripling(Transformer):
        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            return super().call_function(target, (args[0], 3) if target is operator.mul else args, kwargs)

    gm = Tripling(program()).transform()
    (multiplied,) = [node for node in gm.graph.all_nodes() if node.target is operator.mul]
    assert multiplied.args[1] == 3


def test_the_code_reads_like_the_program() -> None:
    lines = [line.partition(";  del")[0].strip() for line in program().code.splitlines()]
    heads = ("for", "if", "while", "break", "else", "return")
    assert [line for line in lines if line.split(" ")[0].rstrip(":") in heads] == [
        *("for row in x:", "if gt:", "while row_1.abs().sum() < 8:", "else:", "if lt:", "break", "return total")
    ]


def test_arguments_of_loops_and_blocks_stay_where_they_are() -> None:
    def halved(x: Any, n: int) -> Any:
        with torch.no_grad():
            while n > 0:
                x, n = torch.div(x, 2), n - 1
        return torch.cat([x, x])

    gm = NormalizeArgs(graphwright.script(halved)).transform()
    assert torch.equal(gm(torch.ones(1), 2), torch.full((2,), 0.25))
    assert {node.target for node in gm.graph.nodes if node.kwargs} == {torch.cat}
