"""Print measurements, and keep them as JSON as soon as they are made, so that a run cut short keeps what it has."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from implementations import BASELINE
from timing import Measurement

RESULTS = Path(__file__).parent / "results" / "library.json"

_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))


def record(question: str, measurements: Sequence[Measurement], nodes: int | None = None) -> None:
    """Print what was measured and keep it; with `nodes`, also the microseconds for each of that many nodes."""
    if not measurements:
        print(f"## {question}: not measured, {BASELINE} cannot do it")
        return
    print(f"## {question}")
    kept: dict[str, Any] = {}
    for measured in measurements:
        kept[measured.name] = dataclasses.asdict(measured)
        per_node = ""
        if nodes:
            kept[measured.name]["us_per_node"] = measured.median_s / nodes * 1e6
            per_node = f"{measured.median_s / nodes * 1e6:8.3g} us/node"
        print(
            f"   {measured.name:42s} {duration(measured.median_s):>8s}{per_node}  ratio {measured.ratio:.3f} "
            f"[{measured.lowest_ratio:.3f}..{measured.highest_ratio:.3f}] {measured.rounds} rounds",
            flush=True,
        )
    keep(question, kept)


def keep(question: str, answer: Any) -> None:
    """Merge one answer into the JSON file, together with the versions it holds for."""
    RESULTS.parent.mkdir(exist_ok=True)
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    kept["versions"] = versions()
    kept[question] = answer
    unfinished = RESULTS.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(kept, indent=1, sort_keys=True))
    os.replace(unfinished, RESULTS)


def duration(seconds: float) -> str:
    """Spell a time in the unit that keeps it readable.

    >>> duration(0.0123), duration(2.5), duration(3e-9)
    ('12.3 ms', '2.5 s', '0.003 us')
    """
    scale, unit = next(((scale, unit) for scale, unit in _UNITS if seconds >= scale), _UNITS[-1])
    return f"{seconds / scale:.3g} {unit}"


def versions() -> str:
    """Name what the figures were measured with."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=Path(__file__).parent, capture_output=True, text=True
    ).stdout.strip()
    return ", ".join(
        (
            f"torch {torch.__version__}",
            f"Python {platform.python_version()}",
            f"{sys.platform} {platform.machine()}",
            f"commit {commit or 'unknown'}",
        )
    )
