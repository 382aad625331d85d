"""Captures in many threads at once, while others run the same modules: nobody notices anybody."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from tests.capture.untouched import models, untouched
from torch import nn

from graphwright import symbolic_trace, trace


@pytest.fixture
def _impatient_threads() -> Iterator[None]:
    """Have the interpreter change threads a hundred times as often."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(5e-5)
    yield
    sys.setswitchinterval(before)


def _texts(model: nn.Module) -> tuple[str, str]:
    gm = trace(model, torch.linspace(-1.0, 2.0, 12).view(3, 4))
    return str(gm.graph), gm.code


def _flat(value: Any) -> list[torch.Tensor]:
    return [value] if isinstance(value, torch.Tensor) else list(value)


class _Training(nn.Module):
    """Draws from the generator of the process."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.BatchNorm1d(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x) + torch.rand(4)  # type: ignore[no-any-return]


def _run_beside(work: Callable[[], None], others: list[Callable[[], None]]) -> None:
    """Call each of `others` over and over in a thread of its own until `work` is done; raise what any raises."""
    done = threading.Event()

    def repeat(run: Callable[[], None]) -> int:
        count = 0
        while not done.is_set():
            run()
            count += 1
        return count

    with ThreadPoolExecutor(len(others)) as pool:
        running = [pool.submit(repeat, run) for run in others]
        try:
            work()
        finally:
            done.set()
        assert all(each.result() > 0 for each in running)


def _capture_in_threads(times: int) -> None:
    """Capture in eight threads, two run the models and an unrelated one; compare with what one thread gave."""
    captured = models()
    x = torch.randn(3, 4)
    expected = [_texts(model) for model in captured]
    assert [_texts(model) for model in reversed(captured)] == expected[::-1]  # whatever was captured before
    results = [_flat(model(x)) for model in captured]

    unrelated = _Training()
    before = [value.clone() for value in unrelated.state_dict().values()]
    torch.manual_seed(7)
    draws = [unrelated(x).detach() for _ in range(200)]
    for value, start in zip(unrelated.state_dict().values(), before, strict=True):
        value.copy_(start)
    torch.manual_seed(7)
    waiting = iter(draws)

    def run_models() -> None:
        for model, result in zip(captured, results, strict=True):
            if type(model).__name__ == "Selecting":  # draws random numbers, which the other thread compares
                continue
            for now, known in zip(_flat(model(x)), result, strict=True):
                assert torch.equal(now, known)

    def run_unrelated() -> None:
        known = next(waiting, None)
        if known is not None:
            assert torch.equal(unrelated(x), known)
        assert type(torch.compiler.is_compiling() or False) is bool

    def capture(number: int) -> None:
        for turn in range(times):
            for i in ((number + turn) % len(captured), (number * 3 + turn + 1) % len(captured)):
                assert _texts(captured[i]) == expected[i], type(captured[i]).__name__

    def capture_in_eight() -> None:
        with ThreadPoolExecutor(8) as pool:
            for each in [pool.submit(capture, number) for number in range(8)]:
                each.result()

    with untouched(*captured):
        _run_beside(capture_in_eight, [run_models, run_unrelated])


@pytest.mark.usefixtures("_impatient_threads")
@pytest.mark.slow
def test_captures_in_eight_threads() -> None:
    _capture_in_threads(1)


@pytest.mark.slow
@pytest.mark.usefixtures("_impatient_threads")
def test_many_captures_in_each_of_eight_threads() -> None:
    _capture_in_threads(15)


@pytest.mark.usefixtures("_impatient_threads")
def test_symbolic_traces_in_threads() -> None:
    class Plain(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.linear = nn.Linear(4, width)
            self.scale = nn.Parameter(torch.ones(width))

        def forward(self, x: Any) -> Any:
            return torch.relu(self.linear(x)) * self.scale

    nets = [Plain(width) for width in range(2, 6)]
    expected = [str(symbolic_trace(net).graph) for net in nets]
    x = torch.randn(2, 4)
    results = [net(x) for net in nets]

    def run() -> None:
        for net, result in zip(nets, results, strict=True):
            assert torch.equal(net(x), result)

    def capture() -> None:
        for _ in range(10):
            for net, text in zip(nets, expected, strict=True):
                assert str(symbolic_trace(net).graph) == text

    def capture_in_four() -> None:
        with ThreadPoolExecutor(4) as pool:
            for each in [pool.submit(capture) for _ in range(4)]:
                each.result()

    with untouched(*nets):
        _run_beside(capture_in_four, [run])


def test_what_was_captured_before_changes_no_graph() -> None:
    def helper(x: Any, n: Any) -> Any:
        print(x.shape[0] + n)
        if n > 2:
            return x + n
        return x - 1

    def asks(x: Any, n: Any) -> Any:
        return helper(x, n)

    def does_not_ask(x: Any) -> Any:
        return helper(x, 1)

    first = trace(does_not_ask, torch.ones(3)).code
    trace(asks, (torch.ones(3), 2))
    assert trace(does_not_ask, torch.ones(3)).code == first
