"""Calls that do the same are written once, and become what they would be if each was written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import nn

import graphwright
from graphwright.hierarchy import writing
from graphwright.hierarchy.sketches import Sketches
from graphwright.runtime import entry_points_of


def texts(nested: nn.Module) -> tuple[dict[str, str], list[int]]:
    """The code of each module, and which of them share a graph."""
    codes = {
        path: module.code for path, module in nested.named_modules() if isinstance(module, graphwright.GraphModule)
    }
    graphs = [id(entry.graph) for module in nested.modules() for entry in entry_points_of(module).values()]
    return codes, [graphs.index(each) for each in graphs]


def both_ways(monkeypatch: pytest.MonkeyPatch, gm: nn.Module) -> tuple[int, int]:
    """Take a capture apart with sketches and without: how many graphs were written, each time."""
    levels: list[object] = []
    made: Any = writing._Level.__init__

    def noted(self: Any, *args: Any) -> None:
        levels.append(self)
        made(self, *args)

    monkeypatch.setattr(writing._Level, "__init__", noted)
    nested, count = graphwright.unflatten(gm), len(levels)
    with monkeypatch.context() as patch:
        patch.setattr(Sketches, "of", lambda *args: None)
        plain = graphwright.unflatten(gm)
    assert texts(nested) == texts(plain)
    assert nested.meta.get("flat_calls") == plain.meta.get("flat_calls")
    return count, len(levels) - count


class Inner(nn.Module):
    def __init__(self, scale: float = 2.0) -> None:
        super().__init__()
        self.linear, self.scale = nn.Linear(4, 4), scale

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        hidden = self.linear(x).relu() * self.scale
        return x + hidden if mask is None else x + hidden * mask.view(x.shape[0], 1)


class Outer(nn.Module):
    def __init__(self, scale: float = 2.0) -> None:
        super().__init__()
        self.inner, self.norm = Inner(scale), nn.LayerNorm(4)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.norm(self.inner(x, mask))
        if x.sum() > 0:
            x = x * 2
        return x, x.mean(1)


class Stack(nn.Module):
    def __init__(self, blocks: Sequence[nn.Module], used: Callable[[int], bool] = lambda i: True) -> None:
        super().__init__()
        self.blocks, self.used = nn.ModuleList(blocks), used

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = x[:, 0] > 0
        total = x.sum(1)
        for i, block in enumerate(self.blocks):
            x, mean = block(x, mask)
            if self.used(i):
                total = total + mean
        return x + total.view(-1, 1)


def test_equal_layers_are_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    few, _ = both_ways(monkeypatch, graphwright.trace(Stack([Outer() for _ in range(3)]), torch.randn(3, 4)))
    many, one_by_one = both_ways(monkeypatch, graphwright.trace(Stack([Outer() for _ in range(9)]), torch.randn(3, 4)))
    assert few == many
    assert one_by_one > 2 * many


def shared() -> nn.Module:
    """A module that two blocks hold is in two places."""
    blocks = [Outer() for _ in range(4)]
    blocks[3].inner = blocks[0].inner
    return Stack(blocks)


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Inner() for _ in range(3)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(block(x), x[:, 0] > 0)
        return x


class Writing(Inner):
    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        self.count += 1
        return super().forward(x, mask) * self.count


class Sampled(Inner):
    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        with torch.no_grad():
            return super().forward(x, mask)


class Gives(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = self.linear(x).relu()
        return hidden, hidden.mean(1)


class GivesTwice(nn.Module):
    """Of two calls that do the same, one gives more, in some of the modules."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Gives(), Gives()

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.second(self.first(x)[0])


UNLIKE: dict[str, Callable[[], nn.Module]] = {
    "another number": lambda: Stack([Outer(2.0), Outer(3.0), Outer(2.0), Outer(3.0)]),
    "a result that only some give": lambda: Stack([Outer() for _ in range(4)], lambda i: i % 2 == 0),
    "a result that only some inside of some give": lambda: Stack(
        [GivesTwice() for _ in range(4)], lambda i: i in (0, 3)
    ),
    "a module in two places": shared,
    "two calls that need two graphs": Twice,
    "attributes that are written": lambda: nn.Sequential(*[Writing() for _ in range(4)]),
    "blocks of no_grad": lambda: nn.Sequential(*[Sampled() for _ in range(4)]),
    "a negative zero": lambda: Stack([Outer(0.0), Outer(-0.0), Outer(0.0)]),
}


@pytest.mark.parametrize("name", UNLIKE)
def test_what_differs_is_written_as_it_is(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = UNLIKE[name](), torch.randn(3, 4)
    gm = graphwright.trace(model, x)
    both_ways(monkeypatch, gm)
    for other in (x, torch.randn(5, 4)):
        fresh, nested = UNLIKE[name](), graphwright.unflatten(graphwright.trace(UNLIKE[name](), x))
        fresh.load_state_dict(model.state_dict())
        nested.load_state_dict(model.state_dict())
        assert torch.equal(nested(other), fresh(other))
