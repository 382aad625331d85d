"""Passes over branches and loops: what they change, what they leave alone, and that programs keep what they compute."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.codegen.random_loops import random_function
from torch import nn

import graphwright
from graphwright import Graph, GraphModule, Interpreter, trace
from graphwright.ops import cond, for_loop, raise_error
from graphwright.passes import (
    FoldConditions,
    HoistInvariants,
    MergeConditions,
    MergeSubexpressions,
    RemoveDeadValues,
    RemoveNoOps,
    SetTraining,
    UnrollLoops,
)
from graphwright.runtime import graph_of

PASSES = [FoldConditions(), HoistInvariants(), MergeConditions(), MergeSubexpressions(), RemoveDeadValues()]
PASSES.append(UnrollLoops())


def body(names: str, write: Callable[..., Any]) -> Graph:
    graph = Graph()
    graph.output(write(graph, *[graph.placeholder(name) for name in names.split()]))
    return graph


def module(names: str, write: Callable[..., Any]) -> GraphModule:
    return GraphModule(nn.Module(), body(names, write))


def call(graph: Graph, function: Any, *args: Any) -> Any:
    return graph.call_function(function, args)


def targets(graph: Graph) -> list[Any]:
    return [getattr(node.target, "__name__", node.target) for node in graph.nodes]


def only_body(gm: GraphModule, place: int = 1) -> Graph:
    (region,) = [node for node in gm.graph.nodes if len(node.args) > 3]
    return region.args[place]  # type: ignore[no-any-return]


# ---- what changes, and what must stay alone


def test_a_known_condition_makes_others_known() -> None:
    def write(graph: Graph, x: Any) -> Any:
        first = call(
            graph, cond, True, body("x", lambda g, x: (x, False)),
            body("x", lambda g, x: (call(g, torch.neg, x), True)), (x,),
        )  # fmt: skip
        flag, value = call(graph, operator.getitem, first, 1), call(graph, operator.getitem, first, 0)
        sides = body("x", lambda g, x: call(g, torch.sin, x)), body("x", lambda g, x: call(g, torch.cos, x))
        return call(graph, cond, flag, *sides, (value,))

    gm = module("x", write)
    assert FoldConditions().run(gm) == 2
    assert targets(gm.graph) == ["x", "cos", "output"]


class NoiseOrNone(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        noise = torch.rand_like(x) if self.training else None
        if noise is not None:
            x = x + noise
        return x.relu()


def test_that_a_value_is_none_makes_others_known() -> None:
    gm = trace(NoiseOrNone().eval(), torch.ones(2))
    SetTraining(False).run(gm)
    FoldConditions().run(gm)
    assert targets(gm.graph) == ["x", "relu", "output"]


def test_conditions_that_only_a_run_knows_stay() -> None:
    gm = module("p x", lambda g, p, x: call(g, cond, p, body("x", lambda g, x: x), body("x", lambda g, x: -1), (x,)))
    assert FoldConditions().run(gm) == 0


def test_a_side_that_raises_stays_inside_its_branch() -> None:
    def fail(graph: Graph) -> Any:
        call(graph, raise_error, ValueError, "no")

    gm = module("x", lambda g, x: (call(g, cond, True, body("", fail), body("", lambda g: None), ()), x)[1])
    FoldConditions().run(gm)
    with pytest.raises(ValueError, match="no"):
        gm(1)


def test_loops_that_never_run_give_what_they_start_with() -> None:
    step = body("i x", lambda g, i, x: (call(g, torch.neg, x),))
    gm = module("x", lambda g, x: call(g, operator.getitem, call(g, for_loop, (), step, (x,), ()), 0))
    assert FoldConditions().run(gm) == 1
    assert targets(gm.graph) == ["x", "output"]


def unrollable(breaks: bool, *args: int) -> GraphModule:
    def step(graph: Graph, i: Any, x: Any) -> Any:
        return (*([call(graph, operator.gt, i, 1)] if breaks else []), call(graph, operator.mul, x, i))

    def write(graph: Graph, x: Any) -> Any:
        numbers = call(graph, range, *args)
        return call(graph, operator.getitem, call(graph, for_loop, numbers, body("i x", step), (x,), (), breaks), 0)

    return module("x", write)


def test_short_loops_are_written_out() -> None:
    gm = unrollable(False, 1, 4)
    assert UnrollLoops(limit=3).run(gm) == 1
    assert targets(gm.graph) == ["x", "mul", "mul", "mul", "output"]
    assert gm(2) == 12


@pytest.mark.parametrize(("breaks", "limit"), [(False, 2), (True, 8)], ids=("too long", "may end early"))
def test_other_loops_stay(breaks: bool, limit: int) -> None:
    assert UnrollLoops(limit=limit).run(unrollable(breaks, 1, 4)) == 0


def invariant(iterable: Any, operation: Callable[[Graph, Any], Any], in_place: bool = False) -> GraphModule:
    def step(graph: Graph, i: Any, total: Any, w: Any) -> Any:
        value = operation(graph, w)
        if in_place:
            graph.call_method("add_", (w, 1))
        return (call(graph, operator.add, total, value),)

    def write(graph: Graph, x: Any, w: Any) -> Any:
        loop = call(graph, for_loop, x if iterable is None else iterable, body("i total w", step), (0,), (w,))
        return call(graph, operator.getitem, loop, 0)

    return module("x w", write)


def exponential(graph: Graph, w: Any) -> Any:
    return call(graph, torch.exp, w)


def test_what_a_loop_computes_anew_is_computed_once() -> None:
    gm = invariant((1, 2, 3), exponential)
    assert HoistInvariants().run(gm) == 1
    assert "exp" in targets(gm.graph) and "exp" not in targets(only_body(gm))
    assert torch.equal(gm(None, torch.zeros(2)), torch.full((2,), 3.0))


@pytest.mark.parametrize(
    "gm",
    [
        invariant(None, exponential),
        invariant((1, 2), exponential, in_place=True),
        invariant((1, 2), lambda g, w: call(g, torch.rand_like, w)),
        invariant((), exponential),
    ],
    ids=("may run zero times", "written in place", "random", "never runs"),
)
def test_what_must_be_computed_in_the_loop_stays(gm: GraphModule) -> None:
    assert HoistInvariants().run(gm) == 0


def accumulated(x: Any, w: Any, n: int) -> Any:
    total = torch.zeros_like(x)
    for i in range(n):
        total = total + w.exp() * i
    return total


def stopping(x: Any, w: Any, n: int) -> Any:
    last = 0
    for i in range(1, n, 2):
        x = x + w.exp()
        if x.sum() > 9:
            break
        last = i
    return x, last


def nested(x: Any, w: Any, n: int) -> Any:
    for i in range(n):
        for _ in range(i):
            x = x + w.exp()
    return x


@pytest.mark.parametrize("function", [accumulated, stopping, nested])
def test_in_a_loop_that_may_not_run_it_is_computed_once_behind_a_test(function: Any) -> None:
    gm = graphwright.trace(function, (torch.ones(2), torch.ones(2), 3))
    assert HoistInvariants().run(gm) == 1
    gm.graph.lint()
    exp = next(node for node in gm.graph.all_nodes() if node.target == "exp")
    loop = next(node for node in exp.graph.nodes if node.target is for_loop)
    assert exp.graph is not gm.graph
    assert exp in loop.args[3]
    for n in (-1, 0, 1, 2, 6):
        torch.testing.assert_close(gm(torch.ones(2), torch.ones(2), n), function(torch.ones(2), torch.ones(2), n))


def test_what_would_raise_does_not_where_the_loop_does_not_run() -> None:
    def wrong(x: Any, w: Any, n: int) -> Any:
        for _ in range(n):
            x = x + w.mm(w)
        return x

    gm = graphwright.trace(wrong, (torch.ones(2, 2), torch.ones(2, 2), 1))
    assert HoistInvariants().run(gm) == 1
    assert torch.equal(gm(torch.ones(2, 2), torch.ones(2, 3), 0), torch.ones(2, 2))
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        gm(torch.ones(2, 2), torch.ones(2, 3), 1)


def test_a_value_that_is_given_back_stays_in_the_loop() -> None:
    step = body("i a b w", lambda g, i, a, b, w: (b, call(g, torch.exp, w)))
    gm = module("w", lambda g, w: call(g, for_loop, (1, 2), step, (0, 0), (w,)))
    assert HoistInvariants().run(gm) == 0
    a, b = gm(torch.zeros(2))
    assert a is not b


def repeated(in_place: bool = False, function: Any = torch.exp) -> GraphModule:
    def side(graph: Graph, x: Any) -> Any:
        return call(graph, operator.add, call(graph, function, x), 1)

    def write(graph: Graph, p: Any, x: Any) -> Any:
        outside = call(graph, operator.mul, call(graph, function, x), 2)
        if in_place:
            graph.call_method("add_", (outside, 1))
        inside = call(graph, cond, p, body("x", side), body("x", lambda g, x: x), (x,))
        return outside, inside

    return module("p x", write)


def test_what_is_known_before_a_branch_is_not_computed_inside() -> None:
    gm = repeated()
    assert MergeSubexpressions().run(gm) == 1
    assert "exp" not in targets(only_body(gm)) and targets(gm.graph).count("exp") == 1
    gm.graph.lint()
    x = torch.ones(2)
    torch.testing.assert_close(gm(True, x), (x.exp() * 2, x.exp() + 1))


@pytest.mark.parametrize("gm", [repeated(True), repeated(function=torch.rand_like)], ids=("in place", "random"))
def test_operations_that_differ_from_run_to_run_are_not_merged(gm: GraphModule) -> None:
    assert MergeSubexpressions().run(gm) == 0


def test_one_tensor_is_not_given_back_where_there_were_two() -> None:
    gm = module("x", lambda g, x: (call(g, torch.exp, x), call(g, torch.exp, x)))
    assert MergeSubexpressions().run(gm) == 0


def test_branches_inside_the_same_branch_go() -> None:
    def inner(graph: Graph, p: Any, x: Any) -> Any:
        sides = body("x", lambda g, x: call(g, torch.sin, x)), body("x", lambda g, x: call(g, torch.cos, x))
        return call(graph, cond, p, *sides, (x,))

    gm = module("p x", lambda g, p, x: call(g, cond, p, body("p x", inner), body("p x", inner), (p, x)))
    assert MergeConditions().run(gm) == 2
    assert targets(only_body(gm, 1)) == ["p", "x", "sin", "output"]
    assert targets(only_body(gm, 2)) == ["p", "x", "cos", "output"]


def in_a_row(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    c = x.sum() > 0
    if c:
        h, k = x + 1, y * 2
    else:
        h, k = x - 1, y * 3
    z = y.exp()
    if c:
        h, w = h * k, z
    else:
        w = h + k
    if c:
        h = h.relu()
    return h + w


def between(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    c = x.sum() > 0
    h = x + 1 if c else y
    k = h.exp()
    return k * 2 if c else k - y


@pytest.mark.parametrize(("program", "merged"), [(in_a_row, 2), (between, 0)])
def test_branches_in_a_row_become_one(program: Any, merged: int) -> None:
    gm = trace(program, (torch.ones(3), torch.ones(3)))
    assert MergeConditions().run(gm) == merged
    gm.graph.lint()
    assert targets(gm.graph).count("cond") == (1 if merged else 2)
    for x in (torch.randn(3).abs(), -torch.randn(3).abs()):
        y = torch.randn(3)
        assert torch.equal(gm(x, y), program(x, y))


def test_branches_on_another_condition_stay() -> None:
    def inner(graph: Graph, p: Any, x: Any) -> Any:
        return call(graph, cond, call(graph, operator.not_, p), *[body("x", lambda g, x: x)] * 2, (x,))

    gm = module("p x", lambda g, p, x: call(g, cond, p, body("p x", inner), body("p x", lambda g, p, x: x), (p, x)))
    assert MergeConditions().run(gm) == 0


def test_values_that_nothing_needs_go_from_loops_and_branches() -> None:
    def step(graph: Graph, i: Any, used: Any, unused: Any, same: Any) -> Any:
        both = call(
            graph, cond, call(graph, operator.gt, i, 1),
            body("u s i", lambda g, u, s, i: (call(g, operator.add, u, s), 1)),
            body("u s i", lambda g, u, s, i: (u, 2)), (used, same, i),
        )  # fmt: skip
        first, _ = call(graph, operator.getitem, both, 0), call(graph, operator.getitem, both, 1)
        return first, call(graph, operator.add, unused, used), same

    def write(graph: Graph, n: Any, x: Any) -> Any:
        loop = call(graph, for_loop, call(graph, range, n), body("i used unused same", step), (x, 0, 5), ())
        return call(graph, operator.getitem, loop, 0), call(graph, operator.getitem, loop, 2)

    gm = module("n x", write)
    before = gm(4, 1)
    assert RemoveDeadValues().run(gm) > 3
    gm.graph.lint()
    assert gm(4, 1) == before == (11, 5)
    inner = only_body(gm)
    assert [node.name for node in inner.nodes if node.op == "placeholder"] == ["i", "used", "same"]
    assert inner.output_node().args[0] == (inner.find_nodes(op="call_function", target=operator.getitem)[0],)


def test_effects_inside_branches_stay() -> None:
    def side(graph: Graph, x: Any) -> Any:
        graph.call_method("add_", (x, 1))
        return x

    gm = module("p x", lambda g, p, x: (call(g, cond, p, body("x", side), body("x", lambda g, x: x), (x,)), x)[1])
    assert not gm.graph.eliminate_dead_code()  # type: ignore[attr-defined]
    assert torch.equal(gm(True, torch.zeros(1)), torch.ones(1))


def test_a_branch_without_effects_that_nobody_reads_goes() -> None:
    sides = body("x", lambda g, x: call(g, torch.sin, x)), body("x", lambda g, x: x)
    gm = module("p x", lambda g, p, x: (call(g, cond, p, *sides, (x,)), x)[1])
    assert gm.graph.eliminate_dead_code()  # type: ignore[attr-defined]
    assert targets(gm.graph) == ["p", "x", "output"]


# ---- programs keep what they compute


INPUTS = [(3, 0.5), (0, 1.0), (5, -1.0)]


def outcome(run: Callable[..., Any], n: int, scale: float) -> Any:
    """The values of a program and the gradient of its input, or the kind of error."""
    x = (torch.arange(9.0).reshape(3, 3) * scale - 1).requires_grad_()
    try:
        y, *numbers = run(x, n)
    except TypeError as error:  # values that are not there where the random program reads them
        return type(error)
    tensors = [y, *[number for number in numbers if isinstance(number, torch.Tensor)]]
    y = sum(tensor.sum() for tensor in tensors if isinstance(tensor, torch.Tensor))
    grad = torch.autograd.grad(y, x)[0] if isinstance(y, torch.Tensor) and y.requires_grad else None
    return [str(value.detach()) if isinstance(value, torch.Tensor) else value for value in (*tensors, *numbers, grad)]


def holds_at_random(passes: list[Any], seed: int) -> int:
    gm = graphwright.script(random_function(seed))
    wanted = [outcome(Interpreter(gm).run, *inputs) for inputs in INPUTS]
    count = 0
    for change in passes:
        count += change.run(gm)
        graph_of(gm).lint()
    for inputs, value in zip(INPUTS, wanted, strict=True):
        assert outcome(gm, *inputs) == outcome(Interpreter(gm).run, *inputs) == value
    return count


@pytest.mark.sampled(3)
@pytest.mark.parametrize("change", PASSES, ids=lambda change: type(change).__name__)
def test_each_pass_keeps_values_and_gradients(change: Any) -> None:
    for seed in range(100, 112):
        holds_at_random([change], seed)


@pytest.mark.slow
def test_passes_after_each_other_keep_values_and_gradients() -> None:
    assert sum(holds_at_random(PASSES * 2, seed) for seed in range(200, 215)) > 50


@pytest.mark.slow
@pytest.mark.parametrize("start", range(3000, 4000, 100))
def test_passes_keep_values_and_gradients_of_more_programs(start: int) -> None:
    for seed in range(start, start + 100):
        holds_at_random(PASSES * 2, seed)


@pytest.mark.parametrize("change", PASSES, ids=lambda change: type(change).__name__)
def test_a_second_run_finds_nothing_to_do(change: Any) -> None:
    for seed in range(100, 106):
        gm = graphwright.script(random_function(seed))
        change.run(gm)
        assert change.run(gm) == 0


def test_a_wrong_pass_would_be_caught() -> None:
    class TakesTheOtherSide(FoldConditions):
        def run(self, gm: Any) -> int:
            for graph in graph_of(gm).all_graphs():
                for node in graph.nodes:
                    if node.target is cond:
                        pred, true, false, operands = node.args
                        node.args = (pred, false, true, operands)
            return 1

    def caught(change: Any) -> bool:
        try:
            for seed in range(100, 104):
                holds_at_random([change], seed)
        except Exception:
            return True
        return False

    assert caught(TakesTheOtherSide())


class Modes(nn.Module):
    """Asks for its mode, and for that of a layer, in branches, in calls and in functions."""

    def __init__(self) -> None:
        super().__init__()
        self.drop, self.norm = nn.Dropout(0.5), nn.BatchNorm1d(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            x = x + torch.randn_like(x)
        x = nn.functional.dropout(x, 0.3, self.training)
        for _ in range(int(x.shape[0])):
            x = self.drop(x) * (2 if self.norm.training else 3)
        return self.norm(x)


class FrozenNorm(Modes):
    def train(self, mode: bool = True) -> FrozenNorm:
        super().train(mode)
        self.norm.eval()
        return self


class ChangesMode(Modes):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x * 2 if self.training else x
        self.training = False
        return x


def test_training_flags_become_literals() -> None:
    x = torch.rand(2, 3)
    model = Modes()
    gm = trace(model, (x,))
    assert SetTraining(False).run(gm) >= 3
    assert FoldConditions().run(gm) and RemoveNoOps(inference=True).run(gm) == 2
    assert SetTraining(False).run(gm) == FoldConditions().run(gm) == 0
    left = {str(node.target) for node in gm.graph.all_nodes()}
    assert not any(word in target for target in left for word in ("training", "randn", "drop"))
    assert torch.equal(gm(x), model.eval()(x))


@pytest.mark.parametrize(("training", "kept"), [(True, "* 3"), (False, "* 3"), (None, "* 3")])
def test_flags_are_what_the_module_makes_of_a_mode(training: bool | None, kept: str) -> None:
    model = FrozenNorm().train()
    gm = trace(model, (torch.rand(2, 3),))
    SetTraining(training).run(gm)
    FoldConditions().run(gm)
    nodes = list(gm.graph.all_nodes())
    assert kept in gm.code and not any(str(node.target).endswith("training") for node in nodes)
    assert any(node.target is torch.randn_like for node in nodes) is (training is not False)
    assert model.training and not model.norm.training, "the original is as it was"


def test_a_flag_that_the_program_writes_stays() -> None:
    gm = trace(ChangesMode().eval(), (torch.rand(2, 3),))
    assert SetTraining(False).run(gm) == 0
    assert gm.graph.find_nodes(op="get_attr", target="training")
