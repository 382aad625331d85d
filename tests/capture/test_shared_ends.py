"""What both ways of a fork do in the end comes once, after it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import graphwright
from graphwright.ops import cond, enter_context, for_loop

X = torch.tensor([[0.3, 0.1], [0.2, 0.4], [0.5, 0.6], [0.1, 0.7]])


class Twice(nn.Module):
    """A program whose `middle` gives a tensor of one dimension or of two."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.drop = nn.Linear(2, 2), nn.Linear(2, 2), nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        if x.sum() > 0:
            y = y.reshape(-1)
        z = y.view(2, 2, -1)
        return torch.relu(self.drop(self.second(z)))


def captured(program: Any, *examples: torch.Tensor) -> Any:
    """The capture of a program, once it has given what the program gives on both ways."""
    gm = graphwright.trace(copy.deepcopy(program), examples)
    for sign in (1, -1):
        given = [sign * example for example in examples]
        torch.manual_seed(0)
        expected = program(*copy.deepcopy(given))
        torch.manual_seed(0)
        torch.testing.assert_close(gm(*copy.deepcopy(given)), expected, rtol=0, atol=0)
    return gm


def calls(gm: Any) -> list[Any]:
    return [node.target for node in gm.graph.all_nodes() if node.op != "placeholder"]


def test_layers_after_a_branch_are_there_once() -> None:
    gm = captured(Twice().train(), X)
    assert calls(gm).count("second") == 1
    (branch,) = gm.graph.find_nodes(op="call_function", target=cond)
    assert [len(body.find_nodes(op="call_method")) for body in branch.args[1:3]] == [2, 1]
    assert not gm.report.forks and [entry.text for entry in gm.report.regions] == ["cond on gt"]


def test_so_they_are_without_example_inputs() -> None:
    gm = graphwright.symbolic_trace(Twice().eval())
    assert calls(gm).count("second") == calls(gm).count("view") == 1
    torch.testing.assert_close(gm(X), graphwright.trace(gm, (X,))(X))


def test_gradients_are_those_of_both_ways() -> None:
    module = Twice().eval()
    gm = graphwright.trace(copy.deepcopy(module), (X,))
    for sign in (1, -1):
        for program in (module, gm):
            program.zero_grad()
            program(sign * X).sum().backward()
        for mine, its in zip(gm.parameters(), module.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, its.grad)


def rest_in_a_callee(x: torch.Tensor) -> torch.Tensor:
    def inner(x: torch.Tensor) -> torch.Tensor:
        y: Any = x
        if x.sum() > 0:
            y = x.flatten()
        z = y.view(2, -1)
        for row in x:
            z = z + row.sum()
        return z.sin()

    return inner(x) + inner(x * 2)


def test_the_rest_of_a_function_is_there_once_with_its_loops() -> None:
    gm = captured(rest_in_a_callee, X)
    assert calls(gm).count(for_loop) == calls(gm).count("sin") == 2


def unlike_arguments(x: torch.Tensor) -> torch.Tensor:
    flat = x.sum() > 0
    y = x.flatten() if flat else x
    return torch.add(y.view(2, -1), 1.0, alpha=2 if y.dim() == 1 else 3).neg().exp()


def zeros(x: torch.Tensor) -> torch.Tensor:
    y = x.flatten() if x.sum() > 0 else x
    return torch.full_like(y.view(2, -1), 0.0 if y.dim() == 1 else -0.0).reciprocal().neg()


def written(x: torch.Tensor) -> torch.Tensor:
    y = x.flatten() if x.sum() > 0 else x + 1
    y.add_(1)
    z = y.view(2, -1)
    z.mul_(2)
    return x + z.view(x.shape)


def crossed(x: torch.Tensor) -> torch.Tensor:
    a, b = x * 2, x * 3
    y: Any = x.flatten()
    if x.sum() > 0:
        a, b, y = b, a, x
    z = y.view(2, -1)
    return (a - b) * z.sum()


@pytest.mark.parametrize(
    ("program", "shared"),
    [(unlike_arguments, "exp"), (zeros, "neg"), (written, "mul_"), (crossed, "sum")],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_what_differs_stays_on_its_side(program: Callable[..., Any], shared: str) -> None:
    gm = captured(program, X)
    assert calls(gm).count(shared) == 1 + (shared == "sum")  # `crossed` takes a sum for its test, too


def as_written(x: torch.Tensor) -> Any:
    if x.sum() > 0:
        return (x * 2).relu(), 1
    return (x * 3).relu()


def test_sides_that_are_alike_in_the_source_stay_as_they_are() -> None:
    gm = captured(as_written, X)
    assert calls(gm).count("relu") == 2 and len(gm.report.forks) == 1


def several(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(2, 4)
    for each in (x, y, z):
        flat: Any = each
        if each.sum() > 0:
            flat = each.flatten()
        total = total + flat.view(2, -1)
    return total.cos()


def test_several_forks_in_a_row_are_branches_in_a_row() -> None:
    gm = graphwright.trace(several, (X, X, X))
    assert calls(gm).count(cond) == 3 and calls(gm).count("cos") == 1
    for number in range(8):
        given = [X if number & bit else -X for bit in (1, 2, 4)]
        torch.testing.assert_close(gm(*given), several(*given))


def test_so_it_is_when_the_program_is_captured_again() -> None:
    first = graphwright.trace(Twice().eval(), (X,))
    assert graphwright.trace(Twice().eval(), (X,)).code == first.code


class FirstCall(nn.Module):
    """Its first call makes a table, which is kept where the call ends."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.table = nn.Linear(2, 2), nn.Linear(2, 2), None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        if self.table is None:
            self.table = [torch.arange(2.0)]
        y = self.second(y + self.table[0])
        return y.relu().cos().sin().exp()


def test_what_the_first_call_makes_is_asked_for_where_it_matters() -> None:
    gm = graphwright.trace(FirstCall(), (X,))
    assert calls(gm).count("second") == 1 and not gm.report.forks
    assert gm.code.count("if is_none:") == 2
    module = FirstCall()
    module.load_state_dict(gm.state_dict())
    for _ in range(3):
        torch.testing.assert_close(gm(X), module(X))
    gm.table = module.table = [torch.full((2,), 7.0)]
    torch.testing.assert_close(gm(X), module(X))


def flag_written(x: torch.Tensor, flag: torch.Tensor) -> torch.Tensor:
    y: Any = x.flatten() if flag else x
    z = y.view(2, -1).sin().cos().exp().tanh()
    flag.logical_not_()
    z = z.relu() if y.dim() == 1 else z.neg()
    return z.sigmoid().sqrt()


def test_what_decides_is_asked_once() -> None:
    gm = graphwright.trace(flag_written, (X, torch.tensor(True)))
    assert calls(gm).count("sigmoid") == calls(gm).count("sin") == 1 and calls(gm).count(cond) == 2
    for truth in (True, False):
        torch.testing.assert_close(gm(X, torch.tensor(truth)), flag_written(X, torch.tensor(truth)))


def two_ways(x: torch.Tensor) -> torch.Tensor:
    y: Any = x.flatten() if x.sum() > 0 else x
    scale = torch.ones(y.shape[0]) if y.dim() == 1 else torch.zeros(3)
    z = y.view(2, -1).sin().cos().exp().tanh().neg()
    return z * scale.sum() if y.dim() == 1 else z - scale.mean()


def test_what_one_side_alone_has_is_no_value_of_the_branch() -> None:
    gm = captured(two_ways, X)
    assert calls(gm).count("sin") == 2


def two_contexts(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        context, y = torch.autocast("cpu", dtype=torch.bfloat16), x.flatten()
    else:
        context, y = torch.autocast("cpu", enabled=False), x
    with context:
        z = y.view(2, -1).sin().cos().exp().tanh()
        z = (z @ z.transpose(0, 1)).relu()
    return z.float().sigmoid()


def one_context(x: torch.Tensor) -> torch.Tensor:
    y: Any = x.flatten() if x.sum() > 0 else x
    z = y.view(2, -1).sin().cos().exp().tanh().neg()
    with torch.no_grad():
        z = z.relu() if y.dim() == 1 else z.exp()
    return z.sigmoid()


@pytest.mark.parametrize(("program", "entered"), [(two_contexts, 2), (one_context, 1)])
def test_what_a_with_encloses_stays_inside(program: Callable[..., Any], entered: int) -> None:
    gm = captured(program, X)
    assert calls(gm).count(enter_context) == gm.code.count("    with torch.") == entered
    assert calls(gm).count("sin") == entered and calls(gm).count("sigmoid") == entered
