"""Measure what the library itself costs, question by question, against torch.fx.

    python bench/bench_library.py [--impl torch.fx graphwright] [--part build edit ...] [--max-nodes 10000]

Below 1 is faster than torch.fx. The whole takes about half an hour, up to 10 000 nodes half of that.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
import warnings

import torch

from agreement import DisagreementError
from implementations import BASELINE, AbsentError, load
from programs import NODE_COUNTS

PARTS = (
    "imports",
    "build",
    "memory",
    "edit",
    "codegen",
    "pattern",
    "copying",
    "passes",
    "running",
    "trace",
    "capturers",
)


def main() -> int:
    """Ask every question that was asked for; return 1 where one could not be answered."""
    options = _parse()
    torch.set_num_threads(1)
    sys.setrecursionlimit(100_000)  # torch.fx copies and pickles long graphs by recursion
    warnings.simplefilter("ignore")  # torch's own, about its older capturers
    implementations = load(options.impl)
    if not implementations or implementations[0].name != BASELINE:
        sys.exit(f"the first implementation has to be {BASELINE}: ratios are taken to it")
    node_counts = [nodes for nodes in NODE_COUNTS if nodes <= options.max_nodes]
    complete = True
    for part in options.part:
        start = time.monotonic()
        try:
            importlib.import_module(f"questions.{part}").run(implementations, node_counts)
        except (AbsentError, DisagreementError) as error:
            print(f"   not measured: {error}")
            complete = False
        print(f"-- {part}: {time.monotonic() - start:.0f} s", flush=True)
    return int(not complete)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--impl", nargs="+", default=[BASELINE, "graphwright"], help="packages with torch.fx's API")
    parser.add_argument("--part", nargs="+", choices=PARTS, default=PARTS, help="the questions to ask")
    parser.add_argument("--max-nodes", type=int, default=NODE_COUNTS[-1], help="leave larger graphs out")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
