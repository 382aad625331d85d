"""Measure a call of captured modules against the model itself: as `trace` gives them, inlined, and optimized.

    python bench/bench_inference.py [--check] [--margin 1.02] [--seconds 15] [--models mlp8x64 gpt_step]
                                    [--without inductor bf16]

Batch 1, one thread, under no_grad; a quarter of an hour. Where there is a CUDA device, ResNet-50, a ViT and GPT-2 are
measured on it, too, see `cuda_inference.py`. The sides are

    traced, inlined       what `trace` and `inline` give
    own, auto             what `optimize_for_inference` gives, of PyTorch's kernels alone and of all engines
    bf16                  own, with precision="bf16"
    onnxruntime           the model exported at the size of its input, in a module that takes and gives tensors
    inductor              torch.compile

All are first checked to compute what the model computes. A sample is a number of calls, about two milliseconds of them;
each round samples every side once, in rotating order. A ratio is that of the medians, and beside it that of the fastest
samples, which other programs on the same machine disturb least. `auto` is also compared with the best engine of the
same run, and preparing it with preparing inductor.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

import cuda_inference
import graphwright
import models
from graphwright.errors import GraphwrightError
from results import versions

ROUNDS_AT_LEAST = 7
SAMPLE_S = 0.002


@dataclass(frozen=True, slots=True)
class Goals:
    """The ratios to the model itself that a call of its captured module has to stay below."""

    traced: float = 1.0
    inlined: float = 1.0
    own: float = 1.0
    auto: float = 1.0
    bf16: float = 1.0


GOALS = {
    "mlp8x64": Goals(inlined=0.40, own=0.30, auto=0.20),
    "gpt_step": Goals(inlined=0.75, own=0.60, auto=0.42),
    "mobilenet_v3_small": Goals(own=0.45, auto=0.24),
    "efficientnet_lite0": Goals(own=0.45, auto=0.24),
    "resnet18": Goals(own=0.60, auto=0.50),
    "resnet50": Goals(own=0.55, auto=0.40),
    "vit_tiny": Goals(),
    "vit_small": Goals(own=0.55, auto=0.44, bf16=0.45),
    "minilm": Goals(own=0.55, auto=0.49, bf16=0.40),
}
SIDES = ("eager", "traced", "inlined", "own", "auto", "bf16", "onnxruntime", "inductor")
OF_BEST, OF_BEST_US = 1.05, 5.0  # how much slower than the best engine `auto` may be
OF_INDUCTOR = 0.25  # of the time to prepare it


def program(name: str) -> tuple[nn.Module, tuple[Any, ...]]:
    """A model by name, and what it is called with."""
    if name == "gpt_step":  # one token
        return models.build("gpt4"), (torch.zeros(1, 1, dtype=torch.long), torch.zeros(1, 1, dtype=torch.long))
    if name == "minilm":
        return _minilm(), (torch.randint(0, 1000, (1, 128), generator=torch.Generator().manual_seed(0)),)
    if name in FROM_TIMM:
        return _from_timm(FROM_TIMM[name]), models.inputs("resnet18")
    return models.build(name), models.inputs(name)


FROM_TIMM = {"efficientnet_lite0": "tf_efficientnet_lite0", "vit_small": "vit_small_patch16_224"}


def _from_timm(name: str) -> nn.Module:
    """A model of timm, with random weights. Raises ImportError without timm."""
    models._torchvision()
    import timm

    torch.manual_seed(0)
    return timm.create_model(name, pretrained=False).eval().requires_grad_(False)


def _minilm() -> nn.Module:
    """The encoder of all-MiniLM-L6-v2, with fewer words. Raises ImportError without transformers."""
    models._torchvision()
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=1000, hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536
    )
    return BertModel(config, add_pooling_layer=False).eval().requires_grad_(False)


def sides(
    model: nn.Module, inputs: tuple[Any, ...], without: list[str]
) -> tuple[dict[str, Callable[[], Any]], dict[str, float], dict[str, nn.Module]]:
    """The calls to time, checked to agree; the seconds of CPU time that each was prepared in; and their modules."""
    prepared: dict[str, float] = {}
    calls: dict[str, Callable[[], Any]] = {}
    expected = _first(model(*inputs))
    made: dict[str, nn.Module] = {}
    for side in SIDES:
        if side in without:
            continue
        start = _spent()
        try:
            module = made[side] = _MAKERS[side](model, inputs, made)
            given = _first(module(*inputs))
        except (ImportError, GraphwrightError) as error:
            print(f"   {side}: absent: {str(error).partition(chr(10))[0]}")
            continue
        prepared[side] = _spent() - start
        difference = ((given - expected).abs().max() / expected.abs().max()).item()
        assert difference < (0.05 if side == "bf16" else 1e-4), (side, difference)
        calls[side] = lambda module=module: module(*inputs)
    return calls, prepared, made


def _spent() -> float:
    """Seconds of CPU time of this process and of those that it waited for, such as compilers."""
    return sum(os.times()[:4])


def _optimized(engines: Any, precision: Any = "fp32") -> Callable[..., nn.Module]:
    return lambda model, inputs, made: graphwright.optimize_for_inference(
        model, inputs, engines=engines, precision=precision
    )


class InOnnxRuntime(nn.Module):
    """A model in ONNX Runtime, for tensors of the sizes of its example."""

    def __init__(self, model: nn.Module, inputs: tuple[Any, ...]) -> None:
        super().__init__()
        from graphwright.onnx.onnxruntime_engine import open_program

        self.session = open_program(model, inputs, torch.get_num_threads())

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        return self.session(*tensors)[0]


def _compiled(model: nn.Module, inputs: tuple[Any, ...], made: Any) -> nn.Module:
    torch.compiler.reset()
    return torch.compile(model)


_MAKERS: dict[str, Callable[..., nn.Module]] = {
    "eager": lambda model, inputs, made: model,
    "traced": lambda model, inputs, made: graphwright.trace(model, inputs),
    "inlined": lambda model, inputs, made: graphwright.inline(made["traced"]),
    "own": _optimized(("torch",)),
    "auto": _optimized("auto"),
    "bf16": _optimized(("torch",), "bf16"),
    "onnxruntime": lambda model, inputs, made: InOnnxRuntime(made["traced"], inputs),
    "inductor": _compiled,
}


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
    parser.add_argument("--seconds", type=float, default=15.0, help="how long to sample each model")
    parser.add_argument("--models", nargs="+", choices=list(GOALS), default=list(GOALS))
    parser.add_argument("--without", nargs="+", choices=SIDES[3:], default=[], help="sides to leave out")
    options = parser.parse_args()
    torch.set_num_threads(1)
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", tempfile.mkdtemp())  # inductor is prepared from nothing, too
    print(versions())
    print(f"{'model':20} {'eager us':>10} {'side':>12} {'ratio':>6} {'of min':>7} {'ready s':>8} {'goal':>5}")
    missed = 0
    for name in options.models:
        with torch.no_grad():
            try:
                model, inputs = program(name)
            except ImportError as error:
                print(f"{name:20} absent: {error}")
                continue
            calls, prepared, made = sides(model, inputs, options.without)
            times = measure(calls, options.seconds)
        missed += _print_sides(name, times, prepared, options.margin)
        missed += _print_of_best(times, prepared, options.margin)
        if "auto" in made:
            print(f"{'':31} {'auto':>12} runs on {made['auto'].report.program.runs_on}", flush=True)
    cuda_inference.main(options.seconds)
    return 1 if options.check and missed else 0


def _print_sides(name: str, times: dict[str, list[float]], prepared: dict[str, float], margin: float) -> int:
    """Print a line for each side; give how many missed their goals."""
    eager, missed = times["eager"], 0
    print(f"{name:20} {statistics.median(eager):10.1f}")
    for side in list(times)[1:]:
        goal = getattr(GOALS[name], side, None)
        ratio, best = statistics.median(times[side]) / statistics.median(eager), min(times[side]) / min(eager)
        is_met = goal is None or ratio <= goal * margin
        missed += not is_met
        verdict = "" if goal is None else f"{goal:5.2f} {'pass' if is_met else 'miss'}"
        print(f"{'':31} {side:>12} {ratio:6.2f} {best:7.2f} {prepared[side]:8.1f} {verdict}", flush=True)
    return missed


def _print_of_best(times: dict[str, list[float]], prepared: dict[str, float], margin: float) -> int:
    """Print how `auto` compares with the best engine, and its preparation with inductor's; give the misses."""
    engines = [statistics.median(times[side]) for side in ("onnxruntime", "inductor") if side in times]
    if "auto" not in times or not engines:
        return 0
    auto, best = statistics.median(times["auto"]), min(engines)
    is_met = auto <= (OF_BEST * best + OF_BEST_US) * margin
    verdict = "pass" if is_met else "miss"
    print(f"{'':31} {'auto/best':>12} {auto / best:6.2f} {auto - best:+7.1f} us {'':5} {OF_BEST:5.2f} {verdict}")
    if "inductor" not in prepared:
        return int(not is_met)
    ratio = prepared["auto"] / prepared["inductor"]
    is_ready = ratio <= OF_INDUCTOR
    verdict = "pass" if is_ready else "miss"
    print(f"{'':31} {'ready':>12} {ratio:6.2f} {'of inductor':>16} {OF_INDUCTOR:5.2f} {verdict}")
    return int(not is_met) + int(not is_ready)


if __name__ == "__main__":
    sys.exit(main())
