"""Measure a call of captured modules against the model itself: as `trace` gives them, and inlined.

    python bench/bench_inference.py [--check] [--margin 1.02] [--seconds 20] [--models mlp8x64 gpt_step]

Batch 1, one thread, under no_grad; a few minutes. Both are first checked to compute what the model computes. A sample
is a number of calls, about two milliseconds of them; each round samples every side once, in rotating order. A ratio is
that of the medians, and beside it that of the fastest samples, which other programs on the same machine disturb least.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

import graphwright
import models
from results import versions

ROUNDS_AT_LEAST = 7
SAMPLE_S = 0.002


@dataclass(frozen=True, slots=True)
class Goals:
    """The ratios to the model itself that a call of its captured module has to stay below."""

    traced: float = 1.0
    inlined: float = 1.0


GOALS = {
    "mlp8x64": Goals(inlined=0.40),
    "gpt_step": Goals(inlined=0.75),
    "mobilenet_v3_small": Goals(),
    "resnet18": Goals(),
    "vit_tiny": Goals(),
    "minilm": Goals(),
}


def program(name: str) -> tuple[nn.Module, tuple[Any, ...]]:
    """A model by name, and what it is called with."""
    if name == "gpt_step":  # one token
        return models.build("gpt4"), (torch.zeros(1, 1, dtype=torch.long), torch.zeros(1, 1, dtype=torch.long))
    if name == "minilm":
        return _minilm(), (torch.randint(0, 1000, (1, 128), generator=torch.Generator().manual_seed(0)),)
    return models.build(name), models.inputs(name)


def _minilm() -> nn.Module:
    """The encoder of all-MiniLM-L6-v2, with fewer words. Raises ImportError without transformers."""
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=1000, hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536
    )
    return BertModel(config, add_pooling_layer=False).eval().requires_grad_(False)


def sides(model: nn.Module, inputs: tuple[Any, ...]) -> dict[str, Callable[[], Any]]:
    """The calls to time, checked to agree."""
    traced = graphwright.trace(model, inputs)
    modules = {"eager": model, "traced": traced, "inlined": graphwright.inline(traced)}
    for module in modules.values():
        torch.testing.assert_close(_first(module(*inputs)), _first(model(*inputs)), rtol=1e-4, atol=1e-5)
    return {name: lambda module=module: module(*inputs) for name, module in modules.items()}


def _first(value: Any) -> torch.Tensor:
    return value if isinstance(value, torch.Tensor) else value[0]


def measure(calls: dict[str, Callable[[], Any]], seconds: float) -> dict[str, list[float]]:
    """Sample each call in rotating order for so many seconds; microseconds of CPU time a call."""
    counts = {name: max(1, round(SAMPLE_S / max(_sample(call, 3), 1e-6))) for name, call in calls.items()}
    times: dict[str, list[float]] = {name: [] for name in calls}
    names, start, turn = list(calls), time.monotonic(), 0
    while turn < ROUNDS_AT_LEAST or time.monotonic() - start < seconds:
        first = turn % len(names)
        for name in (*names[first:], *names[:first]):
            times[name].append(_sample(calls[name], counts[name]) * 1e6)
        turn += 1
    return times


def _sample(call: Callable[[], Any], count: int) -> float:
    call()  # untimed, for the caches
    start = time.process_time()
    for _ in range(count):
        call()
    return (time.process_time() - start) / count


def main() -> int:
    """Print a line for each model; with `--check`, answer 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="exit with 1 where a goal is missed")
    parser.add_argument("--margin", type=float, default=1.02, help="how far above a goal still passes")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long to sample each model")
    parser.add_argument("--models", nargs="+", choices=list(GOALS), default=list(GOALS))
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(versions())
    print(f"{'model':20} {'eager us':>10} {'side':>8} {'ratio':>6} {'of min':>7} {'goal':>5}")
    missed = 0
    for name in options.models:
        with torch.no_grad():
            try:
                calls = sides(*program(name))
            except ImportError as error:
                print(f"{name:20} absent: {error}")
                continue
            times = measure(calls, options.seconds)
        eager = times["eager"]
        for side, goal in (("traced", GOALS[name].traced), ("inlined", GOALS[name].inlined)):
            ratio, best = statistics.median(times[side]) / statistics.median(eager), min(times[side]) / min(eager)
            is_met = ratio <= goal * options.margin
            missed += not is_met
            median = f"{statistics.median(eager):10.1f}" if side == "traced" else " " * 10
            title = name if side == "traced" else ""
            verdict = "pass" if is_met else "miss"
            print(f"{title:20} {median} {side:>8} {ratio:6.2f} {best:7.2f} {goal:5.2f} {verdict}", flush=True)
    return 1 if options.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
