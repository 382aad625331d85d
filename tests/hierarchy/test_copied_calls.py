"""Calls of modules that are copies of others stay one node until the graphs of a nested capture are written.

Each program is captured with and without copies: the modules are the same, whether a copied call is a call of what the
original becomes, or had to be written out.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import graphwright
from graphwright import hierarchy
from graphwright.capture.typed import copied_calls, copy_budget, program, trace
from graphwright.capture.typed.copied_calls import Copying
from graphwright.hierarchy import copied_call
from graphwright.ir import Graph
from graphwright.runtime import entry_points_of, facts_of_modules

Counts = collections.Counter[str]


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counts:
    """How many copied calls there are in captures, and how many are written out; small modules are worth it here."""
    found: Counts = collections.Counter()
    one, out = Copying.as_one, copied_calls.write_out

    def as_one(*args: Any) -> Any:
        made = one(*args)
        found["one"] += made is not None
        return made

    def written(graph: Graph) -> Any:
        found["out"] += sum(copied_call(node) is not None for node in graph.nodes)
        return out(graph)

    monkeypatch.setattr(Copying, "as_one", as_one)
    for module in (program, trace):
        monkeypatch.setattr(module, "write_out", written)
    for limit in ("_LEAST", "_SMALLEST", "_MOST_HEARD", "_MOST_BETWEEN"):
        monkeypatch.setattr(copy_budget, limit, 0)
    return found


def told(nested: nn.Module) -> list[Any]:
    return [
        (name, entry, point.graph.python_code("self").src, facts_of_modules(point.graph))
        for name, module in nested.named_modules()
        for entry, point in entry_points_of(module).items()
    ]


def captured(model: nn.Module, *calls: tuple[Any, ...], **options: Any) -> graphwright.GraphModule:
    """A nested capture for the first of some calls, compared with the one without copies and with the model."""
    nested = graphwright.trace(model, calls[0], flat=False, **options)
    with graphwright.config.set(copy_layers=False):
        plain = graphwright.trace(model, calls[0], flat=False, **options)
    assert told(nested) == told(plain)
    assert nested.meta.get("flat_calls") == plain.meta.get("flat_calls")
    assert [str(guard) for guard in nested.guards] == [str(guard) for guard in plain.guards]
    assert not any(copied_call(node) for module in nested.modules() for point in entry_points_of(module).values()
                   for node in point.graph.all_nodes())  # fmt: skip
    for args in calls:
        torch.testing.assert_close(nested(*args), model(*args), rtol=0, atol=0)
    return nested


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> Any:
        return x + torch.relu(self.linear(self.norm(x)))


class Stack(nn.Module):
    def __init__(self, kind: Callable[[], nn.Module] = Block, count: int = 6) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([kind() for _ in range(count)])

    def forward(self, x: torch.Tensor) -> Any:
        for block in self.blocks:
            x = block(x)
        return x


def ones(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def test_the_work_of_a_copied_call_does_not_depend_on_what_is_in_it(
    counts: Counts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The graph that is taken apart has one node more for a copied call, and so have the graphs that come of it."""
    sizes, unflatten = [], hierarchy.unflatten_in_place

    def unflattened(gm: graphwright.GraphModule, write_out: Any) -> None:
        sizes.append(len(list(gm.graph.all_nodes())))
        unflatten(gm, write_out)

    monkeypatch.setattr(hierarchy, "unflatten_in_place", unflattened)

    class Long(Block):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(20):
                x = super().forward(x)
            return x

    for layers in (8, 16):
        nested = graphwright.trace(Stack(Long, layers), ones(2, 4), flat=False)
        assert len(nested.graph.nodes) == layers + 3
        assert len({id(block.graph) for block in nested.blocks}) == 1
    assert sizes == [2 * 80 + 6 + 3, 2 * 80 + 14 + 3]


class Pair(Block):
    """Gives two tensors, of which the last block's caller uses both, and the others' one."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.norm(x)
        return x + self.linear(y), y.exp()


class FirstOf(Stack):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x, _ = block(x)
        return x


class BothOfLast(Stack):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        for block in self.blocks:
            x, last = block(x)
        return x, last


class NoneOf(Stack):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            block(x)
        return x


@pytest.mark.parametrize("kind", [FirstOf, BothOfLast, NoneOf])
def test_what_others_use_of_a_copy_the_original_gives(kind: type[Stack], counts: Counts) -> None:
    captured(kind(Pair), (ones(2, 4),), (ones(5, 4),))
    assert counts["one"] == 4
    assert not counts["out"]


class Ranked(Block):
    """Asks for a rank that does not follow from the ranks of its arguments: it is checked where the value is made."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x).squeeze(1)
        return self.norm(x) + (1 if y.dim() == 2 else 2)


def test_what_is_checked_where_it_is_made_is_checked_in_each_copy(counts: Counts) -> None:
    gm = captured(Stack(Ranked), (ones(2, 4),))
    assert counts["one"] == 4
    assert not counts["out"]
    assert gm.blocks[5].code.count("expect(") == 1
    with pytest.raises(graphwright.GuardError):
        gm(ones(2, 3, 4))


class Asked(Block):
    """Asks for the rank of what it makes, which follows from that of its argument."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        return self.norm(x) + (1 if y.dim() == 2 else 2)


class Switching(Stack):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        total = x.sum()
        for i, block in enumerate(self.blocks):
            total = total + block(x if i < 3 else y).sum()
        return total


def test_what_a_copy_asks_of_its_arguments_is_guarded(counts: Counts) -> None:
    """The fourth block gets an argument that no block before it got."""
    gm = captured(Switching(Asked), (ones(2, 4), ones(2, 4)))
    assert counts["one"]
    for args in ((ones(2, 4), ones(2, 3, 4)), (ones(2, 3, 4), ones(2, 4))):
        with pytest.raises(graphwright.GuardError):
            gm(*args)


class Halving(Block):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(self.norm(x.float())).to(x.dtype)


class AsksLast(Stack):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = super().forward(x)
        return x * (2 if x.dtype == torch.float64 else 3)


def test_what_is_asked_of_the_result_of_a_copy_is_followed_through_all_of_them(counts: Counts) -> None:
    gm = captured(AsksLast(Halving), (ones(2, 4),))
    with pytest.raises(graphwright.GuardError):
        gm(ones(2, 4).double())


class Sized(Block):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, columns = x.shape
        return self.linear(self.norm(x)).view(rows * columns).reshape(rows, columns) + rows


class UsesSizes(Stack):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = super().forward(x)
        return x.reshape(x.shape[0] * x.shape[1]) * x.shape[0]


def test_sizes_that_are_asked_for_in_the_original_may_be_used_elsewhere(counts: Counts) -> None:
    captured(UsesSizes(Sized), (ones(2, 4),), (ones(3, 4),))
    assert counts["one"] == 4
    assert not counts["out"]


class Shared(Stack):
    """Calls each block twice."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(super().forward(x) * 2)


class Stacks(nn.Module):
    """Two stacks, of which the second is called on other sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Stack(count=4), Stack(count=4)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.first(x).sum(0) + self.second(y).sum(0)


class Outer(nn.Module):
    """Modules alike around the blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.stacks = nn.ModuleList([Stack(count=3) for _ in range(4)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for stack in self.stacks:
            x = stack(x) * 2
        return x


@pytest.mark.parametrize(
    ("model", "calls"),
    [
        (Shared, [(ones(2, 4),), (ones(3, 4),)]),
        (Stacks, [(ones(2, 4), ones(2, 4)), (ones(3, 4), ones(5, 4))]),
        (Outer, [(ones(2, 4),), (ones(3, 4),)]),
    ],
)
def test_copies_in_several_places(model: type[nn.Module], calls: list[tuple[Any, ...]], counts: Counts) -> None:
    captured(model(), *calls)
    assert counts["one"]
    assert not counts["out"]


class Forking(Stack):
    """Its two ends cannot be joined."""

    def forward(self, x: torch.Tensor) -> Any:
        x = super().forward(x)
        if x.sum() > 0:
            return x, x
        return x.exp()


def test_copies_before_a_fork_are_written_out(counts: Counts) -> None:
    captured(Forking(), (ones(2, 4),), (-ones(2, 4),), (ones(3, 4) + 9,), (ones(3, 4) - 9,))
    assert counts["one"]
    assert counts["out"]


class ForkingAfterChecks(Forking):
    """Its copies have checks in them."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Ranked() for _ in range(6)])


def test_checks_are_written_out_with_the_copies(counts: Counts) -> None:
    gm = captured(ForkingAfterChecks(), (ones(2, 4),), (-ones(2, 4),))
    assert counts["out"]
    with pytest.raises(graphwright.GuardError):
        gm(ones(2, 3, 4))


class Slotted(Block):
    """A class of which no captured one can be made."""

    def __call__(self, *args: Any) -> Any:
        return super().__call__(*args)


def test_copies_of_what_cannot_have_a_graph_are_written_out(counts: Counts) -> None:
    nested = captured(Stack(Slotted), (ones(2, 4),), (ones(3, 4),))
    assert nested.meta["flat_calls"].keys() >= {f"blocks.{i}" for i in range(6)}
    assert counts["out"] == counts["one"] == 4


def test_several_examples_and_checks_have_their_copies_written(counts: Counts) -> None:
    model, x = Stack(), ones(2, 4)
    nested = graphwright.trace(model, examples=[((x,), {}), ((ones(2, 2, 4),), {})], flat=False)
    assert torch.equal(nested(x), model(x))
    captured(model, (x,), check_inputs=[((ones(3, 4),), {})])
    assert not counts["one"]


def test_methods_have_copies_each(counts: Counts) -> None:
    class Two(Stack):
        def twice(self, x: torch.Tensor) -> torch.Tensor:
            return self.forward(x) * 2

    model, x = Two(), ones(2, 4)
    nested = graphwright.trace(model, methods={"forward": ((x,), {}), "twice": ((x,), {})}, flat=False)
    assert counts["one"] == 8
    assert torch.equal(nested.twice(x), model.twice(x))
    assert len({id(block.graph) for block in nested.blocks}) == 1
