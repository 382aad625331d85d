"""Captures that end half-way, by an interrupt, by an error of the program or of the capture: nothing is left behind."""

from __future__ import annotations

import gc
import logging
import os
import random
import sys
from types import FrameType
from typing import Any

import pytest
import torch
from tests.capture.untouched import models, untouched
from torch import nn

from graphwright import CaptureError, trace
from graphwright.source import is_internal

X = torch.linspace(-1.0, 2.0, 12).view(3, 4)


class _Interrupt:
    """Raises KeyboardInterrupt where Python itself would: when a function begins, when C code has returned."""

    def __init__(self, at: int = -1) -> None:
        self.at = at
        self.count = 0

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event in ("call", "c_return") and not _ends_the_process(frame):
            self.count += 1
            if self.count == self.at:
                raise KeyboardInterrupt

    def during(self, model: nn.Module) -> bool:
        """Capture a model; tell whether that was interrupted."""
        sys.setprofile(self)
        try:
            trace(model, X)
        except KeyboardInterrupt:
            return True
        finally:
            sys.setprofile(None)
        return False


# What torch's C++ calls in the middle of an operation, partly where it can bear no exception: Python's own interrupts
# end the process there, too. What counts the calls of a `__torch_dispatch__` is called "wrapper".
_CALLED_BY_TORCH = frozenset({"__torch_dispatch__", "wrapper", "find_torch_dispatch_rule", "__hash__", "inner", "_fn"})


def _ends_the_process(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_name in _CALLED_BY_TORCH and is_internal(frame.f_code.co_filename):
            return True
        frame = frame.f_back
    return False


def _points(model: nn.Module) -> int:
    counter = _Interrupt()
    counter.during(model)
    return counter.count


def _interrupt(times: int) -> None:
    chosen = random.Random(11)
    for model in models()[::2]:
        code = trace(model, X).code
        points = _points(model)
        result = model(X)
        interrupted = 0
        with untouched(model) as check:
            for point in sorted(chosen.sample(range(1, points), times)):
                interrupted += _Interrupt(point).during(model)  # Python prints, and ignores, what a finalizer raises
                try:
                    check()
                    assert type(torch.compiler.is_compiling()) is bool
                    assert type(torch.ones(1) + 1) is torch.Tensor
                    assert logging.Logger.handle.__module__ == "logging"
                    assert not logging.getLogger("torch._subclasses.fake_tensor").filters
                except AssertionError as error:
                    raise AssertionError(f"interrupted at {point} of {points}: {error}") from None
            assert trace(model, X).code == code
        assert interrupted >= 0.9 * times - 1
        for now, known in zip(_flat(model(X)), _flat(result), strict=True):
            assert torch.equal(now, known)


def _flat(value: Any) -> list[torch.Tensor]:
    return [value] if isinstance(value, torch.Tensor) else list(value)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.slow
def test_interrupted_captures() -> None:
    _interrupt(8)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_captures_interrupted_at_many_points() -> None:
    _interrupt(80)


class Failing(nn.Module):
    """Raises, or asks what cannot be answered, inside of a module, a region and a branch."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.linear = nn.Linear(4, 4)
        self.seen: list[int] = []

    def forward(self, x: Any) -> Any:
        self.seen.append(len(self.how))
        with torch.no_grad(), torch.autocast("cpu", enabled=False):
            if x.sum() > 0:
                x = self.linear(x)
            if self.how == "error":
                raise KeyError("a model of its own mind")
            if self.how == "refusal":
                return x.data_ptr()
            return x.view(7, 7, 7)


@pytest.mark.parametrize("how", ["error", "refusal", "shape"])
def test_failed_captures(how: str) -> None:
    model = Failing(how)
    with untouched(model):
        with pytest.raises((KeyError, CaptureError, RuntimeError)):
            trace(model, X)
        assert model.seen == []
    assert type(torch.compiler.is_compiling()) is bool


def closes(x: torch.Tensor) -> torch.Tensor:
    files = [open(os.devnull) for _ in range(2)]
    try:
        for _ in range(4):
            if x.sum() > 9:  # a second pass ends here
                break
            x = x * 2
    finally:
        try:
            while len(files) > 1:
                files.pop().close()
        finally:
            for file in files:
                file.close()
    return x


@pytest.mark.filterwarnings("ignore:at test_interruption")
def test_what_a_pass_begins_is_ended_by_its_finally() -> None:
    gm = trace(closes, (torch.ones(2),))
    for x in (torch.ones(2), torch.full((2,), 5.0)):
        assert torch.equal(gm(x), closes(x))
    gc.collect()  # which tells of open files
