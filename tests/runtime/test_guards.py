"""Guards: nodes that check what a capture took for granted, whichever way the graph runs."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.runtime.programs import Mode, graph_of
from torch import nn

from graphwright import Graph, GraphModule, Interpreter, Node, trace
from graphwright.errors import GuardError
from graphwright.runtime import expect, expect_tensors, expect_values, guards_of

HOLDS = [
    pytest.param(True, True, id="bool"),
    pytest.param(3, 3, id="int"),
    pytest.param(None, None, id="None"),
    pytest.param(math.nan, math.nan, id="the same nan"),
    pytest.param(torch.float32, torch.float32, id="dtype"),
    pytest.param(Mode.SUM, Mode.SUM, id="enum"),
]
FAILS = [
    pytest.param(False, True, id="bool"),
    pytest.param(4, 3, id="int"),
    pytest.param(0, None, id="None"),
    pytest.param(torch.float64, torch.float32, id="dtype"),
    pytest.param(Mode.MEAN, Mode.SUM, id="enum"),
]


@pytest.mark.parametrize(("value", "captured"), HOLDS)
def test_what_holds_passes(value: Any, captured: Any) -> None:
    expect(value, captured, "model.py:3: if n > 2:")
    expect_values("Model.forward", argument=(value, captured))


@pytest.mark.parametrize(("value", "captured"), FAILS)
def test_what_does_not_hold_raises(value: Any, captured: Any) -> None:
    with pytest.raises(GuardError):
        expect(value, captured, "model.py:3: if n > 2:")
    with pytest.raises(GuardError):
        expect_values("Model.forward", argument=(value, captured))


def test_values_of_arguments_differ_by_type() -> None:
    expect(1, True, "model.py:3: if n:")  # a condition, whose truth is what matters
    with pytest.raises(GuardError, match="argument 'flag' was True when the program was captured; now it is 1"):
        expect_values("Model.forward", flag=(1, True))


def test_messages_say_where_and_what_to_do() -> None:
    with pytest.raises(GuardError) as caught:
        expect(False, True, "model.py:3: if n > 2:")
    assert str(caught.value) == (
        "the program was captured where this was True; now it is False\n"
        "  at model.py:3: if n > 2:\n"
        "  fix: capture again with these inputs as the example"
    )
    with pytest.raises(GuardError) as caught:
        expect_values("Model.forward", mask=(torch.ones(2), None), causal=(True, True))
    assert str(caught.value) == (
        "argument 'mask' was None when the program was captured; now it is Tensor\n"
        "  at Model.forward\n"
        "  fix: capture again with an example that passes mask"
    )
    with pytest.raises(GuardError) as caught:
        expect_tensors("Model.forward", x=(torch.ones(2), torch.float32, 2))
    assert str(caught.value) == (
        "argument 'x' was a torch.float32 tensor of 2 dimensions when the program was captured; "
        "now it is a torch.float32 tensor of 1 dimension\n"
        "  at Model.forward\n"
        "  fix: capture again with an example like this, or with both: examples=[...]"
    )


@pytest.mark.parametrize(
    ("tensor", "holds"),
    [
        pytest.param(torch.ones(2, 3), True, id="same"),
        pytest.param(torch.ones(5, 0), True, id="other sizes"),
        pytest.param(torch.ones(2, 3, dtype=torch.float64), False, id="other dtype"),
        pytest.param(torch.ones(2, 3, 1), False, id="other rank"),
    ],
)
def test_tensors_are_held_to_dtype_and_rank(tensor: torch.Tensor, holds: bool) -> None:
    if holds:
        expect_tensors("Model.forward", x=(tensor, torch.float32, 2))
    else:
        with pytest.raises(GuardError):
            expect_tensors("Model.forward", x=(tensor, torch.float32, 2))


# ---- in graphs


def guarded() -> GraphModule:
    """x + 1 for two-dimensional x, captured with mask=None."""

    def build(graph: Graph, x: Node) -> Node:
        mask = graph.placeholder("mask", default_value=None)
        graph.call_function(expect_values, ("Model.forward",), {"mask": (mask, None)})
        graph.call_function(expect_tensors, ("Model.forward",), {"x": (x, torch.float32, 2)})
        size = graph.call_method("size", (x, 0))
        graph.call_function(
            expect, (graph.call_function(operator.gt, (size, 1)), True, "model.py:3: if x.shape[0] > 1:")
        )
        return graph.call_function(operator.add, (x, 1))

    return GraphModule(nn.Module(), graph_of(build))


RUNS: list[Any] = [
    pytest.param(lambda gm: gm, id="generated code"),
    pytest.param(lambda gm: Interpreter(gm).run, id="interpreter"),
]


@pytest.mark.parametrize("run", RUNS)
def test_a_graph_checks_its_guards_when_it_runs(run: Callable[[GraphModule], Callable[..., Any]]) -> None:
    call = run(guarded())
    assert torch.equal(call(torch.zeros(2, 3)), torch.ones(2, 3))
    assert torch.equal(call(torch.zeros(5, 1), None), torch.ones(5, 1))
    with pytest.raises(GuardError, match=r"now it is False\n  at model\.py:3: if x\.shape\[0\] > 1:"):
        call(torch.zeros(1, 3))
    with pytest.raises(GuardError, match="argument 'mask' was None"):
        call(torch.zeros(2, 3), torch.ones(3))
    with pytest.raises(GuardError, match=r"argument 'x' was a torch\.float32 tensor of 2 dimensions"):
        call(torch.zeros(3))


def test_guards_are_listed_in_order() -> None:
    gm = guarded()
    assert [str(guard) for guard in gm.guards] == [
        "Model.forward: mask is None",
        "Model.forward: x is a torch.float32 tensor of 2 dimensions",
        "model.py:3: if x.shape[0] > 1: [gt was True]",
    ]
    assert guards_of(gm.graph) == gm.guards
    assert gm.guards[-1].node.target is expect


def test_guards_are_not_dead_code() -> None:
    gm = guarded()
    gm.graph.eliminate_dead_code()
    assert len(gm.guards) == 3


def test_a_guard_is_erased_like_any_node() -> None:
    gm = guarded()
    gm.graph.erase_node(gm.guards[-1].node)
    gm.graph.eliminate_dead_code()
    assert torch.equal(gm(torch.zeros(1, 3)), torch.ones(1, 3))
    assert len(gm.guards) == 2
    assert gm.graph.find_nodes(op="call_method") == []


def test_what_an_attribute_was_asked_for_is_named() -> None:
    graph = Graph()
    asked = graph.call_function(hasattr, (graph.placeholder("x"), "scale"), name="is_there")
    graph.call_function(expect, (asked, False, "model.py:3"))
    graph.output(None)
    assert [guard.what for guard in guards_of(graph)] == ["hasattr(x, 'scale') was False"]


def test_a_dict_whose_key_is_a_word_of_ours_is_told_as_it_is() -> None:
    class Defaults(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.third = {"value": [1]}, {"tensor": []}, {"function": len}

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + len([*self.first, *self.second, *self.third])

    (guard,) = trace(Defaults(), (torch.ones(2),)).guards
    assert "self.first is {'value': [1]}; self.second is {'tensor': []}" in guard.what


def test_a_number_of_another_class_is_another_number() -> None:
    with pytest.raises(GuardError, match=r"captured where this was 2; now it is 2\.0"):
        expect(2.0, 2, "model.py:3: [x] * n")
