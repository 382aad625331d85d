"""Programs with loops that data and sizes decide, each with inputs that take every way through it."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from typing import Any, NamedTuple

import torch
from torch import nn

ROWS = [
    torch.tensor([[1.0, 2.0], [3.0, 4.0], [-5.0, 1.0]]),
    torch.tensor([[-1.0, 2.0], [0.5, -4.0]]),
    torch.tensor([[9.0, -2.0], [30.0, 4.0], [-5.0, 1.0], [2.0, 2.0], [-1.0, -1.0]]),
    torch.tensor([[0.25, 0.5]]),
]
VECTORS = [torch.tensor([1.0, 2.0, 3.0]), torch.tensor([-1.0, 40.0]), torch.tensor([0.0]), torch.full((7,), 5.0)]


# ---- while


def doubles(x: torch.Tensor) -> Any:
    count = 0
    while x.abs().sum() < 100 and count < 9:
        x = x * 2
        count += 1
    return x, count


def halves(x: torch.Tensor) -> torch.Tensor:
    n = x.size(0)
    while n > 1:
        n = n // 2
        x = x[:n] + x[n : 2 * n]
    return x


def while_true(x: torch.Tensor) -> Any:
    n = 0
    while True:
        x = x / 2
        n += 1
        if n > 10:
            return x, n
        if x.abs().max() < 0.1:
            break
    return x - 1, n


def while_else(x: torch.Tensor) -> torch.Tensor:
    n = 0
    while x.sum() < 50:
        x = x + 10
        n += 1
        if n == 4:
            break
    else:
        x = x * 100
    return x


def collatz(x: torch.Tensor) -> Any:
    n = int(x.abs().sum()) + 1
    steps = 0
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return x * steps


def walrus(x: torch.Tensor) -> torch.Tensor:
    while (total := x.abs().sum()) > 4:
        x = x / total * 3
    return x


def newton(x: torch.Tensor) -> torch.Tensor:
    root = x.abs() + 1
    while (root * root - x.abs()).abs().max() > 1e-3:
        root = (root + x.abs() / root) / 2
    return root


def uses_its_parameter_in_the_loop_alone(x: torch.Tensor) -> Any:
    n = 0
    while x.sum() > 1:
        x = x / 2
        n += 1
    return n * torch.ones(2, requires_grad=True)


def does_not_run(x: torch.Tensor) -> torch.Tensor:
    while x.sum() > 1e9:
        x = x - 1
    return x + 1


def chained(x: torch.Tensor) -> torch.Tensor:
    while -100 < x.sum() < 100 and not x.max() > 60:
        x = x * 3 + 1
    return x


# ---- for


def rows(x: torch.Tensor) -> torch.Tensor:
    total = x.new_zeros(x.shape[1:])
    for row in x:
        total = total + row * 2
    return total


def adds_up_from_zero(x: torch.Tensor) -> torch.Tensor:
    total: Any = 0
    for row in x:
        if row[0] < 0:
            continue
        total = total + row
    return x.sum() + total


def enumerated(x: torch.Tensor) -> Any:
    for i, row in enumerate(x):
        if row.sum() > 4:
            return i, row
    return -1, x[0]


def zipped(x: torch.Tensor) -> torch.Tensor:
    total = x.sum() * 0
    for a, b in zip(x, x.flip(0), strict=False):
        total = total + (a * b).sum()
    return total


def backwards(x: torch.Tensor) -> torch.Tensor:
    y = x[0]
    for i in reversed(range(x.size(0))):
        y = y * 0.5 + x[i]
    return y


def steps(x: torch.Tensor) -> torch.Tensor:
    y = x[0] * 0
    for i in range(1, x.size(0), 2):
        y = y + x[i] * i
    return y


def to_a_number_of_data(x: torch.Tensor) -> torch.Tensor:
    for i in range(int(x.abs().max()) % 7):
        x = x + i
    return x


def ends_early(x: torch.Tensor) -> torch.Tensor:
    for i in range(6):
        x = x + i
        if x.sum() > 20:
            break
    return x


def nested(x: torch.Tensor) -> torch.Tensor:
    total = x.sum() * 0
    for row in x:
        for value in row:
            if value < 0:
                continue
            if value > 8:
                break
            total = total + value
        if total > 9:
            break
    return total


def returns_from_inside(x: torch.Tensor) -> torch.Tensor:
    for row in x:
        for value in row:
            if value > 5:
                return value * 10
        x = x + 1
    return x.sum()


def else_of_a_loop(x: torch.Tensor) -> torch.Tensor:
    found = x[0]
    for row in x:
        if row.sum() < 0:
            found = row * 10
            break
    else:
        found = found - 1
    return found


def else_that_returns(x: torch.Tensor) -> torch.Tensor:
    y = x
    for row in x:
        y = y + row
        if y.sum() > 100:
            break
    else:
        return y * 2
    return y


def break_on_both_sides(x: torch.Tensor) -> Any:
    n = 0
    for row in x:
        if row[0] > row[1]:
            if row[0] > 8:
                break
            n += 1
        else:
            if row[1] > 3:
                break
            n += 10
        x = x * 0.5
    return x, n


def continue_on_both_sides(x: torch.Tensor) -> torch.Tensor:
    y = x[0]
    for row in x:
        if row.sum() > 0:
            y = y + 1
            if row[0] > 2:
                continue
        elif row[1] > 0:
            continue
        y = y * row
    return y


def starts_with_none(x: torch.Tensor) -> Any:
    state = None
    for row in x:
        if state is None:
            state = row
        else:
            state = state * 0.5 + row
    return state


def swaps(x: torch.Tensor) -> Any:
    a, b = x[0], x[0] * 2
    for row in x:
        a, b = b, a + row
    return a - b


def counts_three_ways(x: torch.Tensor) -> Any:
    positive, negative, largest = 0, 0, -1.5
    for row in x:
        if row.sum() > 0:
            positive += 1
        else:
            negative -= 1
        largest = max(largest, float(row.detach().max()))
    return x.sum() * positive + negative, largest


def done_flag(x: torch.Tensor) -> Any:
    i, done = 0, False
    while i < 10 and not done:
        x = x * 2
        i += 1
        done = bool(x.sum() > 50)
    return x, i


# ---- what a loop changes


def list_of_rows(x: torch.Tensor) -> torch.Tensor:
    out = []
    for i in range(x.size(0)):
        out.append(x[i] * i)
    return torch.stack(out)


def some_rows(x: torch.Tensor) -> torch.Tensor:
    out = []
    for row in x:
        if row.sum() > 2:
            out.append(row * 2)
    if len(out) == 0:
        return x[:0]
    return torch.stack(out)


def list_by_sum(x: torch.Tensor) -> Any:
    state, out = x[0] * 0, []
    for row in x:
        state = torch.tanh(row + state)
        out = out + [state]
    return torch.stack(out), out[-1], len(out)


def list_of_pairs(x: torch.Tensor) -> Any:
    pairs = []
    for i, row in enumerate(x):
        pairs.append((row, i))
    total: Any = 0
    for row, i in pairs:
        total = total + row * i
    return total


def list_that_starts_full(x: torch.Tensor) -> torch.Tensor:
    out = [x[0] * 100]
    for row in x:
        out.append(row + out[-1])
    return torch.cat(out)


def comprehension(x: torch.Tensor) -> torch.Tensor:
    return torch.stack([row * 2 + i for i, row in enumerate(x)])


def comprehension_with_a_condition(x: torch.Tensor) -> torch.Tensor:
    found = [row for row in x if row.sum() > 2]
    return torch.stack(found).sum(0) if found else x[0]


def comprehension_of_numbers(x: torch.Tensor) -> Any:
    sizes = [x.size(1) * i for i in range(x.size(0))]
    scales = [scale * 2 for scale in (1.0, 2.0)]
    return x * scales[0] + scales[1], sizes


def generators(x: torch.Tensor) -> Any:
    total = sum(row * 2 for row in x)
    longest = max(i * 2 for i in range(x.size(0)))
    return total + torch.stack(list(row for row in x)).sum(0), longest  # noqa: C400


def if_there_are_any(x: torch.Tensor) -> torch.Tensor:
    out = []
    for row in x:
        if row[0] < 0:
            out.append(row)
    if not out:
        return x * 2
    return torch.stack(out).sum(0)


def writes_items(x: torch.Tensor) -> torch.Tensor:
    y = torch.zeros_like(x)
    for i in range(x.size(0)):
        if x[i, 0] > 0:
            y[i] = x[i] * 2
        else:
            y[i, 1] = -1.0
    return y + x


def in_place(x: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(2)
    for row in x:
        total += row
        total *= 0.5
    return total + x.sum()


def grows_a_tensor(x: torch.Tensor) -> torch.Tensor:
    for _ in range(4):
        x = torch.cat([x, x[-1:] * 2])
        if x.sum() > 40:
            break
    return x


def fills_a_dict(x: torch.Tensor) -> Any:
    found = {"sum": x[0] * 0, "count": 0}
    for row in x:
        if row.sum() > 0:
            found["sum"] = found["sum"] + row
            found["count"] += 1
    return found["sum"] * 2, found["count"]


class State(NamedTuple):
    value: torch.Tensor
    steps: int


def named_tuple(x: torch.Tensor) -> Any:
    state = State(x[0], 0)
    for row in x:
        state = State(state.value * 0.5 + row, state.steps + 1)
    return state


@dataclasses.dataclass
class Record:
    total: torch.Tensor
    seen: int = 0


def record(x: torch.Tensor) -> Any:
    state = Record(x[0] * 0)
    for row in x:
        state = Record(state.total + row, state.seen + 1)
    return state.total * state.seen


def of_tuples(x: torch.Tensor) -> Any:
    state = (x[0], (x[0] * 2, 0))
    for row in x:
        a, (b, n) = state
        state = (b, (a + row, n + 1))
    return state[0] + state[1][0], state[1][1]


# ---- around and inside


def helper(x: torch.Tensor, limit: float) -> torch.Tensor:
    while x.sum() > limit:
        x = x - 3
    return x


def in_a_helper(x: torch.Tensor) -> torch.Tensor:
    return helper(x, 5.0) + helper(x * 2, limit=1.0)


def with_around(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        scale = x[0] * 0 + 1
        for row in x:
            scale = scale + row.abs()
    return x / scale


def with_inside(x: torch.Tensor) -> torch.Tensor:
    total = x.sum() * 0
    for row in x:
        with torch.no_grad():
            weight = row.abs().sum()
        total = total + (row * weight).sum()
    return total


def try_around(x: torch.Tensor) -> torch.Tensor:
    try:
        for row in x:
            x = x + row
    finally:
        x = x * 2
    return x


def raises_inside(x: torch.Tensor) -> torch.Tensor:
    for row in x:
        if row.sum() > 30:
            raise ValueError("too large")
        x = x + row
    return x


def asserts_inside(x: torch.Tensor) -> torch.Tensor:
    for row in x:
        assert row.sum() < 30, "too large"
        x = x - row
    return x


def closure(x: torch.Tensor) -> torch.Tensor:
    total = x.sum() * 0

    def add(value: torch.Tensor) -> None:
        nonlocal total
        total = total + value

    for row in x:
        if row.sum() > 0:
            add(row.sum())
        else:
            add(row[0] * 3)
    return total


def lambda_inside(x: torch.Tensor) -> torch.Tensor:
    scale = lambda v: v * 2 if v.sum() > 0 else v - 1  # noqa: E731
    y = x[0]
    for row in x:
        y = y + scale(row)
    return y


def recursion(x: torch.Tensor) -> torch.Tensor:
    return descend(x, 3)


def descend(x: torch.Tensor, depth: int) -> torch.Tensor:
    if depth == 0:
        return x
    y = descend(x * 0.5, depth - 1)
    for row in x:
        if row.sum() > 0:
            y = y + row
    return y


def matches(x: torch.Tensor) -> torch.Tensor:
    for mode in ("double", "keep", "shift"):
        match mode:
            case "double":
                while x.abs().sum() < 10:
                    x = x * 2 + 0.1
            case "keep":
                pass
            case other:
                x = x + len(other)
    return x


def of_static_length(x: torch.Tensor) -> torch.Tensor:
    out = []
    for scale in (1.0, 2.0, 3.0):
        if x.sum() > 0:
            out.append(x * scale)
        else:
            out.append(x - scale)
    return torch.stack(out)


def math_inside(x: torch.Tensor) -> Any:
    n = 0.0
    while n < math.sqrt(x.size(0)) * 3:
        n = n + math.exp(0.1)
        x = x + n
    return x, n


def with_contexts(x: torch.Tensor) -> torch.Tensor:
    for row in x:
        with contextlib.nullcontext():
            x = x * 0.5 + row
    return x


class Cells(nn.Module):
    """An LSTM cell over sequences of variable length."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.cell = nn.LSTMCell(2, 2)
        self.scale = nn.Parameter(torch.tensor([0.5, 2.0]))

    def forward(self, x: torch.Tensor) -> Any:
        h = torch.zeros(1, 2)
        c = torch.zeros(1, 2)
        out = []
        for step in x:
            h, c = self.cell(step[None] * self.scale, (h, c))
            if h.sum() > 0.6:
                break
            out.append(h)
        if not out:
            return h, c
        return torch.cat(out), c


class Keeps(nn.Module):
    """Methods, properties and `super()` in loops."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(2, 2)
        self.steps = 3

    @property
    def limit(self) -> float:
        return 20.0

    def step(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x)) + 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        while x.sum() < self.limit:
            x = x + self.step(x)
            for _ in range(self.steps):
                x = x + 0.5
        return x


class Derived(Keeps):
    def step(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 5:
            return x * 2
        return super().step(x)


def walrus_and_else(x: torch.Tensor) -> torch.Tensor:
    while (total := x.abs().sum()) > 4:
        x = x / total * 3
        if x.max() > 1.5:
            break
    else:
        x = x * 100
    return x


ON_ROWS = [
    rows, adds_up_from_zero, enumerated, zipped, backwards, steps, nested, returns_from_inside, else_of_a_loop,
    else_that_returns, break_on_both_sides, continue_on_both_sides, starts_with_none, swaps, counts_three_ways,
    list_of_rows, some_rows, list_by_sum, list_of_pairs, list_that_starts_full, if_there_are_any,
    comprehension, comprehension_with_a_condition, comprehension_of_numbers, generators, writes_items,
    in_place, grows_a_tensor, fills_a_dict, named_tuple, record, of_tuples, in_a_helper, with_around,
    with_inside, try_around,
    raises_inside, asserts_inside, closure, lambda_inside, recursion, with_contexts, Cells(), Keeps(), Derived(),
]  # fmt: skip
ON_VECTORS = [
    doubles, halves, while_true, while_else, collatz, walrus, newton, uses_its_parameter_in_the_loop_alone,
    does_not_run, chained, to_a_number_of_data,
    ends_early, done_flag, matches, of_static_length, math_inside, walrus_and_else,
]  # fmt: skip
CASES: list[tuple[Any, list[torch.Tensor]]] = [*((p, ROWS) for p in ON_ROWS), *((p, VECTORS) for p in ON_VECTORS)]
