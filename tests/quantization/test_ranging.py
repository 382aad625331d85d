"""Ranges of values are those of the least error in what the layers that read them give."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from graphwright.quantization import calibrate, convert, prepare, quantization_of, sqnr, static_int8


class Readers(nn.Module):
    """Three layers that read one value, which a module before them makes."""

    def __init__(self, make: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.before, self.one, self.two, self.three = nn.Identity(), make(), make(), make()

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(x) * x.abs() ** 2
        return torch.cat([self.one(x), self.two(x), self.three(x)], 1)


CASES: dict[str, tuple[Any, tuple[int, ...]]] = {
    "linear, more outputs than inputs": (lambda: nn.Linear(16, 24), (256, 16)),
    "linear, fewer outputs than inputs": (lambda: nn.Linear(16, 2), (256, 16)),
    "convolution": (lambda: nn.Conv2d(4, 6, 3, padding=1), (4, 4, 40, 24)),
    "wide convolution without bias": (lambda: nn.Conv1d(4, 6, 5, dilation=10, bias=False), (4, 4, 90)),
    "transposed convolution": (lambda: nn.ConvTranspose2d(4, 6, 2), (4, 4, 8, 8)),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", CASES)
def test_what_is_chosen_loses_no_more_than_the_range_of_all_values(name: str) -> None:
    make, shape = CASES[name]
    model, batches = Readers(make).eval(), [torch.randn(shape) for _ in range(2)]
    lost = {}
    for observer in ("histogram", "minmax"):
        config = static_int8(observer, smooth=False, correct_bias=False)
        converted = convert(calibrate(prepare(model, config, batches[0]), batches))
        expected, given = (torch.cat([each(x) for x in batches]).detach() for each in (model, converted))
        lost[observer] = sqnr(expected, given)
    assert lost["histogram"] > max(lost["minmax"] - 0.3, 30.0)


def test_small_batches_say_as_much_as_large_ones() -> None:
    model = nn.Linear(16, 4).eval()
    torch.manual_seed(0)
    batches = [torch.randn(1, 16).clamp(-1, 1) for _ in range(3)] + [torch.randn(1, 16) for _ in range(12)]
    calibrated = calibrate(prepare(model, static_int8(smooth=False, correct_bias=False), batches[0]), batches)
    converted = convert(calibrated)
    lost = [sqnr(model(x).detach(), converted(x).detach()) for x in batches]
    assert min(lost) > 28.0
    together = sqnr(*(torch.cat([each(x) for x in batches]).detach() for each in (model, converted)))
    told = next(row.sqnr for row in quantization_of(converted).rows)
    assert told is not None and abs(told - together) < 1.0
