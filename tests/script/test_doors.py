"""Traced, scripted and symbolically traced programs call each other, functions and modules, in every direction."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.script.checking import assert_same
from torch import nn

from graphwright import GraphModule, load, save, script, symbolic_trace, trace

X = [torch.tensor([[1.0, -2.0, 3.0]]), torch.tensor([[-1.0, -2.0, 0.5], [0.1, 0.2, 0.3]])]
DOORS: dict[str, Callable[[Any], GraphModule]] = {
    "trace": lambda program: trace(program, (X[0],)),
    "script": script,
    "symbolic_trace": symbolic_trace,
}


class Gate(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x):
        if x.sum() > 0:
            return self.linear(x) * 2
        return x - 1


def halves(x):
    while x.abs().max() > 0.5:
        x = x / 2
    return x + x.shape[0]


class Calls(nn.Module):
    """Calls a module that is its submodule, under a condition of its own, twice."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.scale = inner, nn.Parameter(torch.ones(3))

    def forward(self, x):
        y = self.inner(x) * self.scale
        if y.sum() > 1:
            y = self.inner(-y)
        return y


class CallsFunction(nn.Module):
    """Calls something that is reached by a name, and is no submodule."""

    def __init__(self, inner: Callable[..., Any]) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.inner = [inner]

    def forward(self, x):
        return self.inner[0](self.linear(x)) + x


def calling(inner: Callable[..., Any]) -> Callable[..., Any]:
    def calls(x):
        y = inner(x)
        if y.sum() > 1:
            y = inner(-y)
        return y * 3

    return calls


def outcome(program: Any, x: torch.Tensor, parameters: list[nn.Parameter]) -> Any:
    x = x.clone().requires_grad_()
    value = program(x)
    wanted = [*parameters, x]
    given = torch.autograd.grad(value.sum(), wanted, allow_unused=True)
    return value, list(given)


def programs(kind: str, door: Callable[[Any], Any]) -> tuple[Any, Any, list[nn.Parameter]]:
    """A program that calls another one as it is, the same that calls what a door made of that, and the parameters."""
    torch.manual_seed(0)
    if kind == "function in function":
        return calling(halves), calling(door(halves)), []
    gate = Gate()
    shared = [*gate.parameters()]
    if kind == "module in function":
        return calling(gate), calling(door(gate)), shared
    if kind == "module in module":
        plain, mixed = Calls(gate), Calls(door(gate))
        mixed.scale = plain.scale
        return plain, mixed, [*shared, plain.scale]
    plain = CallsFunction(halves)
    other = CallsFunction(door(halves))
    other.linear = plain.linear
    return plain, other, [*plain.linear.parameters()]


KINDS = ["function in function", "module in function", "module in module", "function in module"]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("inner", DOORS)
@pytest.mark.parametrize("outer", DOORS)
def test_each_takes_what_each_made(outer: str, inner: str, kind: str, tmp_path: Any) -> None:
    plain, mixed, parameters = programs(kind, DOORS[inner])
    gm = DOORS[outer](mixed)
    for x in X:
        wanted = outcome(plain, x, parameters)
        assert_same(outcome(mixed, x, parameters), wanted)
        assert_same(outcome(gm, x, parameters), wanted)
    again = DOORS[outer](copy.deepcopy(gm))  # what was made is captured again
    save(gm, tmp_path / "program.gw")
    loaded = load(tmp_path / "program.gw", allow=[__name__])
    for x in X:
        assert_same(again(x), plain(x))
        assert_same(loaded(x), plain(x))
