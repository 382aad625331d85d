"""Measure rewriting: replace_pattern and dead-code removal against torch.fx, growth, a library of rules.

    python bench/bench_rewrite.py [--check] [--margin 1.25] [--impl graphwright]

Takes some minutes, most of them torch.fx's.
"""

from __future__ import annotations

import argparse
import operator
import sys
import time
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import graphwright
from graphwright import Lit, mod, rewrite, rule
from implementations import BASELINE, load
from models import _torchvision
from questions.pattern import _module, _replace
from results import duration, versions
from timing import Case, interleave

# (nodes, matches) -> the ratio to torch.fx that replace_pattern has to stay below
REPLACING = {(1_000, 0): 0.2, (1_000, 10): 0.2, (1_000, 250): 0.2, (10_000, 1_000): 0.03}
DEAD_CODE = 0.3
GROWTH = 2.0  # seconds per node at 100 000 nodes, of those at 10 000
LIBRARY_S = 2.0  # 200 rules over a captured Llama of 32 layers
LAYERS = 32


def main() -> int:
    """Print the table; return 1 if `--check` is given and a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--check", action="store_true", help="exit with 1 if a goal is missed")
    parser.add_argument("--margin", type=float, default=1.0, help="let a result be this many times its goal (noise)")
    parser.add_argument("--impl", default="graphwright", help="what to measure")
    options = parser.parse_args()
    torch.set_num_threads(1)
    fx, ours = load([BASELINE, options.impl])
    print(f"{versions()}; CPU time on one thread, ratios in the same round\n")
    print("| what | torch.fx | graphwright | result | goal | |")
    print(f"|{'---|' * 6}")
    good = True

    def row(what: str, theirs: str, mine: str, result: float, goal: float) -> None:
        nonlocal good
        passed = result <= goal * options.margin
        good &= passed
        print(f"| {what} | {theirs} | {mine} | {result:.3f} | <= {goal} | {'pass' if passed else 'FAIL'} |", flush=True)

    for (nodes, matches), goal in REPLACING.items():
        cases = [
            Case(side.name, partial(_replace, side), lambda s=side, n=nodes, m=matches: (_module(s, n, m),))
            for side in (fx, ours)
        ]
        theirs, mine = interleave(cases, BASELINE, rounds=5 if nodes <= 1_000 else 3)
        what = f"replace_pattern, {matches} matches in {nodes} nodes"
        row(what, duration(theirs.median_s), duration(mine.median_s), mine.ratio, goal)
    cases = [Case(side.name, _remove, lambda s=side: (_with_dead_code(s, 10_000),)) for side in (fx, ours)]
    theirs, mine = interleave(cases, BASELINE, rounds=5)
    what = "eliminate_dead_code, half of 10000 nodes dead"
    row(what, duration(theirs.median_s), duration(mine.median_s), mine.ratio, DEAD_CODE)
    small, large = (_seconds_per_node(ours, nodes) for nodes in (10_000, 100_000))
    row("replace_pattern, 100000 nodes to 10000, per node", "", duration(large), large / small, GROWTH)
    gm, rules = _llama(), _library()
    start = time.process_time()
    result = rewrite(gm, rules)
    seconds = time.process_time() - start
    nodes = sum(1 for _ in gm.graph.all_nodes())
    what = f"seconds of {len(rules)} rules over a Llama of {LAYERS} layers, {nodes} nodes: {result.count} applied"
    row(what, "", duration(seconds), seconds, LIBRARY_S)
    return int(options.check and not good)


def _remove(module: Any) -> None:
    module.graph.eliminate_dead_code()


def _with_dead_code(side: Any, nodes: int) -> Any:
    """A chain in which every other node is read by nobody."""
    graph = side.Graph()
    value = graph.placeholder("x")
    for _ in range(nodes // 2):
        graph.call_function(operator.neg, (value,))
        value = graph.call_function(torch.relu, (value,))
    graph.output(value)
    return side.GraphModule(nn.Module(), graph)


def _seconds_per_node(side: Any, nodes: int) -> float:
    best = float("inf")
    for _ in range(3):
        module = _module(side, nodes, nodes // 10)
        start = time.process_time()
        _replace(side, module)
        best = min(best, time.process_time() - start)
    return best / nodes


def _llama() -> Any:
    _torchvision()  # transformers imports it
    from transformers import LlamaConfig, LlamaModel

    config = LlamaConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=LAYERS, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=64, attn_implementation="eager",
    )  # fmt: skip
    inputs = {"input_ids": torch.ones(1, 8, dtype=torch.long), "use_cache": False}
    return graphwright.trace(LlamaModel(config).eval(), kwargs=inputs)


def _library() -> list[Any]:
    """200 rules: most find nothing, some what is in every layer."""
    unary = [torch.relu, torch.sigmoid, torch.tanh, torch.exp, torch.log, torch.sqrt, torch.rsqrt, torch.abs, torch.neg,
             torch.sin, torch.cos, F.silu, F.gelu, torch.floor]  # fmt: skip
    rules = [
        rule(lambda x, f=f, g=g: f(g(x)), lambda x: x, name=f"{f.__name__}_{g.__name__}")
        for f in unary for g in unary
    ]  # fmt: skip
    rules = [each for each in rules if each.name != "neg_neg"]
    rules += [
        rule(lambda x: x.neg().neg(), lambda x: x, name="double_negation"),
        rule(
            lambda x, linear=mod(nn.Linear): F.silu(linear(x)),
            lambda x, linear: F.silu(F.linear(x, linear.weight)),
            name="linear_silu",
        ),
        rule(
            lambda x, w, eps=Lit(float): w * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)),
            lambda x, w, eps: F.rms_norm(x, w.shape, w, eps),
            name="rms_norm",
        ),
        rule(
            lambda q, k, v, n=Lit(float): torch.softmax(torch.matmul(q, k.transpose(2, 3)) * n, -1) @ v,
            lambda q, k, v, n: F.scaled_dot_product_attention(q, k, v, scale=n),
            name="attention",
        ),
        rule(lambda x: torch.erf(torch.erf(x)), lambda x: x, name="erf_erf"),
    ]
    return rules


if __name__ == "__main__":
    sys.exit(main())
