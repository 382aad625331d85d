"""`torch.cond`, `torch.while_loop`, `map`, `scan` and the functions of symbolic numbers, through all three doors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._higher_order_ops import cond as cond_of_ops
from torch._higher_order_ops.map import map as map_over
from torch._higher_order_ops.scan import scan
from torch.utils._pytree import tree_leaves

import graphwright
from graphwright import GuardError, script, symbolic_trace, trace
from graphwright.ops.higher_order import switch as switch_of_ours


def by_data(x: Tensor) -> Any:
    return torch.cond(x.sum() > 0, lambda a: a + 1, lambda a: a - 1, (x,))


def by_size(x: Tensor) -> Any:
    return torch.cond(x.shape[0] > 2, lambda a: a + 1, lambda a: a - 1, (x,))


def nested(x: Tensor) -> Any:
    def inner(v: Tensor) -> Any:
        return torch.cond(v.mean() > 1, lambda q: (q * 2, q - 1), lambda q: (q * 3, q + 1), (v,))

    return torch.cond(x.sum() > 0, inner, lambda v: (v - 1, v * 4), (x,))


def closed_over(x: Tensor) -> Any:
    return torch.cond(pred=x.sum() > 0, true_fn=lambda: x.sin(), false_fn=lambda: x.cos())


def listed(x: Tensor) -> Any:
    return torch.cond(x.sum() > 0, lambda a, b: a * x + b, lambda a, b: a - b, [x + 1, x * 2])


def looped(x: Tensor) -> Any:
    return torch.while_loop(lambda i, a: i < a.shape[0], lambda i, a: (i + 1, a * 2), (torch.tensor(0), x))


def mapped(x: Tensor) -> Any:
    return map_over(lambda a, b: (a + b, a * 2), torch.stack([x, x * 2]), x)


def scanned(x: Tensor) -> Any:
    return scan(lambda c, a: (c + a, c * a), torch.zeros_like(x), torch.stack([x, x * 3]))


def scanned_along(x: Tensor) -> Any:
    return scan(lambda c, a: (c + a, c * a), torch.zeros(2), torch.stack([x, x * 3]), dim=1, reverse=True)


def numbers(x: Tensor) -> Any:
    n = x.shape[0]
    least = torch.sym_min(torch.sym_sum([n, 2]), torch.sym_max(n, 3))
    return x * least + torch.sym_float(n) + torch.sym_ite(n > 2, n, 7) + (1 if torch.sym_not(n == 3) else 2)


PROGRAMS = [by_data, by_size, nested, closed_over, listed, looped, mapped, scanned, scanned_along, numbers]
DOORS: list[Callable[[Any], Any]] = [lambda f: trace(f, (torch.ones(3),)), symbolic_trace, script]


def same(one: Any, other: Any) -> bool:
    return all(map(torch.equal, tree_leaves(one), tree_leaves(other)))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("program", PROGRAMS)
def test_all_three_doors_capture_the_python_that_it_stands_for(program: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    inputs = [torch.ones(3), -torch.ones(3), torch.randn(2), torch.randn(5)]
    captured = [door(program) for door in DOORS]
    graphwright.save(captured[0], tmp_path / "saved")
    captured.append(graphwright.load(tmp_path / "saved"))
    for x in inputs:
        wanted = program(x)
        for gm in captured:
            assert same(gm(x), wanted), gm.code


def test_a_condition_on_a_size_is_a_branch() -> None:
    gm = trace(by_size, (torch.ones(3),))
    assert gm.guards == []
    assert "if x.size(0) > 2:" in gm.code


switch: Any = getattr(torch._higher_order_ops, "switch", switch_of_ours)  # torch 2.15 has one


def test_a_switch_is_branches_on_its_index() -> None:
    def program(x: Tensor) -> Any:
        functions = (torch.sin, torch.cos, torch.neg)
        return [switch(x.sum().long() + i, functions, (x,)) for i in range(4)], switch(x.shape[0], functions, [x])

    for gm in (trace(program, (torch.ones(3),)), symbolic_trace(program)):
        for x in (torch.ones(3), -torch.ones(3), torch.ones(1)):
            assert same(gm(x), program(x))


class Repeats(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Any:
        def body(i: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
            return i + 1, torch.tanh(self.linear(h))

        return torch.while_loop(lambda i, h: i < x.shape[0], body, (torch.tensor(0), x))[1]


def test_modules_in_a_loop_are_nodes_and_have_gradients() -> None:
    model = Repeats()
    gm = trace(model, (torch.ones(3, 4),))
    assert "while" in gm.code and "self.linear(" in gm.code
    x = torch.randn(2, 4)
    wanted = torch.tanh(model.linear(torch.tanh(model.linear(x))))
    weight, other = (torch.autograd.grad(y.sum(), model.linear.weight) for y in (gm(x), wanted))
    torch.testing.assert_close(weight, other)


def test_slices_and_results_may_be_nested() -> None:
    def program(x: Tensor) -> Any:
        return map_over(lambda p, b: {"sum": p[0] + p[1]["y"] * b}, (x, {"y": x * 2}), x[0])

    for gm in (trace(program, (torch.ones(3, 2),)), symbolic_trace(program)):
        for n in (2, 5):
            x = torch.randn(n, 2)
            torch.testing.assert_close(gm(x)["sum"], x + x * 2 * x[0])


def test_a_name_of_another_module_leads_there_too() -> None:
    gm = trace(lambda x: cond_of_ops(x.sum() > 0, torch.sin, torch.cos, [x]), (torch.ones(2),))
    assert torch.equal(gm(-torch.ones(2)), torch.cos(-torch.ones(2)))


def test_sides_of_other_kinds_are_under_a_guard() -> None:
    gm = trace(lambda x: torch.cond(x.sum() > 0, lambda: {"a": x}, lambda: [x])["a"], (torch.ones(2),))
    assert torch.equal(gm(torch.ones(2)), torch.ones(2))
    with pytest.raises(GuardError, match="if pred:"):
        gm(-torch.ones(2))
