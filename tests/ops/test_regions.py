"""Branches and loops as nodes: what they compute, how they are written, checked, copied and saved."""

from __future__ import annotations

import copy
import operator
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch

from graphwright import Graph, GraphError, GraphModule, Interpreter, Transformer
from graphwright.ir import graph_to_text, text_to_graph
from graphwright.ops import TorchSpelling, cond, for_loop, while_loop
from graphwright.passes import ShapeProp


def body(names: str, write: Callable[..., Any]) -> Graph:
    graph = Graph()
    graph.output(write(graph.call_function, *[graph.placeholder(name) for name in names.split()]))
    return graph


def reference(x: torch.Tensor) -> torch.Tensor:
    total = x.sum()
    if total > 0:
        y, scale = x + 1, 2.0
    elif total < -5:
        y, scale = torch.relu(x), 5.0
    else:
        y, scale = x, -1.0
    value = -y if scale > 1 else y
    i = 0
    while i < 3:
        i, value = i + 1, value * 2
    result = torch.zeros(2)
    for row in value:
        result = result + row * i
    return result


def program() -> GraphModule:
    """`reference` as a graph."""
    graph = Graph()
    x = graph.placeholder("x")
    total = graph.call_method("sum", (x,))

    def otherwise(call: Any, x: Any, total: Any) -> Any:
        inner = call(
            cond,
            (
                call(operator.lt, (total, -5)),
                body("x", lambda call, x: (call(torch.relu, (x,)), 5.0)),
                body("x", lambda call, x: (x, -1.0)),
                (x,),
            ),
        )
        return call(operator.getitem, (inner, 0)), call(operator.getitem, (inner, 1))

    positive = body("x total", lambda call, x, total: (call(operator.add, (x, 1)), 2.0))
    call = graph.call_function
    chosen = call(cond, (call(operator.gt, (total, 0)), positive, body("x total", otherwise), (x, total)))
    y, scale = call(operator.getitem, (chosen, 0), name="y"), call(operator.getitem, (chosen, 1), name="scale")
    negated = body("y", lambda call, y: call(operator.neg, (y,)))
    value = call(cond, (call(operator.gt, (scale, 1)), negated, body("y", lambda call, y: y), (y,)))
    loop = call(
        while_loop,
        (
            body("i v n", lambda call, i, v, n: call(operator.lt, (i, n))),
            body("i v n", lambda call, i, v, n: (call(operator.add, (i, 1)), call(operator.mul, (v, 2)))),
            (0, value),
            (3,),
        ),
    )
    i, v = call(operator.getitem, (loop, 0), name="i"), call(operator.getitem, (loop, 1), name="v")
    zeros = call(torch.zeros, (2,))
    rows = body("row acc k", lambda call, row, acc, k: (call(operator.add, (acc, call(operator.mul, (row, k)))),))
    graph.output(call(operator.getitem, (call(for_loop, (v, rows, (zeros,), (i,))), 0), name="result"))
    return GraphModule(torch.nn.Module(), graph)


PATHS = (torch.ones(3, 2), -torch.ones(2, 2) / 10, -9 * torch.ones(3, 2))


@pytest.mark.parametrize("x", PATHS, ids=("first", "last", "middle"))
def test_every_way_of_running_agrees_with_python(x: torch.Tensor) -> None:
    gm = program()
    gm.graph.lint()
    saved = pickle.loads(pickle.dumps(gm))
    for result in (gm(x), Interpreter(gm).run(x), copy.deepcopy(gm)(x), saved(x)):
        assert torch.equal(result, reference(x))


def test_the_code_has_native_blocks() -> None:
    lines = [line.strip() for line in program().code.splitlines()]
    for line in ("if gt:", "y = x + 1", "scale = 2.0", "if lt:", "while i < 3:", "for row in v:"):
        assert line in lines


def test_text_reads_back() -> None:
    gm = program()
    text = graph_to_text(gm.graph, spelling := TorchSpelling())
    assert str(text_to_graph(text, spelling)) == str(gm.graph)


def test_the_text_shows_bodies() -> None:
    text = str(program().graph)
    assert "args = (%gt, <true>, <false>, (%x, %sum_1))" in text
    assert "\n        <true>:\n            %x : [num_users=1] = placeholder[target=x]\n" in text


def test_copies_have_bodies_of_their_own() -> None:
    gm = program()
    copied = copy.deepcopy(gm)
    inner = next(node for node in copied.graph.nodes if node.target is cond).args[1]
    next(iter(inner.find_nodes(op="call_function", target=operator.add))).args = (next(iter(inner.nodes)), 100)
    assert torch.equal(gm(PATHS[0]), reference(PATHS[0]))
    assert not torch.equal(copied(PATHS[0]), reference(PATHS[0]))


def test_an_edit_inside_a_body_takes_effect() -> None:
    gm = program()
    before = gm(PATHS[0])
    inner = next(node for node in gm.graph.nodes if node.target is cond).args[1]
    next(iter(inner.find_nodes(op="call_function", target=operator.add))).target = operator.sub
    assert not torch.equal(gm(PATHS[0]), before)


@pytest.mark.parametrize(
    ("target", "args", "message"),
    [
        (cond, (True, body("x", lambda call, x: x), body("", lambda call: 1), ()), "gives 0 values to its 'true'"),
        (cond, (True,), "takes the arguments pred, true, false, operands"),
        (while_loop, (body("", lambda call: 1), 3, (), ()), "needs a graph for 'body'"),
        (for_loop, ([], body("i", lambda call, i: ()), 3, ()), "takes a tuple of carried"),
        (for_loop, ([], body("i", lambda call, i: ()), (), (), 1), "takes True or False for breaks"),
        (for_loop, ([], body("i", lambda call, i: ()), (), (), True), "needs 1 values from its body, which returns 0"),
        (for_loop, ([], body("i a", lambda call, i, a: (a, a)), (0,), ()), "needs 1 values .* which returns 2"),
        (for_loop, ([], body("i a", lambda call, i, a: a), (0,), ()), "needs a tuple of 1 values from its body"),
        (while_loop, (body("", lambda call: 1), Graph(), (), ()), "has a body without an output"),
    ],
)
def test_lint_checks_signatures(target: Any, args: Any, message: str) -> None:
    graph = Graph()
    graph.output(graph.call_function(target, args))
    graph.has_bodies = True
    with pytest.raises(GraphError, match=rf"^\[GW9\].*{message}"):
        graph.lint()


def test_lint_looks_into_bodies() -> None:
    gm = program()
    inner = next(node for node in gm.graph.nodes if node.target is cond).args[1]
    with inner.inserting_before(inner.output_node()):
        inner.call_module("missing", ())
    with pytest.raises(GraphError, match=r"^\[GW8\] .*nonexistent attribute missing"):
        gm.graph.lint()


def first_row_above(x: torch.Tensor, limit: float) -> tuple[object, object, object]:
    seen, found = 0, None
    for row in x:
        seen += 1
        if row.sum() > limit:
            found = row
            break
    n = seen
    while True:
        n *= 2
        if n > 10:
            break
    return seen, found, n


def breaking() -> GraphModule:
    """`first_row_above` as a graph."""
    graph = Graph()
    call = graph.call_function
    x, limit = graph.placeholder("x"), graph.placeholder("limit")

    def step(call: Any, row: Any, seen: Any, found: Any, limit: Any) -> Any:
        above = call(operator.gt, (call(torch.sum, (row,)), limit))
        kept = body("row found", lambda call, row, found: found)
        value = call(cond, (above, body("row found", lambda call, row, found: row), kept, (row, found)))
        return above, call(operator.add, (seen, 1)), value

    rows = call(for_loop, (x, body("row seen found limit", step), (0, None), (limit,), True))
    seen, found = call(operator.getitem, (rows, 0), name="seen"), call(operator.getitem, (rows, 1), name="found")

    def double(call: Any, n: Any) -> Any:
        n = call(operator.mul, (n, 2))
        return call(operator.gt, (n, 10)), n

    loop = call(while_loop, (body("n", lambda call, n: True), body("n", double), (seen,), (), True))
    graph.output((seen, found, call(operator.getitem, (loop, 0), name="n")))
    return GraphModule(torch.nn.Module(), graph)


@pytest.mark.parametrize("limit", [-1, 3, 100], ids=("first", "middle", "never"))
def test_loops_that_end_early_agree_with_python_whichever_way_they_run(limit: float) -> None:
    gm, x = breaking(), torch.arange(6.0).reshape(3, 2)
    gm.graph.lint()
    rows = for_loop(x, lambda row, found: (bool(row.sum() > limit), row), (None,), (), True)
    seen, found, n = first_row_above(x, limit)
    assert found is None or torch.equal(rows[0], found)  # type: ignore[arg-type]
    text = graph_to_text(gm.graph, spelling := TorchSpelling())
    assert str(text_to_graph(text, spelling)) == str(gm.graph)
    read = GraphModule(torch.nn.Module(), text_to_graph(text, spelling))
    transformed = Transformer(gm).transform()
    saved = pickle.loads(pickle.dumps(gm))
    assert [transformed.graph.find_nodes(op="call_function", target=loop)[0].args[-1] for loop in LOOPS] == [True] * 2
    for run in (gm, Interpreter(gm).run, copy.deepcopy(gm), saved, read, transformed):
        assert run(x, limit)[0] == seen
        assert run(x, limit)[2] == n
        assert torch.equal(run(x, limit)[1], found) if found is not None else run(x, limit)[1] is None  # type: ignore[arg-type]


LOOPS = (for_loop, while_loop)


def test_the_interpreter_runs_the_nodes_of_bodies() -> None:
    class Counting(Interpreter):
        def __init__(self, gm: GraphModule) -> None:
            super().__init__(gm)
            self.calls: list[str] = []

        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            self.calls.append(target.__name__)
            return super().call_function(target, args, kwargs)

    counting = Counting(breaking())
    counting.run(torch.arange(6.0).reshape(3, 2), 3)
    assert counting.calls.count("sum") == 2
    assert [name for name in counting.calls if name == "mul"] == ["mul"] * 3


def test_the_transformer_transforms_bodies() -> None:
    class Squaring(Transformer):
        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            return super().call_function(operator.pow if target is operator.mul else target, args, kwargs)

    assert Squaring(breaking()).transform()(torch.ones(3, 2), 5)[2] == 81
    assert breaking()(torch.ones(3, 2), 5)[2] == 12


def test_shape_prop_describes_bodies() -> None:
    gm = breaking()
    ShapeProp(gm).propagate(torch.ones(3, 2), 5)
    loop = gm.graph.find_nodes(op="call_function", target=for_loop)[0]
    (total,) = loop.args[1].find_nodes(op="call_function", target=torch.sum)
    assert total.meta["tensor_meta"].shape == ()
