"""A call that is one node: it reads what the program has written, and may change nothing that the program keeps."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import pytest
import torch

from graphwright import trace
from graphwright.errors import CaptureError, GuardError


class Total:
    """A number, read and written by methods that ask for data."""

    def __init__(self) -> None:
        self.value = 1.0

    def add(self, x: torch.Tensor) -> torch.Tensor:
        self.value += x.item()
        return x + self.value

    def plus(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.value + x.item() * 0


def keep(values: list[float], x: torch.Tensor) -> torch.Tensor:
    values.append(x.item())
    return x + 1


def name(values: dict[str, float], x: torch.Tensor) -> torch.Tensor:
    values["k"] = x.item()
    return x + 1


TOTAL = Total()
LEAVES = [keep, name, Total.add, Total.plus]


def fills_a_list(x: torch.Tensor) -> Any:
    values: list[float] = []
    return keep(values, x.sum()), len(values)


def fills_a_dict(x: torch.Tensor) -> Any:
    values: dict[str, float] = {}
    return name(values, x.sum()), values


def changes_an_object(x: torch.Tensor) -> Any:
    total = Total()
    return total.add(x.sum()), total.value


def changes_a_global_object(x: torch.Tensor) -> Any:
    return TOTAL.add(x.sum()) + TOTAL.value


def counts_data(x: torch.Tensor) -> Any:
    counter = collections.Counter[int]()
    counter.subtract([int(x.sum() > 0)])  # Python's own code asks for data
    for row in x:
        counter.update([row.dim()])
    return len(counter)


def changes_its_object_later(x: torch.Tensor) -> Any:
    total = Total()
    y = total.plus(x.sum())
    total.value = 5.0
    return y


@pytest.mark.parametrize(
    "program", [fills_a_list, fills_a_dict, changes_an_object, changes_a_global_object, counts_data]
)
def test_a_leaf_that_changes_what_it_is_given_is_refused(program: Callable[..., Any]) -> None:
    with pytest.raises(CaptureError, match="which is one node, changes a container or object that it is given"):
        trace(program, (torch.ones(2, 3),), leaf_functions=LEAVES)
    assert TOTAL.value == 1.0


def test_a_leaf_whose_object_changes_later_is_refused() -> None:
    with pytest.raises(CaptureError, match=r"Total\.plus is one node, and the program changes its object"):
        trace(changes_its_object_later, (torch.ones(2, 3),), leaf_functions=LEAVES)


def writes_before(x: torch.Tensor) -> Any:
    TOTAL.value = TOTAL.value + 1
    return TOTAL.plus(x.sum())


def writes_after(x: torch.Tensor) -> Any:
    y = TOTAL.plus(x.sum())
    TOTAL.value = TOTAL.value * 2
    return y


@pytest.mark.parametrize("program", [writes_before, writes_after])
def test_a_leaf_reads_what_is_written_before_it(program: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    captured = trace(program, (torch.ones(2, 3),), leaf_functions=LEAVES)
    results = []
    for function in (captured, program):
        monkeypatch.setattr(TOTAL, "value", 1.0)
        results.append([function(scale * torch.ones(2, 3)) for scale in (1, 2, -1)] + [TOTAL.value])
    assert results[0] == results[1]


def rows(x: torch.Tensor) -> Any:
    return tuple(x)


def sizes(x: torch.Tensor) -> Any:
    return x, [x.shape, x.shape[1:]]


def named_rows(x: torch.Tensor) -> Any:
    return {f"row {i}": row for i, row in enumerate(x)}


GIVING = [rows, sizes, named_rows]


@pytest.mark.parametrize(
    ("program", "other"),
    [
        (lambda x: sum(rows(x)), torch.ones(3, 3)),
        (lambda x: x.new_ones(sizes(x)[1][1]), torch.ones(2, 3, 4)),
        (lambda x: sum(named_rows(x).values()), torch.ones(3, 3)),
    ],
)
def test_what_a_leaf_gives_has_the_structure_that_it_had(program: Callable[..., Any], other: torch.Tensor) -> None:
    captured = trace(program, (torch.ones(2, 3),), leaf_functions=GIVING)
    assert torch.equal(captured(torch.ones(2, 3) * 2), program(torch.ones(2, 3) * 2))
    with pytest.raises(GuardError, match="was captured where this was"):
        captured(other)


def test_a_leaf_may_make_an_object_of_its_own() -> None:
    def program(x: torch.Tensor) -> Any:
        return Total().plus(x.sum())

    captured = trace(program, (torch.ones(2, 3),), leaf_functions=LEAVES)
    assert captured(torch.zeros(2)) == program(torch.zeros(2)) == 1
