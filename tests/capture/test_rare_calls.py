"""Calls that few programs make: powers with a modulus, complex numbers, linear maps, and what the collector calls."""

from __future__ import annotations

import collections
import datetime
import decimal
import functools
import gc
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from graphwright import CaptureError, GuardError, load, save, trace

pytestmark = pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node")  # in torch.func.linearize
X, OTHER = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), -torch.ones(5, 2)


def magnitude(x: Tensor) -> Tensor:
    return x if abs(complex(x.sum(), 1)) > 11 else -x


def linear_map(x: Tensor) -> Any:
    y, push = torch.func.linearize(lambda a, b: (a * b).sin(), x, x * 2)
    return y, push(x, x), push(x * 2, x)


def plain_view(x: Tensor) -> Any:
    y = x * 2
    plain = y.as_subclass(torch.Tensor)
    plain.mul_(3)
    return y, plain


def versions(x: Tensor) -> Any:
    y = x * 2
    before = y._version
    y.add_(1)
    return y * (y._version - before)


PROGRAMS: dict[str, Callable[..., Any]] = {
    "pow of a size": lambda x: x * pow(x.shape[0], 2, 7),
    "pow of two sizes": lambda x: x * pow(x.shape[0], x.shape[1], 7),
    "pow of data": lambda x: x * pow(int(x.sum()), 3, 7),
    "pow with a size above": lambda x: x * pow(3, x.shape[0], 7),
    "pow without a modulus": lambda x: x * pow(x.shape[0], 2),
    "complex of data": lambda x: complex(x.sum()),
    "complex of two": lambda x: x * complex(x.sum(), x.mean()),
    "complex of a size": lambda x: x * complex(x.shape[0], 1),
    "parts of a complex number": lambda x: x * complex(x.sum(), 2).real,
    "a branch on a complex number": magnitude,
    "a linear map": linear_map,
    "versions": versions,
}


@pytest.mark.parametrize("case", PROGRAMS)
def test_it_computes_what_the_program_does(case: str, tmp_path: Path) -> None:
    program = PROGRAMS[case]
    captured = trace(program, (X,))
    save(captured, tmp_path / "program.gw")
    for each in (captured, load(tmp_path / "program.gw")):
        for x in (X, OTHER):
            assert str(each(x)) == str(program(x))


def test_a_linear_map_of_a_module() -> None:
    model: Any = nn.Linear(2, 2)

    class Maps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = model

        def forward(self, x: Tensor) -> Any:
            y, push = torch.func.linearize(self.layer, x)
            return y + push(x)

    maps = Maps()
    assert torch.equal(trace(maps, (X,))(OTHER), maps(OTHER))


def test_a_plain_tensor_of_one_shares_its_memory() -> None:
    assert str(trace(plain_view, (X,))(OTHER)) == str(plain_view(OTHER))


class Other(torch.Tensor):
    pass


def test_a_tensor_of_another_class_is_refused() -> None:
    with pytest.raises(CaptureError, match="makes a tensor of class Other"):
        trace(lambda x: x.as_subclass(Other), (X,))


class PlainWeight(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight.as_subclass(torch.Tensor)


def test_what_is_made_of_a_parameter_by_a_call_that_nothing_tells_of_is_refused() -> None:
    with pytest.raises(CaptureError, match=r"made by a call which cannot be recorded \(AliasBackward0\)"):
        trace(PlainWeight(), (X,))


@pytest.mark.filterwarnings("ignore:.*gc.collect")
def test_what_the_collector_calls_is_no_part_of_the_program() -> None:
    seconds: list[float] = []

    def note(phase: str, about: dict[str, Any]) -> None:
        seconds.append(time.perf_counter())

    class Collects(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = x * 2
            gc.collect()
            return y

    gc.callbacks.append(note)
    try:
        captured = trace(Collects(), (X,))
    finally:
        gc.callbacks.remove(note)
    assert seconds
    assert "perf_counter" not in str(captured.report)


CONSTRUCTORS: list[Callable[[Tensor], Any]] = [
    lambda x: torch.cat((x, torch.Tensor(torch.zeros(1, x.shape[1])))),
    lambda x: torch.Tensor(x.clone()).mul_(2),
    lambda x: torch.FloatTensor(x.shape[0], 2).fill_(1),
    lambda x: torch.LongTensor(x.shape).zero_(),
    lambda x: torch.LongTensor([x.shape[0], 1]),
    lambda x: torch.Tensor([x.shape[0], 1]),
]


@pytest.mark.parametrize("program", CONSTRUCTORS)
def test_constructors_of_tensor_classes_are_operations(program: Callable[[Tensor], Any]) -> None:
    gm = trace(program, (X,))
    for x in (X, OTHER):
        assert torch.equal(gm(x), program(x)) and gm(x).dtype == program(x).dtype


def plain_numbers(x: Tensor) -> Tensor:
    n = x.size(0)
    try:
        kept = collections.deque([1, 2, 3, 4], maxlen=n)
        scale = float(decimal.Decimal(n) * n) + abs(n * 1j) + math.ldexp(1.0, n) + int.__add__(n, 1)
        text = json.dumps([n])
    except TypeError:
        return -x
    return x * scale * len(kept) * len(text)


def plain_numbers_uncaught(x: Tensor) -> Tensor:
    kept = collections.deque([1, 2, 3, 4], maxlen=x.size(0))
    return x * len(kept) + datetime.timedelta(x.size(1)).days


def fails_itself(x: Tensor) -> Tensor:
    seen: list[Any] = []

    def text(total: Any, value: Any) -> Any:
        seen.append(value)
        return "a" + value

    try:
        functools.reduce(text, [x.size(0), 1])
    except TypeError:
        return x * len(seen)
    return x


def test_a_function_of_the_program_runs_once_that_fails() -> None:
    assert torch.equal(trace(fails_itself, (X,))(X), fails_itself(X))


@pytest.mark.parametrize("program", [plain_numbers, plain_numbers_uncaught])
def test_functions_in_c_that_take_no_numbers_but_plain_ones_get_those_of_the_example(program: Any) -> None:
    gm = trace(program, (X,))
    assert torch.equal(gm(X), program(X))
    with pytest.raises(GuardError):
        gm(OTHER)
