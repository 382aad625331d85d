"""Graphs, modules and functions that the tests of this room share. Other processes import them, too."""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from graphwright import Graph, GraphModule


class Pair(NamedTuple):
    left: Tensor
    right: Tensor


class Mode(enum.Enum):
    SUM = "sum"
    MEAN = "mean"


def scaled(x: Tensor, factor: float = 2.0) -> Tensor:
    return x * factor


def reduced(x: Tensor, mode: Mode) -> Tensor:
    return x.sum() if mode is Mode.SUM else x.mean()


class Helpers:
    @staticmethod
    def shifted(x: Tensor) -> Tensor:
        return x + 1

    @classmethod
    def halved(cls, x: Tensor) -> Tensor:
        return x / 2


class Scale(nn.Module):
    """A module of a user, kept whole in graphs: plain attributes of many kinds, tensors, a child."""

    def __init__(self, factor: float, modes: tuple[Mode, ...] = (Mode.SUM,)) -> None:
        super().__init__()
        self.factor = factor
        self.settings = {"modes": list(modes), "limit": float("inf"), "dtype": torch.float32}
        self.activation = torch.relu
        self.weight = nn.Parameter(torch.full((3,), factor))
        self.register_parameter("bias", None)
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        self.register_buffer("scratch", torch.ones(2, 3), persistent=False)
        self.offsets = torch.arange(3.0)
        self.inner = nn.Sequential(nn.Linear(3, 3), nn.Tanh())

    def forward(self, x: Tensor) -> Tensor:
        y = self.activation(self.inner(x) * self.weight + self.offsets) + self.scratch
        return y.clamp(max=self.settings["limit"]) * self.factor + self.seen


class Configured(nn.Module):
    """A module that keeps an object of its own class, which no text makes again."""

    def __init__(self) -> None:
        super().__init__()
        self.config = Helpers()

    def forward(self, x: Tensor) -> Tensor:
        return x


class Doubled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.linear(x)) * 2


class Named(GraphModule):
    """A class of a user that derives from GraphModule."""

    def __init__(self, root: Any, graph: Graph, title: str = "none") -> None:
        super().__init__(root, graph, "Named")
        self.title = title

    def greeting(self) -> str:
        return f"this is {self.title}"


def graph_of(build: Callable[[Graph, Any], Any]) -> Graph:
    """A graph with one input `x`, what `build` adds, and an output."""
    graph = Graph()
    graph.output(build(graph, graph.placeholder("x")))
    return graph


def calls(target: str) -> Graph:
    """A graph that calls one submodule."""
    return graph_of(lambda graph, x: graph.call_module(target, (x,)))


def doubled_graph() -> Graph:
    """linear, norm and `* 2`: the graph of `Doubled`."""

    def build(graph: Graph, x: Any) -> Any:
        linear = graph.call_module("linear", (x,))
        return graph.call_function(operator.mul, (graph.call_module("norm", (linear,)), 2))

    return graph_of(build)


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x**3

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient


def load_tensors(x: Tensor) -> Tensor:
    """Called like a function of written packages."""
    return x - 1


def Model(x: Tensor) -> Tensor:
    """Called like the class of the packages that the tests write."""
    return x * 3


def call_it(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    return function(x)


class Other:
    @staticmethod
    def scaled(x: Tensor) -> Tensor:
        """Called like a function of this module."""
        return x * -1


def powered(x: Tensor, exponent: float) -> Tensor:
    return torch.pow(x.abs(), exponent)
