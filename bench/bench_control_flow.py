"""Time programs with loops on data, captured, against eager, torch.jit.script and torch.compile.

    python bench/bench_control_flow.py [--check] [--margin 1.02]

Takes a minute or two, most of it torch.compile's. Each program is a module as torch.jit.script takes it, so that all
four run the same source. A second table has the hand-written models of the zoo, captured against eager, where the zoo
lies beside the checkout or in the folder that ZOO names.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import functools
import importlib
import io
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import nn

import graphwright
from results import duration, versions
from timing import Case, interleave, runnable

ROUNDS = 61
GOAL = 1.0  # of eager's time


class GreedyDecoder(nn.Module):
    """Greedy decoding until every row has produced the end, or 32 steps."""

    def __init__(self, words: int = 100, width: int = 32) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.head = nn.Linear(width, words)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        done = torch.zeros(ids.shape[0], dtype=torch.bool)
        for _ in range(32):
            hidden = torch.tanh(self.embedding(ids).mean(1)) + self.embedding(ids[:, -1])
            token = self.head(hidden).argmax(-1)
            token = torch.where(done, torch.zeros_like(token), token)
            ids = torch.cat([ids, token[:, None]], 1)
            done = done | (token % 16 == 0)
            if bool(done.all()):
                break
        return ids


class Reader(nn.Module):
    """A recurrent cell over a sequence of any length, in a list of outputs."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = torch.zeros_like(x[0])
        outputs = []
        for t in range(x.shape[0]):
            state = torch.tanh(self.inner(x[t]) + self.outer(state))
            if bool(state.abs().max() > 0.99):
                state = state * 0.5
            outputs.append(state)
        return torch.stack(outputs)


class Newton(nn.Module):
    """Square roots by Newton's method, until they are close enough."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        root = x
        while bool((root * root - x).abs().max() > 1e-4):
            root = (root + x / root) / 2
        return root


SUBJECTS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "greedy decoder": (GreedyDecoder, (torch.randint(1, 100, (4, 8)),)),
    "recurrent reader": (Reader, (torch.randn(24, 4, 32),)),
    "Newton": (Newton, (torch.rand(64) * 90 + 10,)),
}


def main() -> int:
    """Print the table; return 1 if `--check` is given and a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--check", action="store_true", help="exit with 1 if a goal is missed")
    parser.add_argument("--margin", type=float, default=1.0, help="let a ratio be this many times its goal (noise)")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)  # torch.compile tells of every graph break
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(f"{versions()}; CPU time on one thread, median over {ROUNDS} rounds, ratios to eager in the same round\n")
    print("| program | eager | graphwright | torch.jit.script | torch.compile | goal | |")
    print(f"|{'---|' * 7}")
    good = True
    for name, (kind, args) in SUBJECTS.items():
        module = kind().eval()
        captured = graphwright.trace(module, args)
        torch.testing.assert_close(captured(*args), module(*args))
        programs = {
            "eager": module,
            "graphwright": captured,
            "torch.jit.script": torch.jit.script(module),
            "torch.compile": torch.compile(module, dynamic=True),
        }
        with torch.no_grad():
            cases = [Case(name, functools.partial(_repeat, run, args)) for name, run in programs.items()]
            found = {m.name: m for m in interleave(runnable(cases), baseline="eager", rounds=ROUNDS)}
        ours = found["graphwright"]
        passed = ours.ratio <= GOAL * options.margin
        good &= passed
        others = [f"{found[name].ratio:.2f}" if name in found else "refused" for name in list(programs)[2:]]
        cells = [
            name, duration(found["eager"].median_s / 5),
            f"{ours.ratio:.3f} ({ours.lowest_ratio:.2f}..{ours.highest_ratio:.2f})", *others, f"<= {GOAL}",
            "pass" if passed else "FAIL",
        ]  # fmt: skip
        print(f"| {' | '.join(cells)} |", flush=True)
    good &= _hand_written(options.margin)
    return int(options.check and not good)


def _hand_written(margin: float) -> bool:
    """Print the table of the zoo's hand-written models; tell whether all reach the goal."""
    good = True
    models = list(_models())
    if models:
        print("\n| hand-written model | eager | graphwright | instructions of Python | goal | |")
        print(f"|{'---|' * 6}")
    for name, module, args, kwargs in models:
        torch.manual_seed(0)
        captured = graphwright.trace(module, copy.deepcopy(args), copy.deepcopy(kwargs))
        run = functools.partial(_repeat_copied, args=args, kwargs=kwargs)
        cases = [Case("eager", functools.partial(run, module)), Case("graphwright", functools.partial(run, captured))]
        with torch.no_grad(), contextlib.redirect_stdout(io.StringIO()):
            found = {m.name: m for m in interleave(runnable(cases), baseline="eager", rounds=ROUNDS)}
        ours = found["graphwright"]
        passed = ours.ratio <= GOAL * margin
        good &= passed
        ratio = f"{ours.ratio:.3f} ({ours.lowest_ratio:.2f}..{ours.highest_ratio:.2f})"
        verdict = "pass" if passed else "FAIL"
        steps = " -> ".join(str(_instructions(program, args, kwargs)) for program in (module, captured))
        eager = duration(found["eager"].median_s / 5)
        print(f"| {name} | {eager} | {ratio} | {steps} | <= {GOAL} | {verdict} |", flush=True)
    return good


def _instructions(run: Any, args: Any, kwargs: Any) -> int:
    """How many instructions of Python one call executes, which no other load on the machine changes."""
    count = 0

    def step(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return step

    given = copy.deepcopy(args)
    with torch.no_grad(), contextlib.redirect_stdout(io.StringIO()):
        run(*copy.deepcopy(args), **kwargs)
        torch.manual_seed(0)
        sys.settrace(step)
        try:
            run(*given, **kwargs)
        finally:
            sys.settrace(None)
    return count


def _models() -> Iterator[tuple[str, nn.Module, Any, Any]]:
    """The hand-written models of the zoo with their inputs; none where there is no zoo."""
    folder = Path(os.environ.get("ZOO") or Path(__file__).resolve().parents[2] / "shared" / "zoo")
    if not (folder / "zoo_classic.py").exists():
        return
    sys.path.insert(0, str(folder))
    for name, entry in importlib.import_module("zoo").ZOO.items():
        if entry.set == "classic":
            torch.manual_seed(0)
            args, kwargs = entry.inputs(entry.batch, (entry.sizes or (4, 6))[0], 0)
            yield name.removeprefix("classic/"), entry.build().eval(), args, kwargs


def _repeat_copied(run: Any, args: Any, kwargs: Any) -> None:
    for _ in range(5):
        given = [value.clone() if isinstance(value, torch.Tensor) else value for value in args]
        run(*given, **kwargs)


def _repeat(run: Any, args: Any) -> None:
    for _ in range(5):
        run(*args)


if __name__ == "__main__":
    sys.exit(main())
