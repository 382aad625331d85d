"""Run the judge of whole models, which lies beside the checkout, not in it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]
JUDGE = Path(os.environ.get("ZOO") or ROOT.parent / "shared" / "zoo") / "judge.py"


def run_judge(results: Path, models: Iterable[str] = (), timeout: float = 180) -> None:
    """Judge `graphwright.trace` on the models named, or on all but the large ones; write a line for each to `results`.

    Pairs that `results` already holds are not judged again. Raises CalledProcessError where the judge itself fails.
    """
    chosen = ["--only", f"^({'|'.join(map(re.escape, models))})$"] if models else []
    _judge("run", "--out", str(results), "--capturers", "graphwright", "--timeout", str(timeout), *chosen)


def print_table(results: Path) -> None:
    """Print what the judge makes of `results`: how many models reach which level."""
    _judge("table", str(results))


def _judge(*arguments: str) -> None:
    """Run the judge in a process of its own, with the library of this checkout."""
    path = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1"}
    subprocess.run([sys.executable, str(JUDGE), *arguments], check=True, cwd=ROOT, env=environment)
