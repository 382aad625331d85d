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
COUNTING = str(Path(__file__).with_name("counting_judge.py"))


def run_judge(results: Path, models: Iterable[str] = (), timeout: float = 180) -> None:
    """Judge `graphwright.trace` on the models named, or on all but the large ones; write a line for each to `results`.

    Pairs that `results` already holds are not judged again. Raises CalledProcessError where the judge itself fails.
    """
    options = ["--capturers", "graphwright", "--timeout", str(timeout)]
    chosen = ["--only", f"^({'|'.join(map(re.escape, models))})$"] if models else []
    _run(COUNTING, str(JUDGE), "run", "--out", str(results), *options, *chosen)


def print_table(results: Path) -> None:
    """Print what the judge makes of `results`: how many models reach which level."""
    _run(str(JUDGE), "table", str(results))


def _run(*arguments: str) -> None:
    """Run a program in a process of its own, with the library of this checkout."""
    path = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1"}
    subprocess.run([sys.executable, *arguments], check=True, cwd=ROOT, env=environment)
