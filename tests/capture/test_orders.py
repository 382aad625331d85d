"""What is ordered by data, and lists as long as a run makes them: one capture gives what eager gives."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.capture.order_programs import INPUTS, ORDERS
from tests.capture.test_loops import check, interpreted, name_of, outcome

from graphwright import symbolic_trace, trace


@pytest.mark.sampled(4)
@pytest.mark.parametrize("program", ORDERS, ids=lambda program: name_of([program]))
def test_one_capture_orders_as_eager_does(program: Any) -> None:
    gm = trace(program, INPUTS[0])
    gm.graph.lint()
    assert gm.guards == []
    assert gm.report.coverage == 1.0
    for x in INPUTS:
        expected = outcome(program, x)
        check(outcome(gm, x), expected, gm.code)
        check(outcome(interpreted(gm), x)[:2], expected[:2], gm.graph)


@pytest.mark.parametrize("program", ORDERS, ids=lambda program: name_of([program]))
def test_symbolic_tracing_orders_as_eager_does(program: Any) -> None:
    gm = symbolic_trace(program)
    gm.graph.lint()
    for x in INPUTS:
        check(outcome(gm, x), outcome(program, x), gm.code)


def classes(i: torch.Tensor, count: int) -> torch.Tensor:
    return torch.nn.functional.one_hot(i, max(i.max() + 1, count))[..., :count] * torch.ones(count)


@pytest.mark.parametrize("largest", [3, 20])
def test_a_size_made_of_the_larger_of_data_and_a_number_is_that_of_the_example(largest: int) -> None:
    gm = trace(classes, (torch.tensor([0, largest]), 8))
    for example in ((torch.tensor([0, 3]), 8), (torch.tensor([1, 20, 2]), 8), (torch.tensor([2]), 5)):
        assert torch.equal(gm(*example), classes(*example))
