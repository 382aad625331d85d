"""Modules that come and go leave nothing behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROGRAM = """
import json, soak
found, objects = soak.run(300, 150)
print(json.dumps([soak.growth(found, 300), objects]))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads the memory of the process from /proc")
def test_modules_captured_saved_loaded_and_dropped_in_flat_memory() -> None:
    path = os.pathsep.join([str(ROOT / "bench"), str(ROOT / "src")])
    command = [sys.executable, "-c", PROGRAM]  # a process of its own: the memory of this one has holes
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    kib_for_each, objects = json.loads(done.stdout)
    assert kib_for_each < 8
    assert objects < 100
