"""Branches and loops become torch's operators in torch.fx's modules, and those of Python again on the way back."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.fx
from tests.codegen.random_loops import random_function
from tests.interop.test_export import PROGRAMS, Kept, Smoothed, drawing, growing, listed, of_numbers, stacked
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from graphwright import GraphModule, GuardError, from_fx, to_fx, trace
from graphwright.errors import ExportError

OPERATORS = {torch.ops.higher_order.cond, torch.ops.higher_order.while_loop}


def same(one: Any, other: Any) -> None:
    leaves, others = pytree.tree_leaves(one), pytree.tree_leaves(other)
    assert [type(leaf) for leaf in leaves] == [type(leaf) for leaf in others]
    for a, b in zip(leaves, others, strict=True):
        torch.testing.assert_close(a, b)


def numbered(x: Tensor) -> Tensor:
    total = torch.zeros(3)
    for i, (one, other) in enumerate(zip(x, x * 2, strict=False)):
        total = total + one * i - other
        if total.sum() > 20:
            break
    return total


def over_views(x: Tensor) -> Tensor:
    for row in x:
        row.mul_(2)
    return x


class Noisy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.drop, self.factor = nn.Dropout(0.5), 0.5

    def forward(self, x: Tensor) -> tuple[Tensor, Any]:
        scale = 1.0
        while x.abs().sum() > 1:
            x = self.drop(x) * self.factor
            scale = scale * self.factor
        return x, scale


MORE = [growing, drawing, numbered, over_views, Noisy]
REFUSED = (Smoothed, stacked, of_numbers)


def inputs_of(program: Any) -> list[Tensor]:
    if program is growing:
        return [torch.arange(rows + 1) for rows in range(4)]
    return [torch.randn(rows, 3) * 2 for rows in (5, 2, 3, 4, 8, 1)]


def captured(program: Any, x: Tensor) -> GraphModule:
    torch.manual_seed(0)
    return trace(program().eval() if isinstance(program, type) else program, (x,))


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "program", [each for each in (*PROGRAMS, *MORE) if each not in REFUSED], ids=lambda program: program.__name__
)
def test_programs_do_there_what_they_did(program: Any) -> None:
    calls = inputs_of(program)
    gm = captured(program, calls[0])
    fx = to_fx(copy.deepcopy(gm), control_flow="hop")
    back = from_fx(copy.deepcopy(fx))
    others = [fx, copy.deepcopy(fx), torch.fx.Interpreter(copy.deepcopy(fx)).run, back]
    assert [*fx.state_dict()] == [*gm.state_dict()] == [*back.state_dict()]
    assert not OPERATORS & {node.target for node in back.graph.all_nodes()}
    assert len(back.report.regions) >= len(OPERATORS & {node.target for node in fx.graph.nodes})
    for number, x in enumerate(calls):
        results = []
        for one in (gm, *others):
            torch.manual_seed(number)
            given = x.clone()
            results.append((one(given), given))
        for result in results[1:]:
            same(result, results[0])


@pytest.mark.slow
@pytest.mark.sampled(7)
@pytest.mark.parametrize("has_effects", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_random_programs_are_right_or_refused(seed: int, has_effects: bool) -> None:
    gm = trace(random_function(seed, has_effects), (torch.randn(3, 3), 2))
    try:
        fx = to_fx(gm, control_flow="hop")
    except ExportError as error:
        # What else is refused is a loss.
        assert any(why in str(error) for why in ("is a NoneType before a loop", "gives None on one side alone"))  # noqa: PT017
        return
    for rows, n in ((3, 2), (1, 0), (4, 5), (2, 3)):
        x = torch.randn(rows, 3)
        results = []
        for one in (gm, fx, from_fx(fx)):
            torch.manual_seed(seed)
            given = x.clone()
            results.append((one(given, n), given))
        same(results[1], results[0])
        same(results[2], results[0])


class Branch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.cell = nn.Linear(3, 3), nn.GRUCell(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            return self.cell(self.linear(x), x)
        return x - self.linear.weight[0]


@pytest.mark.slow
def test_gradients_reach_what_bodies_read() -> None:
    model = Branch()
    fx = to_fx(trace(model, (torch.randn(2, 3),)), control_flow="hop")
    for x in (torch.ones(2, 3), -torch.ones(2, 3)):
        gradients = []
        for one in (model, fx):
            one.zero_grad()
            one(x).sum().backward()
            gradients.append([p.grad for p in one.parameters() if p.grad is not None and p.grad.abs().sum() > 0])
        assert len(gradients[0]) == len(gradients[1])
        for a, b in zip(*gradients, strict=True):
            torch.testing.assert_close(a, b)


def test_bodies_are_modules_as_torch_names_them() -> None:
    fx = to_fx(captured(Noisy, torch.randn(2, 3)), control_flow="hop")
    assert {name for name, _ in fx.named_children()} >= {"while_loop_cond_graph_0", "while_loop_body_graph_0"}
    assert all(isinstance(child, torch.fx.GraphModule) for name, child in fx.named_children() if "graph" in name)


@pytest.mark.slow
def test_the_mode_of_modules_in_bodies() -> None:
    x = torch.ones(40, 3)
    fx = copy.deepcopy(to_fx(captured(Noisy, x), control_flow="hop"))
    assert bool((fx(x)[0] != 0).all())
    with pytest.raises(GuardError, match="training mode"):
        fx.train()(x)
    fx = to_fx(captured(Noisy, x).train(), control_flow="hop")
    assert not bool((fx(x)[0] != 0).all())

    class Inner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.GRU(3, 3, 2, dropout=0.5, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            return self.rnn(x)[0] if x.sum() > 0 else x

    fx = to_fx(captured(Inner, x), control_flow="hop")
    with pytest.raises(GuardError, match="training mode"):
        fx.train()(x)


def test_what_has_an_effect_stays() -> None:
    def checked(x: Tensor) -> Tensor:
        if x.sum() > 0:
            torch._assert(x.max() < 3, "too large")
        return x * 2

    fx = to_fx(trace(checked, (torch.ones(2),)), control_flow="hop")
    fx.graph.eliminate_dead_code()
    fx.recompile()
    assert torch.equal(fx(torch.ones(2)), torch.full((2,), 2.0))
    with pytest.raises(AssertionError, match="too large"):
        fx(torch.full((2,), 4.0))
    assert "kept" not in str(from_fx(fx).graph)


def test_loops_of_the_result_are_those_of_programs_again() -> None:
    gm = trace(numbered, (torch.randn(4, 3),))
    fx = to_fx(gm, control_flow="hop")
    assert len(OPERATORS & {node.target for node in fx.graph.nodes}) == 1
    with pytest.raises(ExportError, match="have no while_loop"):
        to_fx(from_fx(fx))


def masked(x: Tensor) -> Tensor:
    mask = None if x.sum() > 9 else x * 2
    return added(x, mask)


def added(x: Tensor, mask: Tensor | None) -> Tensor:
    return x if mask is None else x + mask


@pytest.mark.parametrize(
    ("program", "message"),
    [
        pytest.param(masked, r"gives None on one side alone.*\n  at .*in masked: mask", id="what may be None"),
        pytest.param(listed, r"a body that is given a list.*\n  at .*in listed: while", id="a list"),
        pytest.param(Kept(), r"write no attributes: 'steps'", id="a number of a module"),
    ],
)
def test_what_the_operators_cannot_say_is_refused(program: Any, message: str) -> None:
    x = torch.ones(3, 2)
    with pytest.raises(ExportError, match=message):
        to_fx(trace(program, (x,)), control_flow="hop")


def limited(x: Tensor, limit=3.0) -> Tensor:  # type: ignore[no-untyped-def]
    peak = x.abs().max()
    if peak > limit:
        x = x * (limit / peak)
    return x


def test_an_input_that_is_a_number_by_default() -> None:
    fx = to_fx(trace(limited, (torch.ones(2),)), control_flow="hop")
    x = torch.full((2,), 9.0)
    same(fx(x), limited(x))
    same(fx(x, 2), limited(x, 2))
    with pytest.raises(GuardError, match="argument 'limit' is a number"):
        fx(x, torch.tensor(2.0))


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="control_flow is 'error' or 'hop', not 'cond'"):
        to_fx(trace(growing, (torch.ones(2),)), control_flow="cond")  # type: ignore[arg-type]
