"""Sizes that operations make equal are known to be equal, and no others: those are compared when the program runs."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from graphwright import GraphModule, GuardError, trace
from graphwright.ops import cond


def of_an_activation(x: Tensor, y: Tensor) -> Any:
    after = torch.relu(x).transpose(0, 1)
    return x.sum() if after.size(1) == x.size(0) else y


def of_a_view(x: Tensor, y: Tensor) -> Any:
    parts = x.view(x.size(0), x.size(1), 1, -1).permute(0, 2, 1, 3).reshape(-1, x.size(1))
    return x.sum() if parts.size(-1) != x.size(1) else parts + parts.shape[1] - x.shape[1]


class Projects(nn.Module):
    def __init__(self, hook: Callable[..., Any] | None = None) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(3, 4), nn.Linear(3, 4)
        if hook is not None:
            self.key.register_forward_hook(hook)

    def forward(self, x: Tensor, y: Tensor) -> Any:
        query, key = self.query(x), torch.dropout(self.key(x), 0.0, self.training)
        if query.size(0) != key.size(0):
            return query
        return query @ key.T


@pytest.mark.parametrize("program", [of_an_activation, of_a_view, Projects()])
def test_nothing_is_asked_where_sizes_are_the_same(program: Callable[..., Any]) -> None:
    gm = trace(program, (torch.ones(2, 3), torch.ones(2, 3)))
    assert not [guard for guard in gm.guards if guard.node is not None and "dimensions" not in guard.text]
    assert not gm.report.forks and not gm.graph.find_nodes(op="call_function", target=cond)
    agrees(gm, program)


def broadcast(x: Tensor, y: Tensor) -> Any:
    return (x + y).size(0) == x.size(0), (x + y).size(0) == y.size(0), torch.where(x > 0, x, y).size(1) == y.size(1)


def expanded(x: Tensor, y: Tensor) -> Any:
    return x[:1].expand(y.size(0), -1).size(0) == x.size(0), x.unsqueeze(0).expand(4, -1, -1).size(1) == x.size(0)


def sliced(x: Tensor, y: Tensor) -> Any:
    return x[1:].size(0) == x.size(0), x[:4].size(0) == x.size(0), x[:, :].size(1) == x.size(1)


def joined(x: Tensor, y: Tensor) -> Any:
    both = torch.cat([x, x])
    return both.size(0) == x.size(0), both.size(1) == x.size(1), torch.cat([x, x[:0]]).size(0) == x.size(0)


def reshaped_in_place(x: Tensor, y: Tensor) -> Any:
    x = x.clone()
    after = torch.relu(x)
    before = x.size(0)
    x.t_()
    return after.size(0) == x.size(0), after.size(0) == before, x.size(1) == before, torch.relu(x).size(0) == x.size(0)


def shrinking(x: Tensor, y: Tensor) -> Any:
    before, found = x, []
    while x.size(0) > 1:
        x = torch.relu(x)[1:]
        found.append(x.size(0) == before.size(0))
    return x, len(found)


def of_one_side(x: Tensor, y: Tensor) -> Any:
    z = torch.relu(x) if x.sum() > 0 else y
    return z.size(0) == x.size(0), (z.size(0) - x.size(0)) == 0


def shortened(module: nn.Module, args: Any, result: Tensor) -> Tensor:
    return result[:2]


@pytest.mark.parametrize(
    "program",
    [broadcast, expanded, sliced, joined, reshaped_in_place, shrinking, of_one_side, Projects(shortened)],
)
def test_sizes_that_only_look_the_same_are_compared(program: Callable[..., Any]) -> None:
    agrees(trace(program, (torch.ones(2, 3), torch.ones(2, 3))), program)


def agrees(gm: GraphModule, program: Callable[..., Any]) -> None:
    """Check a captured program against its original for many sizes."""
    for rows, others in itertools.product((1, 2, 4, 5), repeat=2):
        inputs = torch.randn(rows, 3), torch.randn(others, 3)
        try:
            expected = program(*inputs)
        except RuntimeError:
            with pytest.raises(RuntimeError):
                gm(*inputs)
        else:
            torch.testing.assert_close(gm(*inputs), expected)


# ---- what is known of a size by its place is known for tensors of that rank

OTHER_RANKS: dict[str, Callable[[Tensor], Any]] = {
    "from the end": lambda x: x.reshape(-1, x.size(-1)),
    "one": lambda x: x.reshape(-1, x.sum(-2, keepdim=True).size(1) * 2),
    "equal": lambda x: x.transpose(-1, -2).size(1) == x.size(2),
    "difference": lambda x: x * (x.transpose(-1, -2).size(1) - x.size(2)),
    "text": lambda x: x * float(f"{x.size(2)}{x.transpose(-1, -2).size(1)}"),
    "product in a text": lambda x: x * float(f"{2 * x.size(2)}{2 * x.transpose(-1, -2).size(1)}"),
}


@pytest.mark.parametrize("program", OTHER_RANKS.values(), ids=list(OTHER_RANKS))
def test_a_size_known_by_its_place_has_the_rank_guarded(program: Callable[..., Any]) -> None:
    gm = trace(program, (torch.ones(2, 6, 4),))
    torch.testing.assert_close(gm(torch.ones(3, 6, 4)), program(torch.ones(3, 6, 4)))
    with pytest.raises(GuardError, match="was a tensor of 3 dimensions"):
        gm(torch.ones(2, 2, 6, 4))


def test_a_shape_that_is_told_has_a_rank_of_its_own() -> None:
    def program(x: Tensor) -> Tensor:
        y = x.view(x.size(0), 1, -1, 4)
        return y * (y.size(1) + y.size(3))

    gm = trace(program, (torch.ones(2, 6, 4),))
    for shape in ((3, 8), (2, 3, 4), (2, 2, 2, 2)):
        torch.testing.assert_close(gm(torch.ones(shape)), program(torch.ones(shape)))


OPERATIONS: list[Callable[[Tensor, Tensor], Tensor]] = [
    lambda a, b: a + b,
    lambda a, b: a * b[:1],
    lambda a, b: torch.relu(a),
    lambda a, b: a.transpose(0, 1),
    lambda a, b: a.T.contiguous(),
    lambda a, b: torch.cat([a, b.view(-1, a.size(1))]) if a.size(1) == b.size(1) else a,
    lambda a, b: a[1:] if a.size(0) > 1 else b,
    lambda a, b: a[:, None].expand(-1, b.size(0), -1)[:, 0],
    lambda a, b: a.reshape(a.size(1), -1),
    lambda a, b: a.unsqueeze(0).softmax(-1)[0],
    lambda a, b: torch.where(a > 0, a, a[:1]),
    lambda a, b: a[:1].expand(b.size(0), a.size(1)),
]


def random_program(seed: int) -> Callable[[Tensor, Tensor], Any]:
    """Operations in a random order, and which of their sizes are the same."""
    chosen = random.Random(seed)
    steps = [(chosen.choice(OPERATIONS), chosen.random(), chosen.random()) for _ in range(6)]

    def program(x: Tensor, y: Tensor) -> Any:
        found, same = [x, y], []
        for operation, first, second in steps:
            a, b = found[int(first * len(found))], found[int(second * len(found))]
            found.append(operation(a, b))
        for a, b in zip(found, found[1:] + found[:1], strict=True):
            same += [a.size(0) == b.size(0), a.size(1) != b.size(1), a.size(0) <= b.size(1)]
        return same, found[-1]

    return program


@pytest.mark.sampled(10)
@pytest.mark.parametrize("seed", range(40))
def test_random_programs_compare_sizes_as_eager(seed: int) -> None:
    program = random_program(seed)
    for example in (torch.ones(2, 3), torch.ones(3, 3), torch.ones(1, 3)):
        try:
            program(example, torch.ones(2, 3))
        except RuntimeError:
            continue
        agrees(trace(program, (example, torch.ones(2, 3))), program)


def dropout(x: torch.Tensor) -> torch.Tensor:
    return x[:, :6]


def expand(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def matmul(x: torch.Tensor) -> torch.Tensor:
    return x * 3


@pytest.mark.parametrize("function", [dropout, expand, matmul])
def test_functions_that_are_named_like_operations_are_none(function: Any) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = function(x)
        return y + 1 if y.shape[-1] == x.shape[-1] else y * 2

    gm = trace(program, (torch.randn(2, 6),), leaf_functions=[function])
    for x in (torch.randn(2, 6), torch.randn(3, 8)):
        assert torch.equal(gm(x), program(x))


@pytest.mark.parametrize("name", ["expand", "transpose", "matmul", "getitem", "squeeze_", "unbind"])
def test_modules_that_are_named_like_operations_are_none(name: str) -> None:
    class Named(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.add_module(name, torch.nn.LSTM(4, 4) if name == "unbind" else torch.nn.Linear(4, 4))

        def forward(self, x: torch.Tensor) -> Any:
            return getattr(self, name)(x)[0] + x

    model, x = Named(), torch.randn(3, 4)
    gm = trace(model, (x,))
    assert torch.equal(gm(x), model(x))
