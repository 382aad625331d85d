"""Pipelines: passes in order, the broken one named, and nothing left half done."""

from __future__ import annotations

import copy
import operator
from typing import Any

import pytest
import torch
from torch import nn

from graphwright import rewrite, rule, symbolic_trace
from graphwright.errors import PassError
from graphwright.passes import ChangeTrueDivToMulByInverse, MergeSubexpressions, Pipeline

X = torch.linspace(-2.0, 2.0, 8).view(2, 4)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.linear(x) + x * 2 + x * 2).neg().neg()


def double_negation(gm: nn.Module) -> int:
    return rewrite(gm, rule(lambda x: x.neg().neg(), lambda x: x)).count


def wrong_sum(gm: nn.Module) -> int:
    return rewrite(gm, rule(lambda x, y: x + y, lambda x, y: x - y)).count


def forgets_the_output(gm: Any) -> None:
    gm.graph.erase_node(gm.graph.output_node())


def reads_what_comes_later(gm: Any) -> None:
    first, *_, last = (node for node in gm.graph.nodes if node.op == "call_function")
    first.args = (last, last)


def fails(gm: nn.Module) -> None:
    raise IndexError("no such thing")


def test_passes_run_in_order_and_are_counted() -> None:
    gm = symbolic_trace(Net())
    result = Pipeline(MergeSubexpressions(), double_negation, inputs=[X], grads=True).run(gm)
    assert [(step.name, step.changes) for step in result.steps] == [("MergeSubexpressions", 1), ("double_negation", 1)]
    assert result.changes == 2
    assert "double_negation" in str(result)


def test_rounds_end_when_nothing_changes() -> None:
    gm = symbolic_trace(Net())
    result = Pipeline(double_negation, MergeSubexpressions(), repeat=10).run(gm)
    assert len(result.steps) == 4
    assert result.changes == 2


@pytest.mark.parametrize(
    ("culprit", "message"),
    [
        (wrong_sum, r"wrong_sum, pass 2 of 3, changed what the module computes"),
        (forgets_the_output, "forgets_the_output left a module that is not well formed"),
        (reads_what_comes_later, "reads_what_comes_later left a module that is not well formed"),
        (fails, "fails failed: IndexError: no such thing"),
    ],
)
def test_what_breaks_a_program_is_named_and_taken_back(culprit: Any, message: str) -> None:
    model = Net()
    gm = symbolic_trace(model)
    code = gm.code
    with pytest.raises(PassError, match=message):
        Pipeline(double_negation, culprit, MergeSubexpressions(), inputs=[X]).run(gm)
    assert gm.code == code
    assert torch.equal(gm(X), model(X))


def test_bisecting_leaves_the_module_alone() -> None:
    gm = symbolic_trace(Net())
    code = gm.code
    assert Pipeline(double_negation, wrong_sum, double_negation, inputs=[X]).bisect(gm) == "wrong_sum"
    assert Pipeline(double_negation, MergeSubexpressions(), inputs=[X]).bisect(gm) is None
    assert gm.code == code


def test_mistakes() -> None:
    with pytest.raises(PassError, match="3 is no pass"):
        Pipeline(3)
    with pytest.raises(PassError, match="MergeSubexpressions is a class of passes"):
        Pipeline(MergeSubexpressions)
    with pytest.raises(PassError, match="<lambda> gave a list"):
        Pipeline(lambda gm: []).run(symbolic_trace(Net()))
    with pytest.raises(PassError, match="on inputs only"):
        Pipeline(double_negation).bisect(symbolic_trace(Net()))


def test_a_module_that_is_broken_before_is_told_so() -> None:
    gm = symbolic_trace(lambda x: x + 1)
    (add,) = gm.graph.find_nodes(op="call_function", target=operator.add)
    add.prepend(gm.graph.output_node())
    with pytest.raises(PassError, match="the module, before any pass, is not well formed"):
        Pipeline(double_negation).run(gm)


def test_passes_that_give_the_module_back_are_counted_as_one_change() -> None:
    gm = symbolic_trace(lambda x: x / 4)
    result = Pipeline(ChangeTrueDivToMulByInverse(), ChangeTrueDivToMulByInverse()).run(gm)
    assert [step.changes for step in result.steps] == [1, 0]
    changed = Pipeline(lambda gm: double_negation(gm) and None).run(symbolic_trace(Net()))
    assert changed.changes == 1  # what gives nothing is judged by what it did, too
    with pytest.raises(PassError, match="<lambda> gave another module"):
        Pipeline(lambda gm: copy.deepcopy(gm)).run(gm)
