"""What the methods of a container do of which only a run knows the content: as in eager, or refused with the line."""

from __future__ import annotations

import collections
import heapq
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import graphwright
from graphwright.capture.containers.list_items import ItemDict, ItemList
from graphwright.capture.containers.loop_dicts import LoopDict
from graphwright.capture.containers.loop_lists import LoopList, LoopQueue, LoopTuple
from graphwright.capture.containers.loop_sets import LoopSet
from graphwright.capture.proxies.growing import Growing

# What all objects have, which asks nothing of what is in them.
_OF_ALL = {*dir(object), "__class_getitem__"} - {"__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"}
_CLASSES = [
    (LoopList, list), (LoopTuple, tuple), (LoopQueue, collections.deque), (LoopDict, dict), (LoopSet, set),
    (LoopDict, collections.Counter), (LoopDict, collections.OrderedDict), (ItemList, list), (ItemDict, dict),
]  # fmt: skip


@pytest.mark.parametrize(("ours", "plain"), _CLASSES)
def test_no_method_of_the_plain_class_gets_past_the_capture(ours: type, plain: type) -> None:
    names = {name for name in {*dir(plain)} - _OF_ALL if callable(getattr(plain, name))}
    owners = {name: next((base for base in ours.__mro__ if name in vars(base)), None) for name in names}
    assert {name: owner for name, owner in owners.items() if owner is None or not issubclass(owner, Growing)} == {}


def repeats_in_place(x: Tensor) -> Any:
    found = []
    for row in x:
        found.append(row)
    same = found
    found *= 2
    return torch.stack(same)


def removes_numbers(x: Tensor) -> Any:
    left = [*range(6)]
    for i in range(x.shape[0]):
        left.remove(i)
    return left


def inserts_in_front(x: Tensor) -> Any:
    found = [x[0]]
    for i in range(x.shape[0]):
        found.insert(i, x[i] * i)
    return torch.stack(found)


def extends_from_the_left(x: Tensor) -> Any:
    first: Any = collections.deque()
    found = []
    for row in x:
        first.append(row)
        found.append(row * 2)
    first.extendleft(found)
    first.rotate(1)
    return torch.stack(list(first))


def takes_the_least(x: Tensor) -> Any:
    heap: list[Any] = []
    for i in range(x.shape[0]):
        heapq.heappush(heap, (-i, i))
    return heapq.heappop(heap)[1] + heapq.heapreplace(heap, (5, 5))[1]


@pytest.mark.parametrize(
    "program", [repeats_in_place, removes_numbers, inserts_in_front, extends_from_the_left, takes_the_least]
)
def test_rows_do_what_python_does_for_every_length(program: Callable[[Tensor], Any]) -> None:
    gm = graphwright.trace(program, (torch.randn(3, 2),))
    for length in (3, 2, 5):
        x = torch.randn(length, 2)
        torch.testing.assert_close(gm(x), program(x))


def looks_behind_a_number(x: Tensor) -> Any:
    heap: list[Any] = []
    for row in x:
        heapq.heappush(heap, row.sum())
    try:
        return heapq.heappop(heap)
    except IndexError:
        return x.sum()


def test_what_a_heap_raises_is_not_lost() -> None:
    gm = graphwright.trace(looks_behind_a_number, (torch.randn(3, 2),))
    with pytest.raises(graphwright.GuardError, match=r"test_container_methods.py:\d+"):
        gm(torch.randn(0, 2))


def takes_too_much(x: Tensor) -> Any:
    found = []
    for row in x:
        found.append(row)
    return found.pop(0, 1)  # type: ignore[call-arg]


def test_arguments_that_a_method_does_not_take_are_an_error_as_in_eager() -> None:
    with pytest.raises(TypeError, match="pop expected at most 1 argument, got 2"):
        graphwright.trace(takes_too_much, (torch.randn(3, 2),))


def takes_the_oldest(x: Tensor) -> Any:
    rows: Any = collections.OrderedDict()
    for i in range(x.shape[0]):
        rows[i] = x[i]
    rows.move_to_end(0, last=True)
    return (*rows.popitem(last=False), *rows.popitem())


def test_methods_take_keywords() -> None:
    gm = graphwright.trace(takes_the_oldest, (torch.randn(3, 2),))
    for length in (3, 2, 5):
        x = torch.randn(length, 2)
        torch.testing.assert_close(gm(x), takes_the_oldest(x))


def test_the_class_of_what_only_a_run_fills_is_that_of_the_program() -> None:
    def program(x: Tensor) -> Any:
        numbers, rows, queue = x[0].tolist(), {}, collections.deque()
        for i, row in enumerate(x):
            rows[i] = row
            queue.append(row)
        parts = numbers[1:2], rows, queue
        return [part.__class__ for part in parts], rows.__class__(rows), numbers.__class__

    gm = graphwright.trace(program, (torch.ones(2, 3),))
    assert str(gm(torch.ones(3, 2))) == str(program(torch.ones(3, 2)))
