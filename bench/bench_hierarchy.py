"""Measure nested captures: Llamas of 8 to 126 layers, their graphs, their code, and calls beside flat and eager.

    python bench/bench_hierarchy.py [--layers 8 16 64 126] [--check]

Each model is small in width, so that what is measured is the library. Every result is first compared with the model's.
Times of nested captures are the best of five, and of calls medians: ratios to eager ones, measured in rounds, one after
the other. Takes two minutes.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

import graphwright
from bench_capture import transformers_here
from results import versions

CAPTURE_GOAL = 2.0  # seconds of 64 layers, of those of 8
CALL_GOAL = 1.02  # seconds of a nested call, of those of an eager one


def model_of(layers: int) -> nn.Module:
    """A Llama with random weights."""
    torch.manual_seed(0)
    transformers = transformers_here()
    config = transformers.LlamaConfig(
        vocab_size=256, hidden_size=128, intermediate_size=256, num_hidden_layers=layers, num_attention_heads=4,
        num_key_value_heads=2, use_cache=False,
    )  # fmt: skip
    model: nn.Module = transformers.LlamaForCausalLM(config).eval()
    return model


def seconds(what: Callable[[], Any]) -> tuple[float, Any]:
    """What something takes, in seconds of this process, and what it gives."""
    gc.collect()
    started = time.process_time()
    given = what()
    return time.process_time() - started, given


def call_times(modules: Sequence[Any], ids: torch.Tensor, rounds: int = 15) -> list[float]:
    """The median time of a call of each module, in interleaved rounds."""
    times: list[list[float]] = [[] for _ in modules]
    with torch.no_grad():
        for _ in range(rounds):
            for module, row in zip(modules, times, strict=True):
                row.append(seconds(lambda module=module: module(ids))[0])
    return [statistics.median(row) for row in times]


def main() -> int:
    """Measure, print, and with --check answer 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, nargs="*", default=[8, 16, 64, 126])
    parser.add_argument("--check", action="store_true", help="fail where a goal is missed")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(versions())
    ids = torch.randint(0, 256, (1, 16))
    graphwright.trace(model_of(2), (ids,))  # what is done once in a process
    print(
        "layers  flat s  nested s  nodes flat  nodes nested  graphs  lines flat  lines nested  call/eager  flat/eager"
    )
    captures: dict[int, float] = {}
    missed = []
    for layers in options.layers:
        model = model_of(layers)
        flat_time, flat = seconds(lambda model=model: graphwright.trace(model, (ids,)))
        times = []
        for _ in range(5):
            taken, nested = seconds(lambda model=model: graphwright.trace(model, (ids,), flat=False))
            times.append(taken)
        captures[layers] = min(times)
        other = torch.randint(0, 256, (2, 9))
        with torch.no_grad():
            assert torch.equal(nested(other).logits, model(other).logits)
        graphs = {id(module.graph): module.graph for module in nested.modules() if hasattr(module, "graph")}
        text = graphwright.source(nested, comments=False)
        eager, called, flat_called = call_times([model, nested, flat], ids)
        print(
            f"{layers:>6}  {flat_time:>6.2f}  {captures[layers]:>8.2f}  {len(flat.graph.nodes):>10}  "
            f"{sum(len(graph.nodes) for graph in graphs.values()):>12}  {len(graphs):>6}  "
            f"{flat.code.count(chr(10)):>10}  {text.count(chr(10)):>12}  {called / eager:>10.3f}  "
            f"{flat_called / eager:>10.3f}"
        )
        if called > CALL_GOAL * eager:
            missed.append(f"{layers} layers: a nested call takes {called / eager:.3f} of eager ({CALL_GOAL})")
    if 8 in captures and 64 in captures:
        ratio = captures[64] / captures[8]
        judged = "pass" if ratio <= CAPTURE_GOAL else "miss"
        print(f"capture of 64 layers / of 8: {ratio:.2f} (goal {CAPTURE_GOAL}): {judged}")
        if ratio > CAPTURE_GOAL:
            missed.append(f"64 layers take {ratio:.2f} times what 8 take ({CAPTURE_GOAL})")
    print("\n".join(["missed:", *missed] if missed else ["all goals met"]))
    return 1 if missed and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
