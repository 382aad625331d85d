"""Objects, enums and base classes as programs for torch.jit use them: scripted, they do what Python does."""

from __future__ import annotations

import cmath
import collections.abc
import itertools
import typing
from enum import Enum
from typing import Any, Dict, List, Tuple

import pytest
import torch
from tests.script.checking import check
from torch import nn

from graphwright import GuardError, script

X = torch.arange(6.0).reshape(2, 3)


class Color(Enum):
    RED = 1
    GREEN = 2


class Price:
    def __init__(self, cents: int):
        self.cents = cents
        self.names: List[str] = []

    def value(self):
        return self.cents

    def __lt__(self, other: Price) -> bool:
        return self.cents < other.cents

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Price) and (self.cents, self.names) == (other.cents, other.names)


class Tally:
    def __init__(self, n: int):
        self.n = n

    def more(self):
        self.n += 1
        return self.n

    @property
    def half(self) -> int:
        return self.n // 2

    @half.setter
    def half(self, value: int):
        self.n = 2 * value


class HoldsObjects(nn.Module):
    """The program changes what it holds, by a method, an assignment and a property."""

    def __init__(self) -> None:
        super().__init__()
        self.tally, self.other = Tally(1), Tally(7)

    def forward(self, x):
        self.tally.more()
        self.tally.half = self.tally.half + 3
        self.tally.n += 1
        return x + self.tally.more() + self.other.n


class Base(nn.Module):
    def shift(self, x):
        return x + 1

    def forward(self, x):
        return self.shift(x) * 2


class Derived(Base):
    def shift(self, x):
        return super(Derived, self).shift(x) + 10  # noqa: UP008  # as it is written for torch.jit

    def forward(self, x):
        return super(Derived, self).forward(x) + super().shift(x)  # noqa: UP008


def prices(given: List[Price]):
    found: List[int] = []
    for price in sorted(given):
        found.append(price.value())
        price.names.append("seen")
    return found


def members(color: Color, name: str):
    others: List[int] = []
    for each in Color:
        if each is not color:
            others.append(each.value)
    return others, color.name, Color[name], [each.name for each in Color]


def literals(x, n: int):
    if True:
        a = 1
    else:
        a = "one"
    while False:
        n = "n"
    return x + a, n if 1 else "n"


def abstract_classes(pair: Tuple[int, int], ns: List[int], table: Dict[str, int], n: int):
    return (
        isinstance(pair, collections.abc.Iterable), isinstance(ns, collections.abc.MutableSequence),
        isinstance(table, collections.abc.Mapping), isinstance(n, collections.abc.Iterable), isinstance(pair, object),
    )  # fmt: skip


def aliases_and_methods(x):
    table = typing.OrderedDict([("a", x)])
    return table, torch.Tensor.abs(x), tuple(itertools.repeat(x, 2)), oct(8), cmath.infj, complex(1, float("inf"))


PROGRAMS: list[tuple[Any, Any]] = [
    (HoldsObjects(), [(X,), (X,)]),
    (Derived(), [(X,)]),
    (prices, [([Price(2), Price(1), Price(3)],), ([],)]),
    (members, [(Color.RED, "GREEN"), (Color.GREEN, "RED"), (Color.RED, "BLUE")]),
    (literals, [(X, 1)]),
    (abstract_classes, [((1, 2), [1], {"a": 1}, 1)]),
    (aliases_and_methods, [(X,)]),
]


@pytest.mark.parametrize("one", PROGRAMS, ids=lambda one: getattr(one[0], "__name__", type(one[0]).__name__))
def test_it_does_what_python_does(one: tuple[Any, Any]) -> None:
    check(one[0], one[1])


def test_functions_of_the_file_of_one_of_torch_are_entered() -> None:
    from torch.jit import _shape_functions as shapes

    check(shapes.unsqueeze, [([2, 3], 0), ([2, 3], -1), ([2, 3], 7)])
    check(shapes.matmul, [([2, 3], [3, 4]), ([5, 2, 3], [3, 4]), ([2, 3], [2, 3])])


def asks_for_a_shape(x, y):
    return x + 1 if hasattr(y, "shape") else x


def test_what_is_no_tensor_is_loud_where_a_program_asks_for_its_attributes() -> None:
    captured = script(asks_for_a_shape)
    assert torch.equal(captured(X, X), X + 1)
    with pytest.raises(GuardError):
        captured(X, 2.0)


class Holds(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.ReLU(), nn.Tanh()])
        self.heads = nn.ModuleDict({"a": nn.ReLU()})
        self.weights = nn.ParameterList([torch.ones(1)])


class HowMany(Holds):
    def forward(self, x):
        return x + len(self.layers)


class Last(Holds):
    def forward(self, x):
        return self.layers[-1](x)


class IsThere(Holds):
    def forward(self, x):
        return x + 1 if "b" in self.heads else x


class LastWeight(Holds):
    def forward(self, x):
        return x * self.weights[-1]


@pytest.mark.parametrize("program", [HowMany, Last, IsThere, LastWeight], ids=lambda program: program.__name__)
def test_what_is_added_to_a_container_after_the_capture_is_loud(program: Any) -> None:
    captured = script(program())
    assert torch.equal(captured(X), program()(X))
    captured.layers.append(nn.Sigmoid())
    captured.heads["b"] = nn.Sigmoid()
    captured.weights.append(torch.zeros(1))
    with pytest.raises(GuardError):
        captured(X)
