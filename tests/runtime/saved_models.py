"""Models that tests save and load, in a module that loading may allow."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

CALLS: list[str] = []  # what ran that must not run


class Pair(NamedTuple):
    first: Tensor
    second: Tensor


@dataclasses.dataclass
class Result:
    value: Tensor
    scale: float = 1.0


class Config:
    def __init__(self, width: int) -> None:
        CALLS.append("Config")
        self.width = width
        self.names = {"a": (1, 2.5, None)}


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        CALLS.append("Tied")
        self.embed = nn.Embedding(7, 4)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embed.weight
        self.embed.weight.data[0] = float("nan")
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mask", torch.ones(4), persistent=False)
        self.frozen = nn.Parameter(torch.ones(4), requires_grad=False)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.embed(tokens) * self.mask * self.frozen)


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            x = x * 2
        if x.sum() > 0:
            x = self.linear(x)
        return self.norm(x)


class NamedOutput(nn.Module):
    def forward(self, x: Tensor, scale: float = 2.0, *, shift: float = 0.0) -> Pair:
        return Pair(x * scale, x + shift)


class DataOutput(nn.Module):
    def forward(self, x: Tensor) -> Result:
        return Result(x.relu(), 3.0)


class _Private(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mul(2).float()


class Configured(nn.Module):
    """Every kind of plain attribute, and some that are not plain."""

    def __init__(self) -> None:
        super().__init__()
        self.config = Config(3)
        self.inner = _Private()
        self.inner.config = self.config
        self.act = torch.relu
        self.kind = nn.LayerNorm
        self.facts = [torch.float16, torch.device("cpu"), torch.Size([2]), slice(1, None), {1, 2}, float("inf"), b"x"]
        self.same = self.facts
        self.late = lambda x: x
        self.file = open(__file__)
        self.file.close()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.inner(x)) * self.config.width


def outlined(x: Tensor) -> Tensor:
    return x * 2


def doubled(module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> Tensor:
    return output * 2


class Calling(nn.Module):
    """A model that calls a function which may stay one node, and has a recurrent network."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        return outlined(self.lstm(x)[0])


class Growing(nn.Module):
    """Makes its buffer anew where it is too short, as tables of positions do."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Buffer(torch.arange(4.0), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[0] > self.table.shape[0]:
            self.table = nn.Buffer(torch.arange(float(x.shape[0])), persistent=False)
        return x + self.table[: x.shape[0]]


class Twice(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2


class Counting(nn.Module):
    """Methods that need the data of a tensor, and stay one node each."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Distinct()

    def distinct(self, x: Tensor) -> int:
        return len(frozenset(map(round, x.tolist())))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.distinct(x) + self.inner.count(x)


class Distinct(nn.Module):
    def count(self, x: Tensor) -> int:
        return len(frozenset(map(round, x.tolist()))) + 1


class PrivatelyCounting(nn.Module):
    def _distinct(self, x: Tensor) -> int:
        return len(frozenset(map(round, x.tolist())))

    def forward(self, x: Tensor) -> Tensor:
        return x * self._distinct(x)


class Memory:
    def __init__(self) -> None:
        self.rows: list[Tensor] = []
        self.last: Tensor | None = None
        self.seen = 0


class Table:
    """Knows of which class its rows are."""

    def __init__(self) -> None:
        self.kind, self.rows = Memory, [Memory()]

    def add(self, x: Tensor) -> None:
        self.rows.append(self.kind())
        self.rows[-1].last = x


class Tabling(nn.Module):
    """Gives an object that has a class among its attributes, and asks for a history."""

    def forward(self, x: Tensor) -> Any:
        table = Table()
        table.add(x * 2)
        return (x + 1 if x.grad_fn is None else x + 2), table


class Remembering(nn.Module):
    """Writes to an object of the caller's."""

    def forward(self, x: Tensor, memory: Memory) -> Tensor:
        memory.rows.append(x)
        memory.last, memory.seen = x + 1, memory.seen + x.shape[0]
        return x * 2


class PullingBack(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        value, pull_back = torch.func.vjp(torch.sin, x)
        (gradient,) = pull_back(torch.ones_like(value))
        return gradient


class Hostile:
    """A class whose making has an effect."""

    def __new__(cls) -> Hostile:
        CALLS.append("Hostile")
        return super().__new__(cls)


class Watched:
    """Looks at what it holds whenever anything but its class is asked of it."""

    def __init__(self, names: set[str]) -> None:
        object.__getattribute__(self, "__dict__")["names"] = names

    def __getattribute__(self, name: str) -> Any:
        if name == "__class__":
            return Watched
        known: set[str] = object.__getattribute__(self, "__dict__")["names"]
        return name if name in known else object.__getattribute__(self, name)


class Waves(nn.Module):
    """Computes with NumPy's operators and numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.watched = Watched({"a"})

    def forward(self, x: Tensor) -> Tensor:
        root = np.sqrt(x.detach().numpy()) * np.float64(3)
        return x + torch.from_numpy(np.exp(root))


class RowsOf:
    """What has under a name a method, under which others have data."""

    def __init__(self, value: torch.Tensor) -> None:
        self.value = value

    def rows(self) -> list[torch.Tensor]:
        return [self.value]


class WithRows:
    def __init__(self, rows: torch.Tensor) -> None:
        self.rows = rows


class ReadsRows(nn.Module):
    def forward(self, held: WithRows) -> RowsOf:
        return RowsOf(held.rows * 2)
