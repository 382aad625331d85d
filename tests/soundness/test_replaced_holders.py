"""Generators of random numbers that are replaced, containers in two places, and classes that act when written to."""

from __future__ import annotations

import collections
import random
import types
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor, nn

from graphwright import CaptureError, GuardError, script, symbolic_trace, trace
from graphwright.passes import RemoveDeadCode

X = torch.ones(2, 4)


class Draws(nn.Module):
    def __init__(self, generator: Any) -> None:
        super().__init__()
        self.generator = generator

    def forward(self, x: Tensor) -> Any:
        return x * self.generator.random()


MAKERS: dict[str, Callable[[int], Any]] = {
    "of Python's": random.Random, "of NumPy's": numpy.random.default_rng, "older": numpy.random.RandomState,
}  # fmt: skip


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_another_generator_is_refused(make: Callable[[int], Any]) -> None:
    gm, model = trace(Draws(make(3)), (X,)), Draws(make(3))
    for _ in range(2):
        assert torch.equal(gm(X), model(X))
    gm.generator = make(5)
    with pytest.raises(GuardError, match=r"self\.generator is another generator"):
        gm(X)


def closing_over(held: list[int]) -> Callable[[Tensor], Tensor]:
    def run(x: Tensor) -> Tensor:
        held.append(1)
        return x * len(held)

    return run


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.held: list[int] = []
        self.run = closing_over(self.held)

    def forward(self, x: Tensor) -> Tensor:
        return self.run(x)


def test_a_list_of_a_closure_and_of_a_module_is_not_written() -> None:
    with pytest.raises(CaptureError, match=r"writes to self\.held, which is 'held' of .*, too"):
        trace(Twice(), (X,))


class Doubling(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.k = 1

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value * 2 if name == "k" else value)

    def forward(self, x: Tensor) -> Tensor:
        self.k = self.k + 1
        return x * self.k


class Logging(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.__dict__["names"] = []
        self.k = 1

    def __setattr__(self, name: str, value: Any) -> None:
        self.__dict__.get("names", []).append(name)
        super().__setattr__(name, value)

    def forward(self, x: Tensor) -> Tensor:
        self.k = self.k + 1
        return x * self.k


class CountingClass(nn.Module):
    sets = 0

    def __init__(self) -> None:
        super().__init__()
        self.k = 1

    def __setattr__(self, name: str, value: Any) -> None:
        CountingClass.sets += 1
        super().__setattr__(name, value)

    def forward(self, x: Tensor) -> Tensor:
        self.k = self.k + 1
        return x * self.k


class Following(Doubling):
    """What it does twice is the same as what it does once."""

    def __init__(self) -> None:
        super().__init__()
        self.twice = 2

    def __setattr__(self, name: str, value: Any) -> None:
        nn.Module.__setattr__(self, name, value)
        if name == "k":
            nn.Module.__setattr__(self, "twice", value * 2)


@pytest.mark.parametrize("make", [Doubling, Logging, CountingClass])
def test_what_a_class_does_where_it_is_written_to_is_not_done_twice(make: Any) -> None:
    with pytest.raises(CaptureError, match=f"{make.__name__} has a __setattr__ of its own"):
        trace(make(), (X,))
    model, gm = Following(), trace(Following(), (X,))
    assert [(gm(X).tolist(), gm.twice) for _ in range(2)] == [(model(X).tolist(), model.twice) for _ in range(2)]


class Log:
    def __init__(self) -> None:
        self.calls: list[str] = []
        self.inner = self

    def sort(self) -> None:
        self.calls.append("sort")

    def add(self, x: Tensor) -> None:
        self.calls.append("add")


def notes(x: Tensor, log: Any) -> Tensor:
    log.sort()
    log.inner.add(x)
    return x * 2


def notes_of_class(x: Tensor, log: Log) -> Tensor:
    log.sort()
    log.add(x)
    return x * 2


@pytest.mark.parametrize("capture", [symbolic_trace, script], ids=["symbolic_trace", "script"])
@pytest.mark.parametrize("program", [notes, notes_of_class])
def test_methods_of_objects_are_kept_that_are_named_as_those_of_tensors(capture: Any, program: Any) -> None:
    gm, log = capture(program), Log()
    RemoveDeadCode().run(gm)
    gm(X, log)
    assert log.calls == ["sort", "add"]


class Items(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        one = types.SimpleNamespace(k=2)
        self.listed, self.named = [one], {"one": one}
        self.order = collections.OrderedDict(a=1, b=2)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.listed[0].k * self.named["one"].k + next(iter(self.order.values()))


CHANGES: dict[str, Callable[[Any], Any]] = {
    "object in a dict": lambda m: m.named.update(one=types.SimpleNamespace(k=5)),
    "object in a list": lambda m: m.listed.__setitem__(0, types.SimpleNamespace(k=2)),
    "order": lambda m: m.order.move_to_end("a"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_an_object_in_two_containers_stays_one(change: Callable[[Any], Any]) -> None:
    gm, model = trace(Items(), (X,)), Items()
    assert torch.equal(gm(X), model(X))
    change(gm)
    with pytest.raises(GuardError):
        gm(X)


class Aliased(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("shift", torch.zeros(4))
        self.weights, self.shifts = {"w": self.layer.weight}, [self.shift]

    def forward(self, x: Tensor) -> Any:
        return nn.functional.linear(x, self.weights["w"]) + self.shifts[0]


ALIASES: dict[str, Callable[[Any], Any]] = {
    "buffer": lambda m: setattr(m, "shift", torch.ones(4)),
    "buffer in a list": lambda m: m.shifts.__setitem__(0, torch.ones(4)),
    "parameter": lambda m: setattr(m.layer, "weight", nn.Parameter(torch.zeros(4, 4))),
    "parameter in a dict": lambda m: m.weights.update(w=nn.Parameter(torch.zeros(4, 4))),
}


@pytest.mark.parametrize("change", ALIASES.values(), ids=ALIASES)
def test_tensors_of_modules_that_containers_hold_stay_those(change: Callable[[Any], Any]) -> None:
    torch.manual_seed(0)
    model = Aliased()
    gm = trace(model, (X,))
    assert torch.equal(gm(X), model(X))
    change(gm)
    with pytest.raises(GuardError):
        gm(X)
