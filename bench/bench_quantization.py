"""Measure quantized modules against the models they were made of, and against other systems: time, and what is lost.

    python bench/bench_quantization.py [--check] [--margin 1.02] [--seconds 5] [--limit 300] [--models resnet18 minilm]
                                       [--without ao_x86 torchao]

Batch 1 (MiniLM: 8, too), one thread, under no_grad; twenty minutes. The sides are

    own, auto             `static_int8()` as reference program, lowered by engine="torch" and by engine="auto"
    token, search         MiniLM: `dynamic_int8("token")`, and what `search(metric="cosine", target=0.999)` finds
    weight, dynamic       Llama's shape: `weight_only_int8()`, and `dynamic_int8("tensor")`
    int4_round, int4_gptq the same: `weight_only_int4(32)`, rounded and by GPTQ
    ao_*                  torch.ao's FX graph mode for onednn and for x86; for transformers its dynamic quantization
    onnxruntime*          ONNX Runtime's `quantize_static`, and `quantize_dynamic`
    torchao               torchao's configuration of the same kind, in eager
    nncf                  NNCF's `quantize`: a program that rounds floats, whose time is not that of integers; where it
                          is installed: pip install nncf

A sample is a number of calls, about two milliseconds of them; each round samples every side and the model once, in
rotating order. A ratio is that of the medians to the model's, and beside it that of the fastest samples, which other
programs on the same machine disturb least. dB is the SQNR of the outputs on data that no range was found by; of
networks with random weights, that of what the outputs differ by from their mean. Peers are the other systems in the
same run. A side that takes longer than the limit to make is left out.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import math
import os
import signal
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

import quantization_peers as peers
from bench_inference import measure
from graphwright.errors import GraphwrightError
from graphwright.quantization import (
    QConfig,
    QConfigMapping,
    calibrate,
    convert,
    dynamic_int8,
    lower,
    prepare,
    search,
    sqnr,
    static_int8,
    weight_only_int4,
    weight_only_int8,
)
from quantization_subjects import SUBJECTS, Subject
from results import versions

NEVER_ABOVE = 1.02  # of the model's time
BEHIND_PEERS = 0.5  # dB that the best peer may be ahead
COSINE = 0.999  # what `search` is asked for


@dataclass(frozen=True, slots=True)
class Goal:
    """The most of the model's time, and the least dB; share of equal top classes. "peers": as in BEHIND_PEERS."""

    ratio: float | None = None
    decibels: float | str | None = None
    agreement: float | None = None


# By model, and the call that is timed.
GOALS: dict[tuple[str, str], dict[str, Goal]] = {
    ("resnet18", ""): {"own": Goal(0.175, "peers"), "auto": Goal(0.165, "peers")},
    ("mobilenet_v3_small", ""): {"own": Goal(0.52, "peers"), "auto": Goal(0.24, "peers")},
    ("mobilenet_v2", ""): {"own": Goal(0.30, "peers"), "auto": Goal(0.15, "peers")},
    ("resnet50", ""): {"own": Goal(0.160, "peers"), "auto": Goal(0.13, "peers")},
    ("efficientnet_lite0", ""): {"own": Goal(0.24, 20.0, 0.90), "auto": Goal(0.14, 20.0, 0.90)},
    ("minilm", "b1"): {
        "own": Goal(0.27, 20.0),
        "auto": Goal(0.25, 20.0),
        "token": Goal(None, 25.0),
        "search": Goal(0.40),
    },
    ("minilm", "b8"): {"own": Goal(0.26, 20.0), "auto": Goal(0.25, 20.0)},
    ("llama_step", "b1"): {
        "weight": Goal(0.35, 29.0),
        "dynamic": Goal(0.23, 24.0),
        "int4_round": Goal(),
        "int4_gptq": Goal(None, "int4_round + 1"),
    },
}
_CONVOLUTIONS: dict[str, peers.Make] = {
    "ao_onednn": peers.ao_fx("onednn"),
    "ao_x86": peers.ao_fx("x86"),
    "onnxruntime": peers.onnxruntime_static,
    "nncf": peers.nncf,
}
PEERS: dict[str, dict[str, peers.Make]] = {
    # without ao_x86, whose program takes ten times the model's time
    "efficientnet_lite0": {name: make for name, make in _CONVOLUTIONS.items() if name != "ao_x86"},
    "minilm": {
        "ao_dynamic": peers.ao_dynamic,
        "onnxruntime": peers.onnxruntime_static,
        "onnxruntime_dynamic": peers.onnxruntime_dynamic,
        "torchao": peers.torchao("Int8DynamicActivationInt8WeightConfig"),
        "nncf": peers.nncf,
    },
    "llama_step": {"ao_dynamic": peers.ao_dynamic, "torchao": peers.torchao("Int8WeightOnlyConfig")},
}
WITHOUT = (
    "auto",
    "search",
    "ao_onednn",
    "ao_x86",
    "ao_dynamic",
    "onnxruntime",
    "onnxruntime_dynamic",
    "torchao",
    "nncf",
)


# ---- making the sides


class Ours:
    """Reference programs of a model, each made once."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._made: dict[str, nn.Module] = {}

    def make(self, side: str, args: tuple[Tensor, ...]) -> nn.Module:
        """A lowered module for calls like one."""
        how = "own" if side == "auto" else side
        if how not in self._made:
            self._made[how] = self._reference(how)
        return lower(self._made[how], args, engine="auto" if side == "auto" else "torch")  # type: ignore[arg-type]

    def _reference(self, side: str) -> nn.Module:
        subject = self._subject
        config: QConfig | QConfigMapping = static_int8()
        if side == "search":
            config = search(subject.model, config, subject.calibration, "cosine", COSINE)
        elif side in _CONFIGS:
            config = _CONFIGS[side]()
        prepared = prepare(subject.model, config, subject.calibration[0])
        return convert(calibrate(prepared, subject.calibration))


_CONFIGS: dict[str, Callable[[], QConfig]] = {
    "token": lambda: dynamic_int8("token"),
    "weight": weight_only_int8,
    "dynamic": lambda: dynamic_int8("tensor"),
    "int4_round": lambda: weight_only_int4(32),
    "int4_gptq": lambda: weight_only_int4(32, "gptq"),
}


@dataclass
class Side:
    """A module to time, and how it came out on the data to judge by."""

    module: nn.Module
    ready_s: float
    decibels: float
    cosine: float
    agreement: float | None
    times: list[float] = field(default_factory=list)


class _OverLimitError(Exception):
    pass


@contextlib.contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Raise _OverLimitError in what takes longer."""

    def stop(*_: Any) -> None:
        raise _OverLimitError(f"not made within {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def sides_of(name: str, subject: Subject, ours: Ours, call: str, options: Any) -> dict[str, Side]:
    """All sides that can be made, judged; says of others why not."""
    args = subject.timed[call]
    calls = [piece for batch in subject.judged for piece in peers.pieces_of(batch, len(args[0]))]
    expected = _outputs(subject.model, calls)
    makers: dict[str, Callable[[], nn.Module]] = {
        side: lambda side=side: ours.make(side, args) for side in GOALS[name, call]
    }
    for side, make in PEERS.get(name, _CONVOLUTIONS).items():
        makers[side] = lambda make=make: make(subject.model, subject.calibration, args)
    made: dict[str, Side] = {}
    for side, make_it in makers.items():
        if side in options.without:
            continue
        start = time.monotonic()
        try:
            with _limited(options.limit):
                module = make_it()
                seconds = time.monotonic() - start
                made[side] = _judged(module, seconds, expected, _outputs(module, calls), subject)
        except (ImportError, GraphwrightError, _OverLimitError) as error:
            print(f"   {side}: absent: {str(error).partition(chr(10))[0]}", flush=True)
        except Exception as error:  # another system's, which does not take this model
            if side in GOALS[name, call]:
                raise
            print(f"   {side}: fails: {type(error).__name__}: {str(error).partition(chr(10))[0][:100]}", flush=True)
    return made


def _outputs(module: nn.Module, calls: list[tuple[Tensor, ...]]) -> Tensor:
    return torch.cat([module(*args) for args in calls])


def _judged(module: nn.Module, seconds: float, expected: Tensor, given: Tensor, subject: Subject) -> Side:
    same = (expected.argmax(-1) == given.argmax(-1)).double().mean().item() if subject.has_classes else None
    if subject.is_untrained:  # its outputs hardly differ from their mean, which says nothing about inputs
        mean = expected.mean(0)
        expected, given = expected - mean, given - mean
    cosine = torch.cosine_similarity(expected.flatten().double(), given.flatten().double(), 0).item()
    return Side(module, seconds, sqnr(expected, given), cosine, same)


# ---- telling


def tell(name: str, call: str, eager: list[float], sides: dict[str, Side], margin: float) -> int:
    """Print a line for each side; give how many goals were missed."""
    goals, missed = GOALS[name, call], 0
    print(f"{name + ' ' * bool(call) + call:20} {statistics.median(eager):10.0f}")
    best_peer = max((side.decibels for key, side in sides.items() if key not in goals), default=-math.inf)
    for key, side in sides.items():
        ratio = statistics.median(side.times) / statistics.median(eager)
        verdicts = []
        if key in goals:
            wanted = _wanted(goals[key], best_peer, sides)
            ceiling = wanted.ratio if wanted.ratio is not None else NEVER_ABOVE
            verdicts.append(("ratio", f"<= {ceiling:.3g}", ratio <= ceiling * margin))
            if isinstance(wanted.decibels, float):
                verdicts.append(("dB", f">= {wanted.decibels:.1f}", side.decibels >= wanted.decibels))
            if wanted.agreement is not None and side.agreement is not None:
                verdicts.append(("top-1", f">= {wanted.agreement:.2f}", side.agreement >= wanted.agreement))
            if key == "search":
                verdicts.append(("cosine", f">= {COSINE}", side.cosine >= COSINE))
        missed += sum(not is_met for *_, is_met in verdicts)
        said = "; ".join(f"{what} {bound} {'pass' if is_met else 'miss'}" for what, bound, is_met in verdicts)
        top = "" if side.agreement is None else f"{side.agreement:.3f}"
        print(
            f"{'':31} {key:>19} {ratio:6.3f} {min(side.times) / min(eager):7.3f} {side.decibels:6.1f} "
            f"{side.cosine:8.5f} {top:>6} {side.ready_s:7.1f}  {said}",
            flush=True,
        )
    return missed


def _wanted(goal: Goal, best_peer: float, sides: dict[str, Side]) -> Goal:
    """A goal whose dB is a number, as far as there is what it is compared with."""
    decibels = goal.decibels
    if decibels == "peers":
        decibels = best_peer - BEHIND_PEERS if math.isfinite(best_peer) else None
    elif isinstance(decibels, str):
        other, _, ahead = decibels.partition(" + ")
        decibels = sides[other].decibels + float(ahead) if other in sides else None
    return Goal(goal.ratio, decibels, goal.agreement)


def main() -> int:
    """Print lines for each model; with `--check`, answer 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="exit with 1 where a goal is missed")
    parser.add_argument("--margin", type=float, default=1.02, help="how far above a goal of time still passes")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long to sample each model")
    parser.add_argument("--limit", type=float, default=300.0, help="how many seconds a side may take to be made")
    parser.add_argument("--models", nargs="+", choices=list(SUBJECTS), default=list(SUBJECTS))
    parser.add_argument("--without", nargs="+", choices=WITHOUT, default=[], help="sides to leave out")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    print(f"{versions()}, VNNI {torch.cpu._is_vnni_supported()}, load {os.getloadavg()[0]:.1f}")
    print(_versions_of("torchvision", "transformers", "onnxruntime", "torchao", "nncf"))
    head = f"{'side':>19} {'ratio':>6} {'of min':>7} {'dB':>6} {'cosine':>8} {'top-1':>6} {'ready s':>7}  goals"
    print(f"{'model':20} {'eager us':>10} {head}")
    missed = 0
    for name in options.models:
        start = time.monotonic()
        with torch.no_grad():
            missed += _tell_model(name, options)
        print(f"{'':20} {time.monotonic() - start:9.0f}s in all", flush=True)
    print(f"{missed} goals missed")
    return 1 if options.check and missed else 0


def _tell_model(name: str, options: Any) -> int:
    try:
        subject = SUBJECTS[name]()
    except ImportError as error:
        print(f"{name:20} absent: {error}")
        return 0
    ours, missed = Ours(subject), 0
    for call, args in subject.timed.items():
        sides = sides_of(name, subject, ours, call, options)
        calls: dict[str, Callable[[], Any]] = {"eager": lambda args=args: subject.model(*args)}
        calls |= {key: lambda module=side.module, args=args: module(*args) for key, side in sides.items()}
        times = measure(calls, options.seconds)
        for key, side in sides.items():
            side.times = times[key]
        missed += tell(name, call, times["eager"], sides, options.margin)
    return missed


def _versions_of(*packages: str) -> str:
    from importlib import metadata

    found = []
    for package in packages:
        try:
            found.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            found.append(f"{package} not installed")
    return ", ".join(found)


if __name__ == "__main__":
    sys.exit(main())
