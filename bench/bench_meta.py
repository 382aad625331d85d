"""Measure the capture of a Llama without data, up to 405.9 billion parameters: flat with stages made of it, and nested.

    python bench/bench_meta.py [--layers 32 64 126] [--target eager] [--check]

Every capture is made in a process of its own, so that memory is counted from the same start; nested ones copy layers
alike. Takes a minute and a half.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time

import torch
from torch import nn

import graphwright
from graphwright.distributed import pipeline
from models import _torchvision
from results import versions

GOAL_S, GOAL_MIB = 10.0, 150.0  # of the largest, flat
NESTED_GOAL_S, NESTED_GOAL_MIB = 4.0, 100.0


def llama(layers: int) -> nn.Module:
    """The Llama of transformers with the sizes of 405B, on the meta device."""
    _torchvision()
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=128256, hidden_size=16384, intermediate_size=53248, num_hidden_layers=layers,
        num_attention_heads=128, num_key_value_heads=8, max_position_embeddings=131072, use_cache=False,
    )  # fmt: skip
    with torch.device("meta"):
        return LlamaForCausalLM(config)


def memory_mib() -> float:
    """The most memory that this process had so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure_nested(layers: int) -> bool:
    """Print what one size costs as nested graphs, and tell whether it is within the goals."""
    model, inputs = _prepared(layers)
    before, started = memory_mib(), time.process_time()
    nested = graphwright.trace(model, (), inputs, flat=False)
    capture_s, grown = time.process_time() - started, memory_mib() - before
    graphs = {id(module.graph): module.graph for module in nested.modules() if hasattr(module, "graph")}
    nodes = sum(len(graph.nodes) for graph in graphs.values())
    costs = f"capture {capture_s:5.2f} s CPU  {grown:4.0f} MiB"
    print(f"{layers:4} layers  nested                 {nodes:6} nodes  {costs}")
    return capture_s <= NESTED_GOAL_S and grown <= NESTED_GOAL_MIB


def _prepared(layers: int) -> tuple[nn.Module, dict[str, torch.Tensor]]:
    """The model and its inputs, after a capture that loads what is loaded at first use."""
    graphwright.trace(nn.Sequential(nn.Linear(2, 2)), torch.ones(1, 2), flat=False)
    return llama(layers), {"input_ids": torch.zeros(2, 128, dtype=torch.int64, device="meta")}


def measure(layers: int, target: str) -> bool:
    """Print what one size costs, flat, and tell whether it is within the goals."""
    model, inputs = _prepared(layers)
    before, started = memory_mib(), time.process_time()
    gm = graphwright.trace(model, (), inputs, target=target)  # type: ignore[arg-type]
    capture_s, grown = time.process_time() - started, memory_mib() - before
    started = time.process_time()
    cuts = [f"model.layers.{i}" for i in range(layers % 8 or 8, layers, 8)] or ["lm_head"]
    stages = pipeline(gm, at=cuts, kwargs=inputs, output="logits")
    stages_s = time.process_time() - started
    parameters = sum(parameter.numel() for parameter in model.parameters())
    nodes = sum(1 for _ in gm.graph.all_nodes())
    print(
        f"{layers:4} layers  {parameters / 1e9:6.1f}e9 parameters  {nodes:6} nodes  capture {capture_s:5.2f} s CPU"
        f"  {grown:4.0f} MiB  {len(stages):2} stages {stages_s:5.2f} s CPU"
    )
    return capture_s <= GOAL_S and grown <= GOAL_MIB


def main() -> None:
    """Measure each size in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--layers", type=int, nargs="+", default=[32, 64, 126])
    parser.add_argument("--target", default="eager", choices=["eager", "export"])
    parser.add_argument("--check", action="store_true", help="exit with 1 where a goal is missed")
    parser.add_argument("--here", choices=["flat", "nested"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        layers = options.layers[0]
        sys.exit(not (measure(layers, options.target) if options.here == "flat" else measure_nested(layers)))
    print(versions(), f"target={options.target}")
    missed = False
    for layers in options.layers:
        for form in ("flat", "nested"):
            command = [sys.executable, __file__, "--here", form, "--layers", str(layers), "--target", options.target]
            missed |= subprocess.run(command, check=False).returncode != 0
    sys.exit(missed and options.check)


if __name__ == "__main__":
    main()
