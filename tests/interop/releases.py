"""Run the tests of interop and onnx with other releases of torch: `python -m tests.interop.releases 2.14.1 2.15.0`.

Each is installed into an environment of its own, which takes several gigabytes and is removed again. What is no release
goes to pytest: `python -m tests.interop.releases 2.14.1 tests/onnx -k sizes`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
NEEDED = ("expecttest", "hypothesis", "numpy", "onnx", "onnx-ir", "onnxruntime", "onnxscript", "pytest", "pytest-xdist",
          "safetensors", "transformers")  # fmt: skip


def main(given: Sequence[str]) -> int:
    """Test each release; 1 where tests fail with one, or it cannot be installed."""
    releases = [each for each in given if re.fullmatch(r"\d+\.\d+\.\d+(\+\w+)?", each)]
    options = [each for each in given if each not in releases] or ["tests/onnx", "tests/interop"]
    failed = [release for release in releases if not passes(release, options)]
    print(f"tested with torch {', '.join(releases)}; failed with {', '.join(failed) or 'none'}")
    return 1 if failed else 0


def passes(release: str, options: Sequence[str]) -> bool:
    """Tell whether the tests pass with a release of torch, all else being as pinned."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = "\n".join([line for line in lines if line.partition("==")[0] in NEEDED])
    with tempfile.TemporaryDirectory(prefix=f"torch-{release}-") as folder:
        venv.create(folder, with_pip=True)
        python = str(Path(folder) / "bin" / "python")
        install = [python, "-m", "pip", "--disable-pip-version-check", "install", "-qq", "--no-compile"]
        constraints = Path(folder) / "constraints.txt"
        constraints.write_text(pinned)
        commands = [
            [*install, "--constraint", str(constraints), f"torch=={release}", *NEEDED],
            [*install, "--no-deps", "--editable", str(ROOT)],
            [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options],
        ]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        return all(subprocess.run(each, cwd=ROOT, env=environment, check=False).returncode == 0 for each in commands)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
