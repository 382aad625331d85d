"""Measure captured, recorded and optimized modules on a CUDA device against the model and torch.compile.

    python bench/cuda_inference.py

Without a device it says so and is done. Each side is first checked to compute what the model computes; then all are
timed by turns, from the first launch to the last kernel. There are no goals.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import graphwright
import models
from results import versions

ROUNDS_AT_LEAST = 7
SAMPLE_S = 0.02


Inputs = dict[str, torch.Tensor]


def _resnet50() -> tuple[nn.Module, Inputs]:
    return models._torchvision().models.resnet50(weights=None), {"x": torch.randn(1, 3, 224, 224)}


def _vit() -> tuple[nn.Module, Inputs]:
    model = models._torchvision().models.vit_b_16(weights=None)
    nn.init.normal_(model.heads.head.weight)  # which is 0
    return model, {"x": torch.randn(1, 3, 224, 224)}


def _gpt2() -> tuple[nn.Module, Inputs]:
    """GPT-2's shape with random weights, on 64 words, with a mask at which it does not look to choose another way."""
    models._torchvision()
    from transformers import GPT2Config, GPT2LMHeadModel

    mask = torch.full((64, 64), float("-inf")).triu(1)[None, None]
    inputs = {"input_ids": torch.randint(0, 1000, (1, 64)), "attention_mask": mask}
    return GPT2LMHeadModel(GPT2Config(use_cache=False)), inputs


PROGRAMS: dict[str, Callable[[], tuple[nn.Module, Inputs]]] = {
    "resnet50": _resnet50,
    "vit_b_16": _vit,
    "gpt2": _gpt2,
}


def _optimized(model: nn.Module, inputs: Inputs) -> nn.Module:
    return graphwright.optimize_for_inference(model, (), inputs, engines=("torch",))


SIDES: dict[str, Callable[[nn.Module, Inputs], nn.Module]] = {
    "eager": lambda model, inputs: model,
    "traced": lambda model, inputs: graphwright.trace(model, (), inputs),
    "recorded": lambda model, inputs: graphwright.cuda_graph(graphwright.trace(model, (), inputs), (), inputs),
    "optimized": _optimized,
    "both": lambda model, inputs: graphwright.cuda_graph(_optimized(model, inputs), (), inputs),
    "reduce-overhead": lambda model, inputs: torch.compile(model, mode="reduce-overhead"),
}


def main(seconds: float = 15.0) -> None:
    """Print a line for each side of each program."""
    if not torch.cuda.is_available():
        print("no CUDA: skipped")
        return
    print(f"{torch.cuda.get_device_name()}; {versions()}")
    print(f"{'model':12} {'side':>16} {'us':>10} {'ratio':>6} {'of min':>7} {'ready s':>8}")
    for name, make in PROGRAMS.items():
        torch.manual_seed(0)
        try:
            model, inputs = make()
        except ImportError as error:
            print(f"{name:12} absent: {error}")
            continue
        model = model.eval().requires_grad_(False).cuda()
        with torch.no_grad():
            _print_sides(name, *_measured(model, {key: value.cuda() for key, value in inputs.items()}, seconds))


def _measured(model: nn.Module, inputs: Inputs, seconds: float) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Microseconds a call of each side, and the seconds in which each was prepared."""
    prepared: dict[str, float] = {}
    calls: dict[str, Callable[[], Any]] = {}
    expected = _first(model(**inputs))
    for side, make in SIDES.items():
        start = time.perf_counter()
        try:
            made = make(model, inputs)
            difference = max(_off(_first(made(**inputs)), expected) for _ in range(3))
        except Exception as error:
            print(f"{'':12} {side:>16} absent: {type(error).__name__}: {str(error).partition(chr(10))[0]}")
            continue
        assert difference < 1e-2, (side, difference)  # convolutions may run in TF32
        prepared[side] = time.perf_counter() - start
        calls[side] = lambda made=made: made(**inputs)
    counts = {side: max(1, round(SAMPLE_S / _sample(call, 3))) for side, call in calls.items()}
    times: dict[str, list[float]] = {side: [] for side in calls}
    names, start, turn = list(calls), time.monotonic(), 0
    while turn < ROUNDS_AT_LEAST or time.monotonic() - start < seconds:
        first = turn % len(names)
        for side in (*names[first:], *names[:first]):
            times[side].append(_sample(calls[side], counts[side]) * 1e6)
        turn += 1
    return times, prepared


def _first(value: Any) -> torch.Tensor:
    return value if isinstance(value, torch.Tensor) else value[0]


def _off(given: torch.Tensor, expected: torch.Tensor) -> float:
    return ((given - expected).abs().max() / expected.abs().max()).item()


def _sample(call: Callable[[], Any], count: int) -> float:
    """Seconds a call, of so many in a row, until the device is done."""
    call()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(count):
        call()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / count


def _print_sides(name: str, times: dict[str, list[float]], prepared: dict[str, float]) -> None:
    eager = times["eager"]
    for side, samples in times.items():
        ratio, best = statistics.median(samples) / statistics.median(eager), min(samples) / min(eager)
        ready = prepared[side]
        print(
            f"{name:12} {side:>16} {statistics.median(samples):10.1f} {ratio:6.2f} {best:7.2f} {ready:8.1f}", flush=True
        )


if __name__ == "__main__":
    main()
