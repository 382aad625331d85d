"""Loops that data and sizes decide: one capture goes every way that eager goes, with its values and gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.capture.loop_programs import CASES
from torch import nn
from torch.utils._pytree import tree_leaves

from graphwright import Interpreter, symbolic_trace, trace
from graphwright.ops import is_region


def outcome(program: Any, x: torch.Tensor) -> Any:
    """What a program gives, of what type, with gradients; or what it raises."""
    x = x.clone().requires_grad_()
    try:
        value = program(x)
    except (ValueError, AssertionError) as error:
        return type(error).__name__, error.args
    found = [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    parameters = list(program.parameters()) if isinstance(program, nn.Module) else []
    wanted = [x, *parameters]
    grads = torch.autograd.grad(sum(leaf.sum() for leaf in found), wanted, allow_unused=True) if found else ()
    leaves = [leaf.detach() if isinstance(leaf, torch.Tensor) else leaf for leaf in tree_leaves(value)]
    return type(value).__name__, leaves, grads


def check(found: Any, expected: Any, text: Any) -> None:
    assert found[0] == expected[0], text
    if expected[0] in ("ValueError", "AssertionError"):
        assert found == expected
    else:
        torch.testing.assert_close(found[1:], expected[1:], rtol=0, atol=0, msg=lambda why: f"{why}\n{text}")


def name_of(case: Any) -> str:
    return case[0].__name__ if hasattr(case[0], "__name__") else type(case[0]).__name__


def interpreted(gm: Any) -> Any:
    interpreter = Interpreter(gm)
    interpreter.extra_traceback = False
    return interpreter.run


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_one_capture_goes_every_way(case: Any) -> None:
    program, inputs = case
    gm = trace(program, inputs[0])
    gm.graph.lint()
    assert gm.guards == []
    assert any(is_region(node) for node in gm.graph.all_nodes())
    assert gm.report.coverage == 1.0
    for x in inputs:
        expected = outcome(program, x)
        check(outcome(gm, x), expected, gm.code)
        check(outcome(interpreted(gm), x)[:2], expected[:2], gm.graph)


# What takes values: None; and what is written in place to a tensor that symbolic tracing has computed itself.
VALUES = {"starts_with_none", "in_place"}


@pytest.mark.parametrize("case", [case for case in CASES if name_of(case) not in VALUES], ids=name_of)
def test_symbolic_tracing_goes_every_way_too(case: Any) -> None:
    program, inputs = case
    gm = symbolic_trace(program)
    gm.graph.lint()
    for x in inputs:
        check(outcome(gm, x), outcome(program, x), gm.code)
