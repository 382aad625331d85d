"""What is ordered by data, and lists as long as a run makes them: one capture gives what eager gives."""

from __future__ import annotations

from typing import Any

import pytest
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
