"""What a scripted program finds outside of itself is a constant, and each call checks that it is still there."""

from __future__ import annotations

import contextvars
import copy
import functools
import math
import os
import random
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from graphwright import GuardError, ScriptError, script


class Options:
    scale = 3

    def __init__(self) -> None:
        self.k = 2

    @property
    def twice(self):
        return self.k * 2

    def times(self, x):
        return x * self.k


def add_one(x):
    return x + 1


def add_two(x):
    return x + 2


def add(x, n: int = 1):
    return x + n


SCALE, TABLE, OPTIONS, WEIGHT, STEP, PART = 2.0, [1, 2], Options(), torch.ones(3), add_one, functools.partial(add, n=2)


def closing() -> tuple[Callable[..., Any], Callable[[], None]]:
    k = 2

    def change() -> None:
        nonlocal k
        k = 5

    return lambda x: x * k, change


CLOSING = closing()
# A program, and what changes after it was scripted: an owner, a name and a value, or a function.
CHANGES: dict[str, tuple[Callable[..., Any], Any]] = {
    "a number": (lambda x: x * SCALE, (globals(), "SCALE", 3.0)),
    "a list": (lambda x: x * len(TABLE), (globals(), "TABLE", [1, 2, 3])),
    "an item": (lambda x: x * TABLE[0], (TABLE, 0, 7)),
    "a tensor": (lambda x: x * WEIGHT, (globals(), "WEIGHT", torch.zeros(3))),
    "an attribute of an object": (lambda x: x * OPTIONS.k, (vars(OPTIONS), "k", 9)),
    "what a property reads": (lambda x: x * OPTIONS.twice, (vars(OPTIONS), "k", 9)),
    "what a method reads": (lambda x: OPTIONS.times(x), (vars(OPTIONS), "k", 9)),
    "an attribute of a class": (lambda x: x * Options.scale, (Options, "scale", 9)),
    "a function": (lambda x: STEP(x), (globals(), "STEP", add_two)),
    "a default": (lambda x: add(x), (add, "__defaults__", (5,))),
    "a method": (lambda x: OPTIONS.times(x), (Options, "times", lambda self, x: x)),
    "a partial": (lambda x: PART(x), (globals(), "PART", functools.partial(add, n=9))),
    "a variable of the function around": CLOSING,
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_changes_outside_is_loud(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program, change = CHANGES[name]
    x = torch.ones(2, 3)
    gm = script(program)
    assert torch.equal(gm(x), program(x))
    if callable(change):
        change()
    elif isinstance(change[0], dict | list):
        owner, key, value = change
        before = owner[key]
        owner[key] = value
    else:
        monkeypatch.setattr(*change)
    try:
        with pytest.raises(GuardError):
            gm(x)
    finally:
        if not callable(change) and isinstance(change[0], dict | list):
            owner[key] = before
    if not callable(change):
        monkeypatch.undo()
        assert torch.equal(gm(x), program(x))


def test_a_tensor_from_outside_is_the_very_tensor() -> None:
    program, x = CHANGES["a tensor"][0], torch.ones(2, 3)
    gm = script(program)
    WEIGHT.add_(1)
    assert torch.equal(gm(x), program(x))


class Holder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.options = Options()

    def forward(self, x):
        return self.options.times(x)


def test_an_object_of_a_module_is_its_own() -> None:
    """A copy of the result holds a copy of the object, and looks at that."""
    gm, x = script(Holder()), torch.ones(2)
    other = copy.deepcopy(gm)
    other.options.k = 3
    assert torch.equal(gm(x), x * 2)
    with pytest.raises(GuardError, match="options.k"):
        other(x)


class OtherOptions(Options):
    def times(self, x):
        return x


class Held(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.options, self.act, self.acts = Options(), torch.relu, {"a": torch.relu}

    def forward(self, x):
        return self.shift(self.options.times(self.acts["a"](self.act(x))))

    def shift(self, x):
        return x + 1


@pytest.mark.parametrize(
    "change",
    [
        lambda m: setattr(m, "options", OtherOptions()),
        lambda m: setattr(m, "act", torch.tanh),
        lambda m: m.acts.update(a=torch.tanh),
        lambda m: setattr(m, "shift", torch.tanh),
    ],
    ids=["an object", "a function", "a table of functions", "a method"],
)
def test_what_a_module_holds_is_checked(change: Callable[[nn.Module], None]) -> None:
    gm, x = script(script(Held())), torch.ones(2)
    assert torch.equal(gm(x), Held()(x))
    change(gm)
    with pytest.raises(GuardError):
        gm(x)


def test_installed_packages_are_not_looked_at() -> None:
    gm = script(lambda x: nn.functional.relu(x) + torch.pi)
    assert "expect_outside" not in gm.code


_SCALE = contextvars.ContextVar("_SCALE", default=1.0)
_DICE = random.Random(1)


@pytest.mark.parametrize(
    ("program", "name"),
    [
        pytest.param(lambda x: x * random.random(), "Random.random", id="a draw"),
        pytest.param(lambda x: x * _DICE.random(), "Random.random", id="a draw of one's own"),
        pytest.param(lambda x: x * random.uniform(1.0, 2.0), "Random.random", id="a draw inside"),
        pytest.param(lambda x: x * time.time(), "time", id="the clock"),
        pytest.param(lambda x: x * len(os.getcwd()), "getcwd", id="the operating system"),
        pytest.param(lambda x: x * _SCALE.get(), "ContextVar.get", id="a context variable"),
    ],
)
def test_what_gives_something_else_each_time_is_no_constant(program: Any, name: str) -> None:
    with pytest.raises(ScriptError, match=f"{name} gives something else in another call"):
        script(program)
    assert script(lambda x: x * math.sqrt(4.0) + len("ab"))(torch.ones(1)).item() == 4.0
