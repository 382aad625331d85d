"""What a program does as an error leaves it is done: by `finally`, by the end of a `with`, in whatever others see."""

from __future__ import annotations

import contextlib
import copy
import io
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

from graphwright import CaptureError, symbolic_trace, trace

COUNT = 0


class Leaving:
    def __init__(self, then: Callable[[], None]) -> None:
        self.then = then

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: Any) -> None:
        self.then()


@contextlib.contextmanager
def leaving(then: Callable[[], None]) -> Iterator[None]:
    try:
        yield
    finally:
        then()


@contextlib.contextmanager
def stacked(then: Callable[[], None]) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        stack.callback(then)
        yield


def checked(x: torch.Tensor) -> None:
    if x.sum() > 0:
        raise KeyError(1)


class Child(nn.Module):
    def forward(self, x: torch.Tensor) -> None:
        if x.sum() > 0:
            raise KeyError(1)


class Program(nn.Module):
    def __init__(self, context: Any, act: str, where: str) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(()))
        self.count, self.seen, self.child = 0, list[int](), Child()
        self.context, self.act, self.where = context, act, where

    def number(self) -> None:
        self.count += 1

    def buffer(self) -> None:
        self.total = self.total + 1

    def in_place(self) -> None:
        self.total.add_(1)

    def list(self) -> None:
        self.seen.append(1)

    def text(self) -> None:
        print("left")

    def variable(self) -> None:
        global COUNT
        COUNT += 1

    def random(self) -> None:
        torch.manual_seed(4)

    def forward(self, x: torch.Tensor, held: list[int]) -> torch.Tensor:
        act = (lambda: held.append(1)) if self.act == "held" else getattr(self, self.act)
        if self.where == "side" and x.sum() > 0:
            if self.context is None:
                try:
                    raise KeyError(1)
                finally:
                    act()
            with self.context(act):
                raise KeyError(1)
        if self.where == "child" and self.context is None:
            try:
                self.child(x)
            finally:
                act()
        elif self.where == "child":
            with self.context(act):
                self.child(x)
        elif self.where == "around" and self.context is None:
            try:
                if x.sum() > 0:
                    raise KeyError(1)
            finally:
                act()
        elif self.where == "around":
            with self.context(act):
                checked(x)
        return x * 2


def outcome(module: nn.Module, sign: int) -> tuple[Any, ...]:
    """What a call gives and leaves behind."""
    global COUNT
    COUNT = 0
    held: list[int] = []
    torch.manual_seed(0)
    with contextlib.redirect_stdout(io.StringIO()) as out:
        try:
            given = module(sign * torch.ones(2), held).tolist()
        except KeyError as error:
            given = error.args
    return given, module.total.item(), module.count, module.seen, held, COUNT, out.getvalue(), torch.rand(1).item()


ACTS = ("number", "buffer", "in_place", "list", "text", "variable", "random", "held")


@pytest.mark.sampled(20)
@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("where", ["around", "side", "child"])
@pytest.mark.parametrize("context", [None, Leaving, leaving, stacked])
def test_what_an_error_leaves_behind_is_left(context: Any, where: str, act: str) -> None:
    global COUNT
    COUNT = 0
    program = Program(context, act, where)
    gm = trace(copy.deepcopy(program), (-torch.ones(2), []))
    for sign in (-1, 1, 1, -1):
        assert outcome(gm, sign) == outcome(program, sign)


def test_what_was_written_before_an_error_stays_written() -> None:
    def program(x: torch.Tensor, held: list[int]) -> torch.Tensor:
        held.append(1)
        if x.sum() > 0:
            held.append(2)
            raise KeyError(1)
        return x

    gm, held = trace(program, (-torch.ones(2), [])), []
    with pytest.raises(KeyError):
        gm(torch.ones(2), held)
    assert held == [1, 2]


class Again(nn.Module):
    count = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            try:
                raise KeyError(1)
            except KeyError:
                self.count += 1
                raise
        return x


def test_an_error_that_is_raised_again_is_that_of_the_side() -> None:
    gm = trace(Again(), (-torch.ones(2),))
    with pytest.raises(KeyError):
        gm(torch.ones(2))
    assert gm.count == 1


def test_what_a_library_raises_about_what_stands_for_a_value_is_no_error_of_the_program() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 3:
            return x + random.sample(range(int(x.max()) + 1), 1)[0]
        return x

    with pytest.raises(CaptureError):
        trace(program, (torch.ones(2) * 4,))
    assert torch.equal(trace(program, (torch.ones(2),))(torch.zeros(2)), torch.zeros(2))


def test_what_a_context_does_is_done_without_examples() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        with Leaving(lambda: x.sub_(3)):
            checked(x)
        return x * 2

    gm, x = symbolic_trace(program), torch.ones(2)
    with pytest.raises(KeyError):
        gm(x)
    assert x.tolist() == [-2, -2]
