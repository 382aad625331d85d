"""A program of tensors of known sizes in ONNX Runtime, called with torch's tensors."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnxruntime  # type: ignore[import-untyped]
import torch
from torch import Tensor

from graphwright.onnx.export import export
from graphwright.onnx.overflow import open_session
from graphwright.onnx.program import OnnxProgram
from graphwright.runtime import GraphModule

__all__ = ["open_program"]


def open_program(gm: GraphModule, args: tuple[Tensor, ...], threads: int) -> _Session:
    """Export a program that gives a tuple of tensors, for inputs of these sizes, and open it on so many threads."""
    return _Session(export_at(gm, args), threads)


def export_at(gm: GraphModule, args: tuple[Tensor, ...]) -> OnnxProgram:
    """Export a program for inputs of these very sizes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return export(gm, args, dynamic_shapes=tuple([None] * len(args)))


class _Session:
    """A session: numpy's arrays in between share the memory of torch's tensors."""

    def __init__(self, program: OnnxProgram, threads: int) -> None:
        self._program, self._threads = program, threads
        self._open(threads)

    def _open(self, threads: int) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 4
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            self._program.save(path)
            self._session = open_session(path, options)
        self._run, self._threads = self._session._sess.run, threads
        wanted = {value.name for value in self._session.get_inputs()}
        self._names = [(i, name) for i, name in enumerate(self._program.input_names) if name in wanted]
        self._outputs = self._program.output_names

    def __call__(self, *tensors: Tensor) -> Sequence[Tensor]:
        """Run the session."""
        if torch.get_num_threads() != self._threads:
            self._open(torch.get_num_threads())
        feeds: dict[str, Any] = {name: tensors[i].detach().contiguous().numpy() for i, name in self._names}
        return [*map(torch.from_numpy, self._run(self._outputs, feeds, None))]
