"""Programs with branches, loops, lists, None and sizes that only a run knows, each with inputs of several sizes.

The first input of each is what it is exported with; the others have other sizes and take other ways through it.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["PROGRAMS"]

Inputs = tuple[tuple[Any, ...], ...]
PROGRAMS: dict[str, tuple[type[nn.Module], Callable[[], Inputs]]] = {}


def program(make: Callable[[], Inputs]) -> Callable[[type[nn.Module]], type[nn.Module]]:
    """Add a program to the table; `make` gives its inputs."""

    def add(kind: type[nn.Module]) -> type[nn.Module]:
        PROGRAMS[kind.__name__] = kind, make
        return kind

    return add


def rows(*counts: int) -> Callable[[], Inputs]:
    """Matrices of so many rows of 8."""
    return lambda: tuple((torch.randn(count, 8),) for count in counts)


def scaled(*factors: float) -> Callable[[], Inputs]:
    """Matrices of ones, times these."""
    return lambda: tuple((torch.ones(2 + i % 2, 8) * factor,) for i, factor in enumerate(factors))


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.cell, self.lstm_cell = nn.Linear(8, 8), nn.GRUCell(8, 8), nn.LSTMCell(8, 8)
        self.lstm, self.embedding = nn.LSTM(8, 6, bidirectional=True), nn.Embedding(20, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.experts = nn.ModuleList([nn.Linear(8, 8) for _ in range(3)])


@program(rows(4, 1, 7))
class Rows(Layers):
    def forward(self, x: Tensor) -> Tensor:
        h = torch.zeros(1, 8)
        for row in x:
            h = self.cell(row[None], h)
        return h


@program(rows(4, 2, 7))
class Numbered(Layers):
    def forward(self, x: Tensor) -> Tensor:
        total = torch.zeros(8)
        for i, row in enumerate(x):
            if row.sum() > 0:
                total = total + row * i
            else:
                total = total - row
        return total


@program(rows(4, 1, 7))
class State(Layers):
    def forward(self, x: Tensor) -> Any:
        state, given = (torch.zeros(1, 8), torch.zeros(1, 8)), []
        for t in range(x.shape[0]):
            state = self.lstm_cell(x[t : t + 1], state)
            given.append(state[0])
        return torch.cat(given, 0), state


@program(rows(2, 4))
class OfSizes(Layers):
    def forward(self, x: Tensor) -> Tensor:
        if x.shape[0] > 3:
            return x + 1
        if x.sum() > 0:
            return x * 2
        return x * len(x)


@program(scaled(1, -1, 100, 0.01))
class Early(Layers):
    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 100:
            return x - 5
        y = self.linear(x)
        if x.sum() > 0:
            return y
        y = y * 2
        if y.sum() > 3:
            return y + 7
        return y


@program(scaled(10, 0.01, -100))
class Halved(Layers):
    def forward(self, x: Tensor) -> Any:
        n = 0
        while x.norm() > 1:
            if x.sum() > 0:
                x = x * 0.5
            else:
                x = x * 0.4
            n += 1
        return x, n


@program(rows(4, 6, 1))
class Either(Layers):
    def forward(self, x: Tensor) -> Tensor:
        given = []
        for i in range(x.shape[0]):
            if x[i].sum() > 0:
                given.append(x[i])
            else:
                given.append(x[i] * 0)
        return torch.stack(given)


@program(rows(4, 6, 1))
class Growing(Layers):
    def forward(self, x: Tensor) -> Tensor:
        y = x[:1]
        for i in range(x.shape[0]):
            y = torch.cat([y, x[i : i + 1] * y.mean()])
        return y


@program(rows(4, 6, 1))
class Filled(Layers):
    def forward(self, x: Tensor) -> Tensor:
        y = torch.zeros_like(x)
        for i in range(x.shape[0]):
            y[i] = x[i].cumsum(0)
        return y


@program(scaled(1, -1))
class Written(Layers):
    def forward(self, x: Tensor) -> Any:
        y = torch.zeros_like(x)
        left = y[:, :4]
        if x.sum() > 0:
            y[:, 0] = 1
        else:
            y.add_(2)
        return y, left


@program(lambda: ((torch.randn(2, 8), torch.tensor([3, 1])), (torch.randn(3, 8), torch.tensor([2, 2, 9]))))
class Items(Layers):
    def forward(self, x: Tensor, n: Tensor) -> Any:
        k = n.max().item()
        return x[:, :k], x * k, torch.arange(k)


@program(rows(2, 5))
class Found(Layers):
    def forward(self, x: Tensor) -> Any:
        index = torch.nonzero(x > 0)
        return index, x[x > 0], x[index[:, 0], index[:, 1]].sum()


@program(scaled(1, -1))
class Optional(Layers):
    def forward(self, x: Tensor) -> Tensor:
        mask = None
        if x.sum() > 0:
            mask = x > 0
        y = self.linear(x)
        if mask is not None:
            y = y.masked_fill(mask, 0.0)
        return y


@program(lambda: ((torch.randn(2, 5, 8),), (torch.randn(1, 9, 8),)))
class Causal(Layers):
    def forward(self, x: Tensor) -> Any:
        length = x.shape[1]
        mask = torch.triu(torch.full((length, length), float("-inf")), 1)
        return self.attention(x, x, x, attn_mask=mask, need_weights=True)


@program(lambda: ((torch.randn(2, 5, 8),), (torch.randn(3, 7, 8) + torch.tensor([0.0, 9.0, -9.0])[:, None, None],)))
class Padded(nn.Module):  # a query that sees no key gets zeros
    def forward(self, x: Tensor) -> Any:
        heads, mask = x.unflatten(-1, (2, 4)).transpose(1, 2), (x[..., 0] > 1)[:, None, None]
        added = torch.where(mask, float("-inf"), 0.0)
        return [F.scaled_dot_product_attention(heads, heads, heads, each) for each in (~mask, added)]


@program(lambda: ((torch.randn(2, 3, 4, 5, 8),), (torch.rand(3, 2, 2, 4, 8),), (-torch.rand(3, 2, 2, 4, 8),)))
class OfOtherRanks(nn.Module):
    def forward(self, x: Tensor) -> Any:
        attend, mask = F.scaled_dot_product_attention, x[:, 0, :1, :, :1] > 0
        few = attend(x[0, 0], x[0, 0], x[0, 0], is_causal=True), attend(x[0, 0, 0], x[0, 0, 0], x[0, 0, 0], scale=0.5)
        if x.sum() > 0:
            few = attend(x[0, 0], x[0, 0], x[0, 0]), few[1]
        return *few, attend(x, x, x), attend(x, x[:1], x[:1], mask.transpose(-1, -2)[:, None])


@program(lambda: ((torch.randn(5, 2, 8),), (torch.randn(9, 3, 8),), (torch.randn(1, 1, 8),)))
class Recurrent(Layers):
    def forward(self, x: Tensor) -> Any:
        y, (h, c) = self.lstm(x)
        return y, h, c


Pair = collections.namedtuple("Pair", "left right")


@program(lambda: ((torch.randint(0, 20, (2, 5)),), (torch.randint(0, 20, (3, 1)),)))
class Nested(Layers):
    def forward(self, ids: Tensor) -> Any:
        e = self.embedding(ids)
        return {"e": e, "pair": Pair(ids.shape[0], ids.shape[1] * 2.5), "more": {"mean": e.mean(1)}, "none": None}


@program(lambda: ((torch.randn(2, 3, 16, 16),), (torch.randn(1, 3, 20, 24),)))
class Image(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Any:
        y = F.interpolate(self.conv(x), scale_factor=2.0, mode="bilinear")
        y = F.pad(y, (0, y.shape[-1] % 3, 1, 0))
        return F.adaptive_avg_pool2d(y, (2, 2)), y.flatten(1).shape[1]


@program(lambda: ((torch.randn(3, 8), torch.tensor([0, 1, 1])), (torch.randn(4, 8), torch.tensor([2, 0, 1, 2]))))
class Experts(Layers):
    def forward(self, x: Tensor, which: Tensor) -> Tensor:
        y = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            mine = which == number
            if mine.any():
                y[mine] = expert(x[mine])
        return y


@program(rows(4, 6, 1))
class Pairs(Layers):
    def forward(self, x: Tensor) -> Tensor:
        total = torch.zeros(())
        for i in range(x.shape[0]):
            for j in range(i):
                if x[i, 0] > x[j, 0]:
                    total = total + (x[i] * x[j]).sum()
        return total


@program(rows(4, 6, 3))
class Best(Layers):
    def forward(self, x: Tensor) -> Any:
        best, at = -1e9, 0
        for i in range(x.shape[0]):
            value = x[i].sum().item()
            if value > best:
                best, at = value, i
        return at, best, x[at]


@program(rows(4, 6, 1))
class NoneFirst(Layers):
    def forward(self, x: Tensor) -> Tensor:
        h, given = None, []
        for t in range(x.shape[0]):
            h = self.linear(x[t]) if h is None else self.linear(x[t] + h)
            given.append(h)
        return torch.stack(given, 1)


@program(rows(4, 6, 1))
class WhileFilled(Layers):
    def forward(self, x: Tensor) -> Tensor:
        i, given = 0, [x.mean(1)]
        while i < x.shape[0]:
            given.append(x.mean(1) * i)
            i += 2
        return torch.stack(given)


@program(lambda: ((torch.randn(4, 8),), (torch.randn(6, 8),), (torch.ones(4, 8),), (-torch.ones(3, 8),)))
class Breaks(Layers):
    def forward(self, x: Tensor) -> Tensor:
        total = torch.zeros(8)
        for row in x:
            if row[0] < 0:
                continue
            total = total + row
            if total.sum() > 3:
                break
        else:
            total = total * 10 + 1
        return total


@program(lambda: ((torch.randint(3, 20, (2, 3)),), (torch.randint(3, 20, (1, 4)),)))
class Decoder(Layers):
    def forward(self, ids: Tensor) -> Tensor:
        while ids.shape[1] < 8:
            best = self.linear(self.embedding(ids).mean(1)).argmax(-1)
            ids = torch.cat([ids, best[:, None]], 1)
            if (best == 0).all():
                break
        return ids


@program(rows(2, 5))
class Differentiated(Layers):
    def forward(self, x: Tensor) -> Any:
        with torch.enable_grad():
            x = x.detach().requires_grad_(True)
            energy = self.linear(x).tanh().sum()
            (force,) = torch.autograd.grad(energy, x)
        return energy, torch.vmap(lambda row: row.sin() * 2)(force)


@program(rows(3, 8))
class Resized(Layers):
    def forward(self, x: Tensor) -> Tensor:
        if x.shape[0] != 4:
            x = F.interpolate(x.T[None], 4)[0].T
        return x.reshape(2, 16) + self.linear(x).reshape(2, 16)


@program(rows(4, 2, 7))
class Listed(Layers):
    def forward(self, x: Tensor) -> tuple[list[Tensor], int]:
        out = [x[0]]
        for row in x:
            out.append(self.linear(row))
        return out, len(out)


@program(rows(4, 2, 7))
class Strict(Layers):
    def forward(self, x: Tensor) -> Tensor:
        total = torch.zeros(8)
        for i, (one, other) in enumerate(zip(x, x.flip(0), strict=True), start=2):
            total = total + one * other * i
        return total * round(float(total.sum()), 2)
