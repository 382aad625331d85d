"""How much longer than `import torch` does it take to import a library too? Each import is a fresh process."""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Sequence

from implementations import Implementation
from results import keep

PROCESSES = 3

PROGRAM = """
import sys, time
start = time.process_time()
import torch
between = time.process_time()
known = {package!r} in sys.modules
import {package}
print((time.process_time() - between) / (between - start), known)
"""


def run(implementations: Sequence[Implementation], node_counts: Sequence[int]) -> None:
    """Report extra CPU time as a fraction of `import torch`; node counts do not matter."""
    print("## import, extra time / `import torch`")
    packages = [*dict.fromkeys(side.package for side in implementations), "torch._dynamo", "torch._inductor.compile_fx"]
    extra: dict[str, list[float]] = {package: [] for package in packages}
    for _ in range(PROCESSES):
        for package in packages:
            extra[package].append(_extra(package))
    answer = {package: round(statistics.median(times), 3) for package, times in extra.items()}
    for package, ratio in answer.items():
        print(f"   {package:42s} {ratio:8.3f}", flush=True)
    keep("import", answer)


def _extra(package: str) -> float:
    """Return the extra time, 0 where `import torch` loads the package already."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(package=package)], capture_output=True, text=True, check=True
    )
    ratio, known = done.stdout.split()
    return 0.0 if known == "True" else float(ratio)
