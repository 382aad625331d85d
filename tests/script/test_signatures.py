"""Programs that take any number of arguments, and functions with overloads."""

from __future__ import annotations

from typing import Any, List, overload

import pytest
import torch
from tests.script.checking import check
from torch import nn

from graphwright import GuardError, script

A, B, C = torch.arange(4.0), torch.ones(4), -torch.ones(4)


def stars(x, *rest, scale: float = 2.0, **more):
    for r in rest:
        x = x + r
    if len(rest) > 1:
        x = x * rest[1]
    for v in more.values():
        x = x - v
    if "bias" in more:
        x = x + more["bias"]
    return x * scale


def numbers(x, *shape: int):
    kinds = (
        isinstance(shape, tuple),
        isinstance(shape, list),
        isinstance(x.shape, tuple),
        isinstance(shape, list | tuple),
    )
    return x.reshape(shape), kinds


def only_stars(*xs):
    return torch.stack(xs).sum(0)


class Last(nn.Module):
    def forward(self, *xs: torch.Tensor, **named):
        if len(xs) == 0:
            return None
        return xs[-1]


@overload
def twice(x: torch.Tensor) -> torch.Tensor: ...
@overload
def twice(x: int) -> int: ...
def twice(x):
    if isinstance(x, int):
        return x + x
    return x * 2


def calls_overloads(x, n: int):
    return twice(x), twice(n)


class Overloads(nn.Module):
    @torch.jit._overload_method  # noqa: F811
    def first(self, x: torch.Tensor) -> torch.Tensor:  # noqa: F811
        pass

    @torch.jit._overload_method  # noqa: F811
    def first(self, x: List[torch.Tensor]) -> torch.Tensor:  # noqa: F811
        pass

    def first(self, x):  # noqa: F811
        if isinstance(x, torch.Tensor):
            return x
        return x[0]

    def forward(self, x):
        return self.first(x) + self.first([x, x])


PROGRAMS = [
    (stars, [(A,), (A, B), (A, B, C)]), (numbers, [(A, 2, 2), (A, 4)]), (only_stars, [(A,), (A, B, C)]),
    (Last(), [(A,), (A, B), ()]), (calls_overloads, [(A, 3)]), (Overloads(), [(A,)]),
]  # fmt: skip


@pytest.mark.parametrize(("program", "inputs"), PROGRAMS, ids=lambda p: getattr(p, "__name__", None))
def test_as_in_python(program: Any, inputs: Any) -> None:
    check(program, inputs)


def test_keywords() -> None:
    gm = script(stars)
    assert gm.code.strip().startswith("def forward(self, x, *rest, scale: float = 2.0, **more):")
    given = {"bias": C, "k": B, "scale": 3.0}
    assert torch.equal(gm(A, B, **given), stars(A, B, **given))


def given_first(x, *rest):
    return x + 1 if rest[0] is not None else x


def given_each(x, values):
    for value in values:
        x = x * 2 if value is None else x + 1
    return x


def of_items(x, values: List[torch.Tensor]):
    return x if values[0] is None else x + 1


@pytest.mark.parametrize("program", [given_first, given_each, of_items])
def test_whether_an_item_of_an_input_is_none_is_answered_by_its_type_and_checked(program: Any) -> None:
    gm = script(program)
    values = (A,) if program is given_first else (torch.stack([A]) if program is given_each else [A],)
    assert torch.equal(gm(A, *values), program(A, *values))
    with pytest.raises(GuardError):
        gm(A, *((None,) if program is given_first else ([None],)))
