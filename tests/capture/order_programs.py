"""Programs that order values which only a run knows, and lists and tuples of which only a run knows the length."""

from __future__ import annotations

import operator
from typing import Any

import torch
from tests.capture.loop_programs import ROWS
from torch import nn

# ---- orders


def beams(x: torch.Tensor) -> Any:
    found: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
    for row in x:
        longer = []
        for path, score in found:
            values = row
            if path:
                values = values + 0.5 * path[-1]
            best, places = values.topk(2)
            longer += [(path + (int(k),), score + float(v.detach())) for v, k in zip(best, places, strict=True)]
        found = sorted(longer, key=lambda beam: -beam[1])[:3]
    return torch.tensor(found[0][0]), found[0][1], len(found)


def best_first(x: torch.Tensor) -> Any:
    return torch.stack(sorted(x, key=lambda row: row.sum(), reverse=True))


def of_a_known_length(x: torch.Tensor) -> Any:
    parts = [x[0] * 2, x.sum(0), x[-1] - 1]
    low, middle, high = sorted(parts, key=lambda part: part.max())
    return low - high * middle


def numbers_in_order(x: torch.Tensor) -> Any:
    return sorted(x.detach().sum(1).tolist()), sorted([float(x.detach().max()), float(x.detach()[0, 0])])


def numbers_of_a_tensor(x: torch.Tensor) -> Any:
    values = x.detach().sum(1).tolist()
    return max(values), min(values), sum(values), len(values), values[0]


def rows_by_number(x: torch.Tensor) -> Any:
    total = x[0] * 0
    for i, n in enumerate(x.detach()[:, 0].abs().long().tolist()):
        total = total + x[i] * n
    return total


def largest(x: torch.Tensor) -> Any:
    rows = [row * 2 for row in x]
    row = max(rows, key=lambda row: row[0] * row[1])
    return row, min(rows, key=torch.sum), max(x.sum(1)), min(x[0, 0], x[0, 1])


def largest_pair(x: torch.Tensor) -> Any:
    pairs = []
    for i, row in enumerate(x):
        pairs.append((row.sum(), i))
    value, place = max(pairs, key=operator.itemgetter(0))
    return x[place] * value


def the_key_uses_what_is_around(x: torch.Tensor) -> Any:
    scale = x.mean(0)
    rows = sorted(x, key=lambda row: (row * scale).sum())
    return rows[0] - rows[-1]


def the_key_has_statements(x: torch.Tensor) -> Any:
    def key(row: torch.Tensor) -> torch.Tensor:
        if row.sum() > 0:
            return row.max()
        return row.min()

    return torch.cat(sorted(x, key=key))


def sorts_in_place(x: torch.Tensor) -> Any:
    rows = []
    for row in x:
        rows.append(row * 3)
    rows.sort(key=lambda row: row[1])
    rows.reverse()
    return torch.stack(rows)


def in_a_loop(x: torch.Tensor) -> Any:
    best = [x[0] * 0]
    for row in x:
        best = sorted(best + [row], key=lambda row: -row.sum())[:2]
    return torch.stack(best).sum(0)


def known_keys(x: torch.Tensor) -> Any:
    named = [("b", x * 2), ("a", x + 1)]
    return [value for _, value in sorted(named, key=lambda pair: pair[0])]


# ---- lists and tuples


def a_tuple_grows(x: torch.Tensor) -> Any:
    rows: tuple[torch.Tensor, ...] = ()
    for row in x:
        rows = rows + (row * 2,)
    return torch.stack(rows), len(rows)


def a_tuple_grows_at_times(x: torch.Tensor) -> Any:
    rows: tuple[torch.Tensor, ...] = (x[0],)
    for row in x:
        if row.sum() > 0:
            rows += (row,)
    return torch.cat(rows), rows[-1]


def tuple_of_a_list(x: torch.Tensor) -> Any:
    rows = []
    for row in x:
        rows.append(row * 2)
    return torch.cat(tuple(rows)), tuple(rows)


def shrinks(x: torch.Tensor) -> Any:
    waiting = [row * 1.5 for row in x]
    total = x[0] * 0
    while waiting:
        row = waiting.pop()
        total = total * 0.5 + row
    return total


def a_stack_of_work(x: torch.Tensor) -> Any:
    waiting = [(x[0], 0)]
    total = x[0] * 0
    while waiting:
        row, depth = waiting.pop()
        total = total + row
        if depth < 3 and row.sum() > 1:
            waiting.append((row * 0.5, depth + 1))
            waiting.append((row - 1, depth + 1))
    return total


def extends(x: torch.Tensor) -> Any:
    out = []
    for row in x:
        out += [value * 2 for value in row]
        out.extend([row.sum()])
    return torch.stack(out)


def pieces(x: torch.Tensor) -> Any:
    weights = [x.sum(), x.mean(), x.max()]
    total = x.sum() * 0
    for piece, weight in zip(x.unbind(0), reversed(weights), strict=False):
        total = total + piece.sum() * weight
    return total, torch.stack(x.unbind(1)).sum()


def numbers_of_a_matrix(x: torch.Tensor) -> Any:
    total = 0.0
    for row in x.detach().tolist():
        for value in row:
            total = total + value
    return total


def two_ways(x: torch.Tensor) -> Any:
    out = []
    for row in x:
        if row[0] > 0:
            out = out + [row]
        else:
            out = out[:1]
    return torch.stack(out + [x[0]]).sum(0)


class BeamSearch(nn.Module):
    """Beams as lists of tuples, for each sequence of a batch."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.scores = nn.Linear(2, 5)
        self.transition = nn.Parameter(torch.randn(5, 5))

    def forward(self, x: torch.Tensor) -> Any:
        logp = self.scores(x).log_softmax(-1)
        found = []
        for b in range(2):
            beams: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
            for t in range(x.shape[0]):
                longer = []
                for path, score in beams:
                    p = logp[t] * (b + 1)
                    if path:
                        p = p + self.transition[path[-1]]
                    values, places = p.topk(2)
                    longer += [
                        (path + (int(k),), score + float(q.detach())) for q, k in zip(values, places, strict=True)
                    ]
                beams = sorted(longer, key=lambda beam: -beam[1])[:3]
            found.append(torch.tensor(beams[0][0]))
        return torch.stack(found)


ORDERS: list[Any] = [
    beams, best_first, of_a_known_length, numbers_in_order, numbers_of_a_tensor, rows_by_number, largest, largest_pair,
    the_key_uses_what_is_around, the_key_has_statements, sorts_in_place, in_a_loop, known_keys, a_tuple_grows,
    a_tuple_grows_at_times, tuple_of_a_list, shrinks, a_stack_of_work, extends, pieces, numbers_of_a_matrix, two_ways,
    BeamSearch(),
]  # fmt: skip
INPUTS = ROWS
