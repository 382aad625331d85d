"""Containers of classes of their own, and arrays: what a program changes is refused, what others change is told."""

from __future__ import annotations

import collections
import copy
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from torch import nn

from graphwright import trace
from graphwright.errors import CaptureError, GuardError


class Table(dict[str, int]):
    """A dict of the user's."""


class Row(list[int]):
    """A list of the user's."""


def _put(held: Any) -> None:
    held["n"] = held["n"] + 1


def _add(held: Any) -> None:
    held.append(1)


def _fill(held: Any) -> None:
    held += 1


HOLDERS: list[Any] = [
    pytest.param(lambda: collections.Counter(n=1), len, _put, id="Counter"),
    pytest.param(lambda: collections.OrderedDict(n=1), lambda held: held["n"], _put, id="OrderedDict"),
    pytest.param(lambda: collections.defaultdict(int, n=1), lambda held: held["n"], _put, id="defaultdict"),
    pytest.param(lambda: Table(n=1), lambda held: held["n"], _put, id="dict"),
    pytest.param(lambda: Row([1]), len, _add, id="list"),
    pytest.param(lambda: collections.deque([1]), len, _add, id="deque"),
    pytest.param(lambda: bytearray(b"a"), len, _add, id="bytearray"),
    pytest.param(lambda: numpy.ones(2), lambda held: float(held[0]), _fill, id="array"),
]


class Net(nn.Module):
    """A module that holds something, and changes it where it is told how."""

    def __init__(self, held: Any, read: Callable[[Any], Any], change: Callable[[Any], None] | None) -> None:
        super().__init__()
        self.held = held
        self.read, self.change = staticmethod(read), staticmethod(change) if change else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.change is not None:
            self.change(self.held)
        return x * self.read(self.held)


def in_a_closure(held: Any, read: Callable[[Any], Any], change: Callable[[Any], None] | None) -> Any:
    def program(x: torch.Tensor) -> torch.Tensor:
        if change is not None:
            change(held)
        return x * read(held)

    return program


@pytest.mark.parametrize("make", [Net, in_a_closure])
@pytest.mark.parametrize(("hold", "read", "change"), HOLDERS)
def test_what_the_program_changes_is_refused_and_put_back(make: Any, hold: Any, read: Any, change: Any) -> None:
    held = hold()
    before = copy.deepcopy(held)
    with pytest.raises(CaptureError, match=r"changes .*instead|changes .*\n.*\n.*keep") as caught:
        trace(make(held, read, change), (torch.ones(2),))
    assert type(held).__name__ in str(caught.value)
    assert list(held) == list(before) and numpy.array_equal(read(held), read(before))


@pytest.mark.parametrize("make", [Net, in_a_closure])
@pytest.mark.parametrize(("hold", "read", "change"), HOLDERS)
def test_what_others_change_is_told(make: Any, hold: Any, read: Any, change: Any) -> None:
    held = hold()
    gm = trace(make(held, read, None), (torch.ones(2),))
    for _ in range(2):
        assert gm(torch.ones(2)).equal(torch.ones(2) * read(held))
    change(held if make is in_a_closure else gm.held)
    if type(held) is collections.Counter:
        (held if make is in_a_closure else gm.held)["m"] = 1
    with pytest.raises(GuardError):
        gm(torch.ones(2))


def test_functions_in_a_list_are_told() -> None:
    class Chain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.steps = [torch.relu, torch.sin]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for step in self.steps:
                x = step(x)
            return x

    gm = trace(Chain(), (torch.ones(2),))
    assert gm(torch.ones(2)).equal(torch.ones(2).sin())
    gm.steps.append(torch.exp)
    with pytest.raises(GuardError, match="steps"):
        gm(torch.ones(2))


def test_a_heap_that_the_program_keeps_is_refused() -> None:
    import heapq

    heap: list[int] = []

    def program(x: torch.Tensor) -> torch.Tensor:
        heapq.heappush(heap, len(heap))
        return x * heap[0] + len(heap)

    with pytest.raises(CaptureError, match="goes over"):
        trace(program, (torch.ones(2),))
    assert heap == []
