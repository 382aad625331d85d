"""Branches under symbolic tracing: written into the graph, without example values."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
import torch
from tests.capture.test_branches import INPUTS, PROGRAMS, same
from tests.capture.test_branches import outcome as branch_outcome
from tests.capture.test_random_branches import INPUTS as GRID
from tests.capture.test_random_branches import outcome, random_module
from torch import nn

from graphwright import GraphModule, Interpreter, TraceError, Tracer, TracerWarning, symbolic_trace


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_every_path_of_one_capture_equals_eager(program: Any) -> None:
    gm = symbolic_trace(program)
    gm.graph.lint()
    for x in INPUTS:
        expected = branch_outcome(program, x)
        same(branch_outcome(gm, x), expected)
        interpreter = Interpreter(gm)
        interpreter.extra_traceback = False
        same(branch_outcome(interpreter.run, x), expected)


def check(seed: int) -> None:
    module, source = random_module(seed)
    try:
        gm = symbolic_trace(module)
    except ValueError:  # the program raises whatever it is given
        for x in GRID:
            with pytest.raises(ValueError):
                module(x)
        return
    gm.graph.lint()
    for x, flag in itertools.product(GRID, (True, False)):
        expected, found = outcome(module, x, flag), outcome(gm, x, flag)
        torch.testing.assert_close(found, expected, rtol=0, atol=0, msg=lambda text: f"{text}\n{source}\n{gm.code}")


@pytest.mark.parametrize("seed", range(15))
def test_random_programs_equal_eager_on_every_path(seed: int) -> None:
    check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(15, 300))
def test_more_random_programs(seed: int) -> None:
    check(seed)


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(4, 4), nn.Linear(4, 4)
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.mean() > 0:
            x = self.left(x) * self.weight
        else:
            x = self.right(x)
        return x + self.weight


def test_modules_and_parameters_in_branches() -> None:
    model = Gated()
    gm = symbolic_trace(model)
    assert {node.target for node in gm.graph.all_nodes() if node.op == "call_module"} == {"left", "right"}
    for x in (torch.ones(2, 4), -torch.ones(3, 4)):
        x.requires_grad_()
        torch.testing.assert_close(gm(x), model(x), rtol=0, atol=0)
        expected = torch.autograd.grad(model(x).sum(), (x, model.weight))
        torch.testing.assert_close(torch.autograd.grad(gm(x).sum(), (x, gm.weight)), expected, rtol=0, atol=0)


def test_the_code_reads_like_the_source() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0 and not y.max() < 0:
            z = x + y
        elif x.shape[0] == 3:
            z = x - y
        else:
            raise ValueError(f"bad shape {x.shape[0]}")
        return z * 2

    lines = [line.strip() for line in symbolic_trace(program).code.splitlines() if "#" not in line]
    assert [line for line in lines if line] == [
        "def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:",
        "if x.sum() > 0 and not y.max() < 0:",
        "z = x + y",
        "elif x.shape[0] == 3:",
        "z = x - y",
        "else:",
        'raise ValueError(f"bad shape {x.shape[0]}")',
        "return z * 2",
    ]


def test_none_is_never_taken_for_a_tensor() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        bias = None if x.sum() > 0 else x + 1
        return x if bias is None else x + bias

    gm = symbolic_trace(program)
    for x in (torch.ones(2), -torch.ones(2)):
        assert torch.equal(gm(x), program(x))


def test_what_cannot_be_staged_is_refused_with_the_users_line() -> None:
    def program(x: torch.Tensor) -> Any:
        return {*x} if x.sum() > 0 else x

    with pytest.raises(TraceError, match="cannot be iterated") as error:
        symbolic_trace(program)
    assert "test_symbolic_branches.py" in str(error.value)


def test_contexts_of_grad_mode_are_kept() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            y = x * 2
        return y + x

    gm = symbolic_trace(program)
    x = torch.ones(2, requires_grad=True)
    (found,), (expected,) = torch.autograd.grad(gm(x).sum(), x), torch.autograd.grad(program(x).sum(), x)
    assert torch.equal(found, expected)


def test_a_variable_of_one_side_is_missed_where_it_is_used() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            extra = x + 1
        return x * extra

    gm = symbolic_trace(program)
    assert torch.equal(gm(torch.ones(3)), program(torch.ones(3)))
    with pytest.raises(UnboundLocalError, match="extra"):
        gm(-torch.ones(2))


def test_a_converted_function_draws_and_broadcasts_as_python_does() -> None:
    def program(x: torch.Tensor) -> Any:
        if x.sum() > 0:
            x = x + 1
        return x * random.random(), torch.broadcast_shapes((2, 3), (3,))

    random.seed(0)
    with pytest.warns(TracerWarning, match=r"random\(\) was read: its value is the capture's"):
        gm = symbolic_trace(program)
    random.seed(0)
    (found, shape), (expected, _) = gm(torch.ones(2)), program(torch.ones(2))
    assert torch.equal(found, expected) and shape == (2, 3)


def test_staging_can_be_switched_off_and_a_tracer_may_answer_itself() -> None:
    def program(x: Any) -> Any:
        return 1 if x > 0 else 2

    with pytest.raises(TraceError, match="cannot be used as inputs to control flow"):
        symbolic_trace(program, control_flow="error")

    class AlwaysTrue(Tracer):
        def to_bool(self, obj: Any) -> bool:
            return True

    tracer = AlwaysTrue()
    assert GraphModule(tracer.root, tracer.trace(program))(-1) == 1


def test_the_module_is_left_as_it_was() -> None:
    model = Gated()
    before = {name: dict(vars(module)) for name, module in model.named_modules()}
    code = Gated.forward.__code__
    symbolic_trace(model)
    assert Gated.forward.__code__ is code
    assert {name: dict(vars(module)) for name, module in model.named_modules()} == before


def with_arguments(x: torch.Tensor, *others: Any) -> torch.Tensor:
    if x.requires_grad:
        return x
    return x * 2


def with_keywords(x: torch.Tensor, **others: Any) -> torch.Tensor:
    return x * 2 if x.sum() > 0 else x


@pytest.mark.parametrize("program", [with_arguments, with_keywords])
def test_programs_that_take_any_number_of_arguments(program: Any) -> None:
    gm = symbolic_trace(program)
    for x in (torch.ones(2), -torch.ones(2), torch.ones(2).requires_grad_()):
        assert torch.equal(gm(x), program(x))
