"""A model in ONNX Runtime in a process of its own, for inputs that may end it: kernels that divide by a size of 0."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy
import torch

from graphwright.onnx.program import OnnxProgram

SCRIPT = Path(__file__).with_name("running_apart.py")
LONGEST = 60  # seconds of one such process


def run_apart(program: OnnxProgram, inputs: Sequence[Sequence[torch.Tensor]]) -> list[list[torch.Tensor] | str]:
    """What a model gives for each of some inputs, or what is said of its failure, which ends only its own process."""
    if not inputs:
        return []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program.save(folder / "model.onnx")
        for i, tensors in enumerate(inputs):
            numpy.savez(folder / f"{i}.in.npz", **program.feeds(tensors))
        left = list(range(len(inputs)))
        while left:
            _start(folder, left)
            left = [i for i in left if not any((folder / f"{i}.{end}").exists() for end in ("out.npz", "error"))]
            if left:
                (folder / f"{left.pop(0)}.error").write_text("ONNX Runtime ends the process")
        return [_read(folder, i) for i in range(len(inputs))]


def _start(folder: Path, numbers: Sequence[int]) -> None:
    command = [sys.executable, str(SCRIPT), str(folder), *map(str, numbers)]
    try:
        subprocess.run(command, capture_output=True, timeout=LONGEST, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return


def _read(folder: Path, number: int) -> list[torch.Tensor] | str:
    said = folder / f"{number}.error"
    if said.exists():
        return said.read_text(errors="replace")
    with numpy.load(folder / f"{number}.out.npz") as outputs:
        return [torch.from_numpy(outputs[f"arr_{i}"]) for i in range(len(outputs.files))]
