"""The operator that gives a body to a transform of torch: what it computes, and what lint says of its arguments."""

from __future__ import annotations

import copy
import operator
from typing import Any

import pytest
import torch

from graphwright import Graph, GraphError, GraphModule, Interpreter
from graphwright.ir import graph_to_text, text_to_graph
from graphwright.ops import TorchSpelling, transformed


def body(names: str) -> Graph:
    """The product of the inputs, summed."""
    graph = Graph()
    value, *more = [graph.placeholder(name) for name in names.split()]
    for other in more:
        value = graph.call_function(operator.mul, (value, other))
    graph.output(graph.call_method("sum", (value,)))
    return graph


def program(name: str = "torch.vmap", options: Any = None) -> GraphModule:
    graph = Graph()
    x, w = graph.placeholder("x"), graph.placeholder("w")
    graph.output(graph.call_function(transformed, (name, body("v w"), (x,), (w,), options or {})))
    return GraphModule(torch.nn.Module(), graph)


X, W = torch.randn(3, 4), torch.randn(4)


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("torch.vmap", {}, lambda x, w: x @ w),
        ("torch.vmap", {"in_dims": 0, "chunk_size": 1}, lambda x, w: x @ w),
        ("torch.func.grad", {}, lambda x, w: w.expand_as(x)),
        ("torch.func.jacrev", {}, lambda x, w: w.expand_as(x)),
        ("torch.autograd.functional.jacobian", {}, lambda x, w: w.expand_as(x)),
        ("torch.utils.checkpoint.checkpoint", {"use_reentrant": False}, lambda x, w: (x * w).sum()),
    ],
)
def test_every_way_of_running_agrees(name: str, options: Any, expected: Any) -> None:
    gm = program(name, options)
    gm.graph.lint()
    for result in (gm(X, W), Interpreter(gm).run(X, W), copy.deepcopy(gm)(X, W)):
        torch.testing.assert_close(result, expected(X, W))


def test_text_reads_back() -> None:
    graph = program(options={"in_dims": (0,)}).graph
    spelling = TorchSpelling()
    assert str(text_to_graph(graph_to_text(graph, spelling), spelling)) == str(graph)
    assert "args = (torch.vmap, <body>, (%x,), (%w,), {in_dims: (0,)})" in str(graph)


def test_an_edit_of_the_body_takes_effect() -> None:
    gm = program()
    before = gm(X, W)
    (node,) = gm.graph.find_nodes(op="call_function", target=transformed)
    node.args[1].find_nodes(op="call_function", target=operator.mul)[0].target = operator.add
    assert not torch.equal(gm(X, W), before)
    torch.testing.assert_close(gm(X, W), (X + W).sum(1))


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("torch.vmap",), "takes the arguments transform, body, inputs, operands, options"),
        (("os.system", body("v"), (1,), (), {}), "names no transform: 'os.system'"),
        (("torch.vmap", body("v w"), (1,), (), {}), "gives 1 values to its 'body', which takes 2"),
        (("torch.vmap", body("v w"), (1,), (1, 2), {}), "gives 3 values to its 'body', which takes 2"),
        (("torch.func.jvp", body("v w"), ((1,), (2,)), (), {}), "gives 1 values to its 'body', which takes 2"),
        (("torch.vmap", 3, (1,), (), {}), "needs a graph for 'body'"),
        (("torch.vmap", body("v"), 1, (), {}), "takes a tuple of inputs"),
        (("torch.vmap", body("v"), (1,), (), None), "takes a dict of options"),
    ],
)
def test_lint_checks_the_signature(args: Any, message: str) -> None:
    graph = Graph()
    graph.output(graph.call_function(transformed, args))
    graph.has_bodies = True
    with pytest.raises(GraphError, match=rf"^\[GW9\].*{message}"):
        graph.lint()
