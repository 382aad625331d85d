"""Modules that a program calls and that are no part of the captured one: their loops and branches are captured, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from graphwright import symbolic_trace, trace

X = [torch.tensor([4.0, -3.0]), torch.tensor([0.2, 0.1]), torch.tensor([-9.0, 100.0])]


class Halves(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls, self.inner = 0, Shifts()

    def forward(self, x: Any) -> Any:
        while x.abs().max() > 0.5:
            x = x / 2
        return self.inner(x)


class Shifts(nn.Module):
    def forward(self, x: Any) -> Any:
        for row in x:
            if row > 0:
                x = x + row
        return x


class Hooked(Halves):
    def __init__(self) -> None:
        super().__init__()
        self.register_forward_hook(lambda module, args, result: result * 3)


class HoldsInList(nn.Module):
    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.held = [kind()]

    def forward(self, x: Any) -> Any:
        return self.held[0](x) + 1


OUTSIDE = Halves()


class NamesGlobal(nn.Module):
    def forward(self, x: Any) -> Any:
        return OUTSIDE(x) * OUTSIDE(x - 1)


PROGRAMS: list[Callable[[], nn.Module]] = [lambda: HoldsInList(Halves), lambda: HoldsInList(Hooked), NamesGlobal]


@pytest.mark.parametrize("door", [lambda model: trace(model, (X[0],)), symbolic_trace], ids=["trace", "symbolic"])
@pytest.mark.parametrize("make", PROGRAMS)
def test_their_loops_are_captured(make: Callable[[], nn.Module], door: Callable[[nn.Module], Any]) -> None:
    model = make()
    before = {id(module): dict(module.__dict__) for module in (OUTSIDE, OUTSIDE.inner)}
    gm = door(model)
    assert "while" in gm.code and "for row in" in gm.code
    for x in X:
        assert torch.equal(gm(x), model(x))
    assert all(module.__dict__ == before[id(module)] for module in (OUTSIDE, OUTSIDE.inner))


class Remembers(nn.Module):
    def forward(self, x: Any) -> Any:
        self.last = x * 2 if x.sum() > 0 else x
        return self.last + 1


@pytest.mark.parametrize("door", [lambda model: trace(model, (X[0],)), symbolic_trace], ids=["trace", "symbolic"])
def test_what_they_keep_is_there_after_the_call(door: Callable[[Any], Any]) -> None:
    module = Remembers()

    def program(x: Any) -> Any:
        return module(x) + module.last

    gm = door(program)
    for x in X:
        assert torch.equal(gm(x), program(x))


LAYER = nn.Linear(2, 2)


def test_a_function_given_to_symbolic_trace_reaches_layers() -> None:
    norm = nn.LayerNorm(2)

    def program(x: Any) -> Any:
        return norm(LAYER(x)).sum()

    gm = symbolic_trace(program)
    assert [node.target for node in gm.graph.nodes if node.op == "call_module"] == ["LAYER", "norm"]
    assert gm.LAYER is LAYER and torch.equal(gm(X[0]), program(X[0]))
