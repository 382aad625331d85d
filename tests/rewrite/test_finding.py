"""What patterns find: every spelling of an operation, and nothing else."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import graphwright as gw
from graphwright import Lit, Var, maybe, mod, one_of, repeat, rewrite, rule, symbolic_trace
from graphwright.ops import is_region
from graphwright.rewrite import Any as AnyValue

Program = Callable[..., Any]


class Wrapped(nn.Module):
    """A module that calls another one on its input."""

    def __init__(self, *inner: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(inner)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class Norm(nn.LayerNorm):
    """A layer norm of another forward."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * 2


SPELLINGS = [
    pytest.param(lambda x: x.sum(1), lambda x: torch.sum(x, dim=1), id="a method for a function"),
    pytest.param(lambda x: torch.sum(x, dim=[1]), lambda x: x.sum(1), id="a list of one for a number"),
    pytest.param(lambda x: torch.sum(x, 1, keepdim=False), lambda x: x.sum(dim=1), id="a default that is given"),
    pytest.param(lambda x: x.relu(), lambda x: F.relu(x), id="a functional"),
    pytest.param(lambda x: torch.ops.aten.relu.default(x), lambda x: x.relu(), id="an operator of the dispatcher"),
    pytest.param(lambda x: x * x, lambda x: torch.mul(x, x), id="an operator of Python"),
    pytest.param(lambda x: x + x.neg(), lambda x: x.neg() + x, id="the order of a sum"),
    pytest.param(lambda x: 2 * x, lambda x: x * 2, id="the order of a product with a number"),
    pytest.param(lambda x: (x.neg() + 1) + x.exp(), lambda x: torch.exp(x) + (1 + -x), id="orders inside of orders"),
    pytest.param(lambda x: x - 1, lambda x: torch.sub(x, 1), id="a difference"),
    pytest.param(lambda x: torch.cat([x, x], 1), lambda x: torch.cat((x, x), dim=1), id="a tuple for a list"),
    pytest.param(lambda x: x[0, :2], lambda x: x[0, :2], id="an index"),
    pytest.param(Wrapped(nn.ReLU()), lambda x: F.relu(x), id="a module for a function"),
    pytest.param(Wrapped(nn.LeakyReLU(0.2)), lambda x: F.leaky_relu(x, 0.2), id="a module with an argument"),
    pytest.param(Wrapped(nn.Linear(2, 2)), lambda x: mod(nn.Linear)(x), id="the class of a module"),
    pytest.param(Wrapped(nn.Linear(2, 2)), lambda x, linear=mod(nn.Linear): linear(x), id="a module as a parameter"),
    pytest.param(Wrapped(nn.Linear(2, 2)), lambda x: mod(nn.Module)(x), id="any module"),
    pytest.param(Wrapped(nn.Conv1d(1, 1, 1)), lambda x: mod(nn.Conv2d, nn.Conv1d)(x), id="one of some classes"),
    pytest.param(lambda x: x * 3.0, lambda x, n=Lit(float): x * n, id="a literal of a type"),
    pytest.param(lambda x: x.sum(dim=1), lambda x: x.sum(dim=Lit(int)), id="a literal without a name"),
    pytest.param(lambda x: torch.add(x, x, alpha=2), lambda x, y: torch.add(x, y, alpha=Lit(int)), id="a number in C"),
    pytest.param(lambda x: F.layer_norm(x, (3,)), lambda x: F.layer_norm(x, gw.Any()), id="anything"),
    pytest.param(lambda x: x.exp(), lambda x: one_of(torch.relu, torch.exp)(x), id="one of some operations"),
    pytest.param(lambda x: x.exp() + 1, lambda x: maybe(torch.relu)(torch.exp(x)) + 1, id="nothing of what may be"),
    pytest.param(lambda x: x.exp().relu() + 1, lambda x: maybe(torch.relu)(torch.exp(x)) + 1, id="what may be"),
    pytest.param(lambda x: x.exp().relu().relu().relu(), lambda x: repeat(torch.relu, 3)(x.exp()), id="a chain"),
    pytest.param(lambda x: torch.relu(x.exp()), torch.relu(torch.exp(Var("x"))), id="an expression"),
    pytest.param(lambda x: 1 + x.exp()[0], Var("x").exp()[0] + 1, id="an expression of methods and operators"),
    pytest.param(lambda x: (x if x.sum() > 0 else -x) + 1, lambda y: y if y.sum() > 0 else -y, id="a branch"),
]


@pytest.mark.parametrize(("program", "pattern"), SPELLINGS)
def test_every_spelling_is_found(program: Any, pattern: Any) -> None:
    assert rewrite(symbolic_trace(program), [rule(pattern, lambda: 0.0)], fixpoint=False).count == 1


OTHERS = [
    pytest.param(lambda x: x.sum(1), lambda x: x.sum(0), id="another dimension"),
    pytest.param(lambda x: x.sum(1, keepdim=True), lambda x: x.sum(1), id="a default that is not taken"),
    pytest.param(lambda x: x * 2, lambda x: x * 2.0, id="a number of another type"),
    pytest.param(lambda x: x * 1, lambda x: x * True, id="a bool is no number"),
    pytest.param(lambda x: x - x.neg(), lambda x: x.neg() - x, id="a difference has an order"),
    pytest.param(lambda x: x.neg() + x.exp(), lambda x: x.neg() + x.neg(), id="one variable is one value"),
    pytest.param(lambda x: x * 3, lambda x, n=Lit(float): x * n, id="a literal of another type"),
    pytest.param(lambda x: x * x.exp(), lambda x, n=Lit(): x * n, id="a value is no literal"),
    pytest.param(Wrapped(nn.LeakyReLU(0.1)), lambda x: F.leaky_relu(x, 0.2), id="a module with another argument"),
    pytest.param(Wrapped(nn.Conv1d(1, 1, 1)), lambda x: mod(nn.Conv2d)(x), id="another class"),
    pytest.param(Wrapped(Norm(2)), lambda x: mod(nn.LayerNorm)(x), id="a subclass with a forward of its own"),
    pytest.param(lambda x: torch.cat([x, x, x]), lambda x: torch.cat([x, x]), id="a longer list"),
    pytest.param(lambda x: x.exp().relu(), lambda x: repeat(torch.relu, 2)(x.exp()), id="a shorter chain"),
    pytest.param(lambda x: x if x.sum() > 0 else -x, lambda y: y if y.sum() > 0 else y.exp(), id="another branch"),
    pytest.param(lambda x: x.clone().relu_(), lambda x: x.clone().abs_(), id="another write"),
    pytest.param(lambda x: x.relu(), lambda x: x.relu_(), id="no write where one is wanted"),
    pytest.param(lambda x: x.relu_() + x, lambda x: x.relu(), id="a write that others see"),
]


@pytest.mark.parametrize(("program", "pattern"), OTHERS)
def test_other_operations_are_not(program: Any, pattern: Any) -> None:
    gm = symbolic_trace(program)
    code = gm.code
    assert rewrite(gm, [rule(pattern, lambda: 0.0)]).count == 0
    assert gm.code == code


def test_a_module_with_hooks_is_not_its_class() -> None:
    model = Wrapped(nn.Linear(2, 2), nn.ReLU())
    model.layers[0].register_forward_hook(lambda module, args, output: output * 2)
    model.layers[1].register_forward_pre_hook(lambda module, args: None)
    gm = symbolic_trace(model)
    rules = [rule(lambda x: mod(nn.Linear)(x), lambda x: x), rule(lambda x: F.relu(x), lambda x: x)]
    assert rewrite(gm, rules).count == 0


def test_a_match_knows_what_was_found() -> None:
    seen = []

    def remember(match: Any) -> bool:
        seen.append(match)
        return False

    model = Wrapped(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 4), nn.Tanh())
    gm = symbolic_trace(model)

    def chain(x: Any) -> Any:
        return repeat(lambda y: one_of(torch.relu, torch.tanh, name="act")(mod(nn.Linear, "layers")(y)), 2, name="n")(x)

    rewrite(gm, [rule(chain, lambda x: x, where=remember)])
    (match,) = seen
    assert match.n == 2
    assert match.layers == [model.layers[2], model.layers[0]]
    assert match.act == [torch.tanh, torch.tanh]
    assert match.x.name == "x"
    assert match["x"] is match.x
    assert [node.name for node in match.nodes] == ["layers_0", "layers_1", "layers_2", "layers_3"]
    with pytest.raises(AttributeError, match="no variable 'y'; it has"):
        match.y


def test_words_in_a_chain_are_lists_too() -> None:
    seen = []

    def remember(match: Any) -> bool:
        seen.append((match.added, match.factor))
        return False

    def step(x: Any) -> Any:
        return one_of(lambda x: x + AnyValue("added"), lambda x: x * AnyValue("factor"))(x)

    def chain(x: Any) -> Any:
        return repeat(step)(x.exp())

    rewrite(symbolic_trace(lambda x: (x.exp() + 1) * 2 + 3), [rule(chain, lambda x: x, where=remember)], fixpoint=False)
    assert ([3, None, 1], [None, 2, None]) in seen


def test_conditions_see_shapes_and_types() -> None:
    gm = symbolic_trace(lambda x, y: x.exp() + y.exp())
    gw.passes.shape_prop.ShapeProp(gm).propagate(torch.ones(2), torch.ones(2, dtype=torch.float64))
    half = rule(lambda x: x.exp(), lambda x: x.sin(), where=lambda m: m.x.meta.dtype == torch.float64)
    assert rewrite(gm, [half]).count == 1
    assert [node.target for node in gm.graph.find_nodes(op="call_method", target="sin")] == ["sin"]
    with pytest.raises(gw.GraphwrightError, match="no example metadata"):
        rewrite(symbolic_trace(lambda x: x.exp()), [half])


def loop(x: torch.Tensor, n: int) -> torch.Tensor:
    for _ in range(n):
        x = torch.relu(x + x)
    return x


def test_the_bodies_of_branches_and_loops_are_rewritten() -> None:
    gm = gw.trace(loop, (torch.ones(2), 3))
    assert rewrite(gm, [rule(lambda x: x + x, lambda x: x * 2)]).count >= 1
    for x, n in [(torch.ones(2), 2), (-torch.ones(3), 0)]:
        torch.testing.assert_close(gm(x, n), loop(x, n))
    assert operator.add not in {node.target for node in gm.graph.all_nodes()}


def gated(x: torch.Tensor, limit: torch.Tensor) -> torch.Tensor:
    peak = x.abs().max()
    if peak > limit:
        x = x * (limit / peak)
    return x + 1


def settled(x: torch.Tensor, limit: torch.Tensor) -> torch.Tensor:
    while x.abs().max() > limit:
        x = x / 2
    return x + 1


def summed(x: torch.Tensor) -> torch.Tensor:
    total = x[0] * 0
    for row in x:
        total = total + row.exp()
    return total


def clipped(x: Any, peak: Any, limit: Any) -> Any:
    if peak > limit:
        return limit / peak * x
    return x


def halved(x: Any, limit: Any) -> Any:
    while torch.max(torch.abs(x)) > limit:
        x = torch.div(x, 2)
    return x


def added_up(x: Any, start: Any) -> Any:
    for row in x:
        start = start + torch.exp(row)
    return start


REGIONS = [
    pytest.param(gated, clipped, lambda x, peak, limit: x * (limit / peak).clamp(max=1.0), id="if"),
    pytest.param(settled, halved, lambda x, limit: x / 2 ** (x.abs().max() / limit).log2().ceil().clamp(0), id="while"),
    pytest.param(summed, added_up, lambda x, start: start + x.exp().sum(0), id="for"),
]  # fmt: skip


@pytest.mark.parametrize(("program", "pattern", "replacement"), REGIONS)
@pytest.mark.parametrize("door", ["trace", "symbolic_trace"])
def test_branches_and_loops_are_found_by_what_their_bodies_do(
    program: Any, pattern: Any, replacement: Any, door: str
) -> None:
    inputs = [
        (scale * torch.linspace(-1.0, 2.0, 6).view(3, 2), torch.tensor(1.5))[: program.__code__.co_argcount]
        for scale in (0.5, 1.0, 5.0)
    ]
    gm = gw.trace(program, inputs[0]) if door == "trace" else symbolic_trace(program)
    result = rewrite(gm, rule(pattern, replacement))
    assert result.count == 1
    assert not any(is_region(node) for node in gm.graph.all_nodes())
    for args in inputs:
        torch.testing.assert_close(gm(*args), program(*args))


def test_what_is_computed_inside_of_a_body_cannot_be_given_to_the_outside() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            return x.exp().neg()
        return x

    def pattern(x: Any, y: Any) -> Any:
        if x.sum() > 0:
            return y.neg()
        return x

    gm = symbolic_trace(program)
    inside = rule(pattern, lambda x, y: y)
    result = rewrite(gm, inside)
    assert result.count == 0
    assert "computed inside of the branch" in result.rules[inside].refused[0][1]
